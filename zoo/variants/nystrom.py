"""Nyströmformer: softmax attention by landmarks and an iterative pseudo-inverse.

Xiong et al., "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention", AAAI
2021, arXiv 2102.03902, algorithm 1 and the iteration for its pseudo-inverse. With L landmarks q~
and k~, the means of q and k over segments of tokens,

    F = softmax(q k~^T / sqrt(e))    A = softmax(q~ k~^T / sqrt(e))    B = softmax(q~ k^T / sqrt(e))
    out = F (A+ (B v)) + conv(v)
    Z_0 = A^T / (max column sum * max row sum)
    Z <- 1/4 Z (13 I - A Z (15 I - A Z (7 I - A Z)))      tends to A+, by third-order steps

Time O(n L e + L^3 iterations) and memory O(n L) per head.

Segments run over real tokens: of R real tokens, the one of rank r belongs to segment floor(r L /
R), so neither the amount nor the position of padding changes a landmark. Where R < L every real
token is one landmark and the other L - R are empty; an empty landmark has the identity's row and
column in A and zeros in F, and its row in B is multiplied by zero. A is then block diagonal, A+
too, and both maxima of Z_0 (the row sum is 1 and the column sum at least 1) are in the other block:
the result is the same as with R landmarks alone.

Deviations: the maxima of Z_0 are taken per sample and head, where the published code takes them
over the whole batch, so that samples of a batch depend on one another. Six iterations, the paper's
choice, do not converge in general. The convolution runs over real tokens, as if there were no
padding between them. A sample without real tokens returns zero.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.contract import Count, Keys, Mask, Natural, Queries, Size, Traits
from zoo.kernels.depthwise import Taps, convolve
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import with_real_tokens_first, zero_padding
from zoo.projected import ProjectedAttention
from zoo.variants import variants


@variants.register("nystrom")
class Nystrom(ProjectedAttention):
    """Softmax attention of low rank: tokens attend to L landmarks, and landmarks to all tokens.

    Axis letter beyond the contract's: `l` landmarks.

    Args:
        landmarks: L; from n on, and with enough iterations, the result is softmax attention.
        iterations: steps towards the pseudo-inverse.
        conv: taps, an odd number, of a depth-wise convolution of the values over tokens, one
            kernel per head, added to the output (35 in the paper's LRA runs); 0 for none.
    """

    version = "1.0"
    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    family = "low rank"

    def __init__(
        self, size: Size, *, landmarks: Count = 64, iterations: Natural = 6, conv: Taps = 0
    ) -> None:
        super().__init__(size)
        self.landmarks, self.iterations = landmarks, iterations
        heads, half = size.heads, (conv // 2, 0)
        self.conv = None
        if conv:
            self.conv = nn.Conv2d(heads, heads, (conv, 1), padding=half, groups=heads, bias=False)

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        v = zero_padding(v, mask)
        # fp32 at least: the pseudo-inverse of a nearly singular A magnifies rounding errors.
        with full_precision(q, k, v) as (q32, k32, v32):
            out = nystrom(q32, k32, v32, mask, self.landmarks, self.iterations).to(v.dtype)
        if self.conv is None:
            return out
        taps = self.conv.weight[:, 0, :, 0]
        # Padded tokens come last, with values of zero.
        return out + with_real_tokens_first(lambda v, _: convolve(v, taps), mask, v)

    def head_flops(self, n: int) -> int:
        # F, B and their products; A, and its inverse.
        count, width = min(self.landmarks, n), self.size.head_dim
        return 2 * count * (4 * n * width + 2 * count * width + 4 * self.iterations * count**2)


def nystrom(q: Queries, k: Keys, v: Keys, mask: Mask, landmarks: int, iterations: int) -> Queries:
    q = q * q.shape[-1] ** -0.5
    mean, filled = segment_means(q, mask, landmarks)
    q_landmarks, k_landmarks = mean @ q, mean @ k
    f, a, b = q @ k_landmarks.mT, q_landmarks @ k_landmarks.mT, q_landmarks @ k.mT
    b = b.softmax(-1) if mask is None else masked_softmax(b, mask[:, None, None, :])
    if filled is None:
        f, a = f.softmax(-1), a.softmax(-1)
    else:
        f = masked_softmax(f, filled[..., None, :])
        a = isolate_empty(masked_softmax(a, filled[..., None, :]), filled)
    return f @ (pseudo_inverse(a, iterations) @ (b @ v))


def masked_softmax(
    scores: Float[Tensor, "b h n m"], allowed: Bool[Tensor, "#b 1 1 m"]
) -> Float[Tensor, "b h n m"]:
    # Finite where no entry is allowed.
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)


def pseudo_inverse(a: Float[Tensor, "b h l l"], iterations: int) -> Float[Tensor, "b h l l"]:
    # The paper's iteration towards the Moore-Penrose inverse of a nonnegative matrix.
    columns, rows = a.sum(-2).amax(-1), a.sum(-1).amax(-1)
    z = a.mT / (columns * rows)[..., None, None]
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        az = a @ z
        z = z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az))) / 4
    return z


def segment_means(
    like: Queries, mask: Mask, landmarks: int
) -> tuple[Float[Tensor, "#b 1 l n"], Bool[Tensor, "#b 1 l"] | None]:
    # What tokens are multiplied by, at most one landmark for each, and which are not empty; None
    # for all of them. A graph for any length cannot have fewer landmarks than `landmarks`.
    n, exporting = like.shape[-2], torch.compiler.is_exporting()
    landmarks = landmarks if exporting else min(landmarks, n)
    real = torch.ones(1, n, dtype=torch.bool, device=like.device) if mask is None else mask
    rank, count = real.cumsum(1) - 1, real.sum(1, keepdim=True)
    segment = rank * landmarks // count.clamp_min(1)
    index = torch.arange(landmarks, device=like.device)
    member = (segment[:, None, :] == index[:, None]) & real[:, None, :]
    mean = member.to(like.dtype) / member.sum(-1, keepdim=True).clamp_min(1)
    return mean[:, None], member.any(-1)[:, None] if exporting or mask is not None else None


def isolate_empty(
    a: Float[Tensor, "b h l l"], filled: Bool[Tensor, "#b 1 l"]
) -> Float[Tensor, "b h l l"]:
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return torch.where(filled[..., None] & filled[..., None, :], a, identity)
