"""Nyströmformer: softmax attention through landmarks and an iterative pseudo-inverse.

Xiong et al., "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention", AAAI
2021, arXiv 2102.03902, algorithm 1 and the iteration for its pseudo-inverse. With L landmarks q~
and k~, the means of q and k over segments of tokens,

    F = softmax(q k~^T / sqrt(e))    A = softmax(q~ k~^T / sqrt(e))    B = softmax(q~ k^T / sqrt(e))
    out = F (A+ (B v)) + conv(v)
    Z_0 = A^T / (max column sum * max row sum)
    Z <- 1/4 Z (13 I - A Z (15 I - A Z (7 I - A Z)))      tends to A+, by third-order steps

Time O(n L e + L^3 iterations) and memory O(n L) per head.

Segments run over real tokens: of R real tokens, the one of rank r belongs to segment floor(r L /
R), so neither the amount nor the place of padding moves a landmark. Where R < L every real token
is a landmark of its own and the other L - R are empty; an empty landmark has the identity's row
and column in A and zeros in F, and its row in B counts for nothing. A is then block diagonal, A+
too, and the maxima of Z_0, of which the row sum is 1 and the column sum at least 1, are those of
the other block: the result is what R landmarks alone would give.

Deviations: the maxima of Z_0 are taken per sample and head, where the published code takes them
over the whole batch and so lets batch-mates move each other. Six iterations, the paper's choice,
do not converge in general. The convolution runs over real tokens, as if no padding stood between
them. A sample without real tokens returns zero.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.contract import Size, Traits
from zoo.kernels import depthwise
from zoo.kernels.landmarks import apart, segment_means
from zoo.kernels.real_tokens import gather_tokens, real_first
from zoo.projected import ProjectedAttention
from zoo.registry import UserError, require_at_least
from zoo.variants import variants


@variants.register("nystrom")
class Nystrom(ProjectedAttention):
    """Softmax attention of low rank: every token meets L landmarks, and they meet every token.

    Axis letter beyond the contract's: `l` landmarks.
    """

    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)

    def __init__(
        self, size: Size, *, landmarks: int = 64, iterations: int = 6, conv: int = 0
    ) -> None:
        """Make the convolution, if any.

        Args:
            size: what every variant is built from.
            landmarks: L; from n on, and with enough iterations, the result is softmax attention.
            iterations: steps towards the pseudo-inverse.
            conv: taps, an odd number, of a depth-wise convolution of the values over tokens, one
                kernel a head, added to the output (35 in the paper's LRA runs); 0 for none.

        Raises:
            UserError: `landmarks` below 1, `iterations` below 0, or `conv` neither 0 nor odd.
        """
        super().__init__(size)
        require_at_least(1, "nystrom", landmarks=landmarks)
        require_at_least(0, "nystrom", iterations=iterations)
        if conv < 0 or (conv and conv % 2 == 0):
            raise UserError(f"nystrom.conv={conv} must be an odd number of taps, or 0 for none")
        self.landmarks, self.iterations = landmarks, iterations
        self.conv = _depthwise(size.heads, conv) if conv else None

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h n e"],
        v: Float[Tensor, "b h n e"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        if mask is not None:
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        # fp32 at least: the pseudo-inverse of a nearly singular A magnifies every rounding.
        upcast = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            full = q.to(upcast), k.to(upcast), v.to(upcast)
            out = nystrom(*full, mask, self.landmarks, self.iterations).to(v.dtype)
        if self.conv is None:
            return out
        taps = self.conv.weight[:, 0, :, 0]
        if mask is None:
            return out + depthwise.convolved(v, taps)
        # Over the real tokens: v is zero at the others, which stand last.
        order, place = real_first(mask)
        return out + gather_tokens(depthwise.convolved(gather_tokens(v, order), taps), place)


def nystrom(
    q: Float[Tensor, "b h n e"],
    k: Float[Tensor, "b h n e"],
    v: Float[Tensor, "b h n e"],
    mask: Bool[Tensor, "b n"] | None,
    landmarks: int,
    iterations: int,
) -> Float[Tensor, "b h n e"]:
    """`F (A+ (B v))`, without the convolution; v is zero at padded tokens."""
    q = q * q.shape[-1] ** -0.5
    mean = segment_means(q, mask, min(landmarks, q.shape[-2]))
    q_marks, k_marks = mean @ q, mean @ k
    from_marks, middle, to_marks = q @ k_marks.mT, q_marks @ k_marks.mT, q_marks @ k.mT
    if mask is None:
        f, a, b = (scores.softmax(-1) for scores in (from_marks, middle, to_marks))
    else:
        filled = mean.any(-1)
        f = masked_softmax(from_marks, filled[..., None, :])
        a = apart(masked_softmax(middle, filled[..., None, :]), filled)
        b = masked_softmax(to_marks, mask[:, None, None, :])
    return f @ (pseudo_inverse(a, iterations) @ (b @ v))


def masked_softmax(
    scores: Float[Tensor, "b h n m"], allowed: Bool[Tensor, "b 1 1 m"]
) -> Float[Tensor, "b h n m"]:
    """Softmax over what is allowed; finite, and of no account, where nothing is."""
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)


def pseudo_inverse(a: Float[Tensor, "b h l l"], iterations: int) -> Float[Tensor, "b h l l"]:
    """The paper's iteration towards the Moore-Penrose inverse of a nonnegative matrix."""
    columns, rows = a.sum(-2).amax(-1), a.sum(-1).amax(-1)
    z = a.mT / (columns * rows)[..., None, None]
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        az = a @ z
        z = z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az))) / 4
    return z


def _depthwise(heads: int, taps: int) -> nn.Conv2d:
    return nn.Conv2d(heads, heads, (taps, 1), padding=(taps // 2, 0), groups=heads, bias=False)
