"""The short convolution of queries, keys and values, behind their projections.

With `Size.short_conv` = T > 0, a depth-wise convolution runs over the tokens of a projection u:

    y_i = silu(sum_t taps_t * u_(i + t - T + 1))    causal: this token and the T - 1 before it
    y_i = silu(sum_t taps_t * u_(i + t - S // 2))   bidirectional: S taps, the odd one of T, T + 1

So does every layer of fla (DeltaNet, Gated DeltaNet, KDA, Mamba-2) in its causal form, with T = 4
and no bias; in MesaNet not of values, in HGRN2 without the SiLU. Arora et al., 2023, arXiv
2312.04927, explain why: to recall a pair, a key must be next to its value. u is zero outside of the
sequence. Padded tokens are taken out of the sequence.

Deviation: y starts as about silu(u), with the tap of the token itself at 1 and the others within
0.1 / sqrt(T). fla starts all taps within 1 / sqrt(T), as `nn.Conv1d`, and recalls later; see
`docs/decisions/suites.md`.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.kernels import eager
from zoo.kernels.precision import without_autocast
from zoo.kernels.real_tokens import last_tokens, with_real_tokens_first
from zoo.size import Size

Projected = Float[Tensor, "b n w"]
Channels = Float[Tensor, "b n _"]  # Some of the channels of a projection


class ShortConvolution(nn.Module):
    """The convolution of `size` over the projections of tokens, (b, n, w); the identity for T = 0.

    It is a module of its own, so that the linear layer before it is one that others can replace.
    """

    def __init__(self, size: Size, width: int, *, plain: int = 0, activation: bool = True) -> None:
        """`plain` is the number of last channels without taps; `activation` adds a SiLU."""
        super().__init__()
        self.plain, self.activation = plain, activation
        count = size.short_conv if size.causal or not size.short_conv else size.short_conv | 1
        self.before = count - 1 if size.causal else count // 2
        self.taps = None
        if count:
            taps = torch.empty(count, width - plain).uniform_(-1, 1) * (0.1 * count**-0.5)
            taps[self.before] += 1
            self.taps = nn.Parameter(taps)

    def forward(self, u: Projected, mask: Bool[Tensor, "b n"] | None = None) -> Projected:
        if self.taps is None:
            return u
        return self._join(convolve(self._convolved(u), self.taps, self.before, mask), u)

    def extend(
        self, u: Projected, past: tuple[Tensor, ...], real: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Projected, tuple[Tensor, ...]]:
        # Padding is last. `past` has the projections of the last T - 1 tokens, (b, T - 1, w).
        if self.taps is None:
            return u, past
        y, after = convolve_after(self._convolved(u), self.taps, past[0], real)
        return self._join(y, u).to(u.dtype), (after,)

    def past_shapes(self) -> list[tuple[int, int]]:
        return [] if self.taps is None else [(len(self.taps) - 1, self.taps.shape[1])]

    def _convolved(self, u: Projected) -> Channels:
        return u[..., : u.shape[-1] - self.plain]

    def _join(self, y: Channels, u: Projected) -> Projected:
        # The activation of the convolution y of u, and the other channels of u.
        y = F.silu(y) if self.activation else y
        return torch.cat([y, u[..., u.shape[-1] - self.plain :]], dim=-1) if self.plain else y


def convolve(
    u: Projected, taps: Float[Tensor, "t w"], before: int, mask: Bool[Tensor, "b n"] | None
) -> Projected:
    # `before` taps read earlier tokens.
    if mask is not None:
        u = torch.where(mask[..., None], u, 0.0)
        return with_real_tokens_first(lambda u, _: convolve(u, taps, before, None), mask, u)
    if eager.on_cpu(u):
        return _ShiftedSum.apply(u, taps.to(u.dtype), before)
    padded = F.pad(u.mT, (before, len(taps) - 1 - before))
    return F.conv1d(padded, taps.to(u.dtype).mT[:, None], groups=taps.shape[1]).mT


class _ShiftedSum(torch.autograd.Function):
    # y_i = sum_t taps_t * u_(i + t - before), in a fifth of the time of `conv1d` on a CPU. The
    # gradient of u is the same sum of the gradient of y, with the taps in reverse.

    @staticmethod
    def forward(u: Projected, taps: Tensor, before: int) -> Projected:
        y = u * taps[before]
        for shift, tap in zip(range(-before, len(taps) - before), taps, strict=True):
            if shift:
                to, of = _overlap(y, u, shift)
                to.addcmul_(of, tap)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.before = inputs[2]
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, None]:
        (u, taps), (gradient,) = ctx.saved_tensors, gradients
        after = len(taps) - 1 - ctx.before
        parts = (_overlap(gradient, u, shift) for shift in range(-ctx.before, after + 1))
        slopes = [(to * of).flatten(0, -2).sum(0) for to, of in parts]
        return _ShiftedSum.apply(gradient, taps.flip(0), after), torch.stack(slopes), None


def _overlap(to: Projected, of: Projected, shift: int) -> tuple[Tensor, Tensor]:
    # i of `to` and i + `shift` of `of`.
    if shift < 0:
        return to[..., -shift:, :], of[..., :shift, :]
    return to[..., : max(0, to.shape[-2] - shift), :], of[..., shift:, :]


def convolve_after(
    u: Projected, taps: Float[Tensor, "t w"], past: Float[Tensor, "b before w"],
    real: Bool[Tensor, "b n"] | None,
) -> tuple[Projected, Float[Tensor, "b before w"]]:  # fmt: skip
    # `past` and the result hold T - 1 tokens.
    window = torch.cat([past, u.to(past.dtype)], dim=1)
    with without_autocast(u):
        y = convolve(window, taps, past.shape[1], None)[:, past.shape[1] :]
    return y, last_tokens(window, past.shape[1], real)
