"""Softmax attention, the reference that every other variant is compared with.

Vaswani et al., "Attention Is All You Need", 2017, arXiv 1706.03762, equation 1:
`softmax(q k^T / sqrt(e)) v`. Time O(n m e); memory O(n m) when literal, O(n + m) in the fused
kernels behind `scaled_dot_product_attention`.

The kernels of xformers are a backend too, on CUDA. `Softmax.backend_for` says which one runs.

Deviation: a query whose every key is padded attends to nothing and returns zero, where the formula
is undefined.
"""

from functools import cache
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Size, Traits, Unsupported
from zoo.kernels.mask import attention_mask
from zoo.packages import load
from zoo.projected import ProjectedAttention
from zoo.registry import in_one_line
from zoo.variants import variants


@variants.register("softmax")
class Softmax(ProjectedAttention):
    """`softmax(q k^T / sqrt(e)) v` by PyTorch's fused kernels, or literally."""

    traits = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)

    def __init__(
        self, size: Size, *, backend: Literal["auto", "sdpa", "naive", "xformers"] = "auto"
    ) -> None:
        """Choose how the formula is computed.

        Args:
            size: what every variant is built from.
            backend: `sdpa` for `scaled_dot_product_attention`, `naive` for the literal formula (the
                twin that defines all others), `xformers` for its `memory_efficient_attention`,
                `auto` for xformers where a trial of it succeeds, and for `sdpa` elsewhere.

        Raises:
            Unsupported: `backend` is xformers, and the package or a CUDA device is missing.
        """
        super().__init__(size)
        self.backend = backend
        if backend == "xformers":
            load("softmax.backend=xformers", "xformers.ops", "xformers")
            if not torch.cuda.is_available():
                raise Unsupported(
                    "softmax.backend=xformers needs a CUDA device, and there is none; "
                    "give backend=auto"
                )

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        dropout = self.size.dropout if self.training else 0.0
        return BACKENDS[self.backend_for(q)](q, k, v, mask, self.size.causal, dropout)

    def backend_for(self, q: Float[Tensor, "b h n e"]) -> str:
        """The backend that computes attention for such queries, where `auto` leaves it open.

        Raises:
            Unsupported: xformers was asked for by name and a trial of it fails.
        """
        # A compiled graph keeps to the kernel that its compiler knows.
        if self.backend not in ("auto", "xformers") or torch.compiler.is_compiling():
            return "sdpa" if self.backend == "auto" else self.backend
        reason = refusal(q.device, q.dtype, q.shape[-1])
        if reason and self.backend == "xformers":
            raise Unsupported(f"softmax.backend=xformers cannot run: {reason}; give backend=auto")
        return "sdpa" if reason else "xformers"


def naive(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    mask: Bool[Tensor, "b m"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "b h n e"]:
    """Equation 1 as it is written, with an n x m matrix of weights in memory."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    allowed = attention_mask(q, k, mask, causal)
    if allowed is None:
        weights = scores.softmax(-1)
    else:
        # A finite floor, then zeros: a row with nothing to see becomes 0 and never NaN.
        floor = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~allowed, floor).softmax(-1).masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout) @ v


def sdpa(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    mask: Bool[Tensor, "b m"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "b h n e"]:
    """The same by `torch.nn.functional.scaled_dot_product_attention`."""
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    allowed = attention_mask(q, k, mask, causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)


def xformers(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h m e"],
    v: Float[Tensor, "b h m e"],
    mask: Bool[Tensor, "b m"] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "b h n e"]:
    """The same by `xformers.ops.memory_efficient_attention`, which has heads behind tokens."""
    ops = load("softmax.backend=xformers", "xformers.ops", "xformers")
    allowed = None if mask is None else attention_mask(q, k, mask, causal)
    if allowed is not None:
        bias = forbidding(allowed, q, k)
    else:
        bias = ops.LowerTriangularMask() if causal else None
    parts = (part.transpose(1, 2) for part in (q, k, v))
    out = ops.memory_efficient_attention(*parts, attn_bias=bias, p=dropout).transpose(1, 2)
    return out if allowed is None else out.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


def forbidding(
    allowed: Bool[Tensor, "#b 1 #n m"], q: Float[Tensor, "b h n e"], k: Float[Tensor, "b h m e"]
) -> Float[Tensor, "b h n m"]:
    """What to add to the scores: 0 where `allowed`, elsewhere a number that leaves no weight."""
    (b, h, n, _), m = q.shape, k.shape[2]
    # Half the lowest number: a row of the lowest would overflow within the kernel, to NaN.
    bias = q.new_zeros(allowed.shape).masked_fill(~allowed, torch.finfo(q.dtype).min / 2)
    # The kernel wants rows that start at multiples of 8 entries.
    return F.pad(bias, (0, -m % 8))[..., :m].expand(b, h, n, m)


@cache
def refusal(device: torch.device, dtype: torch.dtype, width: int) -> str:
    """Why xformers cannot attend there, by trial, forward and backward; empty where it can."""
    if device.type != "cuda":
        return f"it needs a CUDA device, and the tokens are on {device}"
    try:
        with torch.inference_mode(False), torch.enable_grad():
            trial = torch.zeros(1, 1, 8, width, dtype=dtype, device=device, requires_grad=True)
            mask = torch.ones(1, 8, dtype=torch.bool, device=device)
            xformers(trial, trial, trial, mask, False, 0.0).sum().backward()
    except Exception as error:
        # Foreign code: no package, no kernel for this device or type, a library that is missing.
        return in_one_line(error)
    return ""


BACKENDS = {"naive": naive, "sdpa": sdpa, "xformers": xformers}
