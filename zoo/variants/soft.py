"""SOFT: attention by a Gaussian kernel, without softmax, of low rank by landmarks.

Lu et al., "SOFT: Softmax-free Transformer with Linear Complexity", NeurIPS 2021, arXiv 2110.11945,
section 3: the Gaussian kernel with shared queries and keys, its Nyström decomposition, and the
Newton-Raphson iteration for the inverse. With L landmarks q~, and G(x, y) the matrix of

    exp(-|x_i - y_j|^2 / (2 sqrt(e)))

    A = G(q~, q~)    P = G(q~, q)
    out = P^T A+ P v
    Z_0 = a A    Z <- 2 Z - Z A Z       tends to A+ for 0 < a < 2 / |A|^2, quadratically

Time O(n L e + L^3 iterations) and memory O(n L + L^2 iterations) per head.

|A| is the largest sum of a row, and a = 1 / |A|^2. Of the part of A+ that belongs to an eigenvalue
l of A, the error is (1 - a l^2)^(2^iterations): 20 steps, as in the published code, suffice for
l = 0.001 |A|, and the part of smaller ones is damped, as by a ridge. Landmarks close to one another
make A nearly singular, so this is the usual case. Gradients are of the iteration as it runs.
A step doubles the rounding errors where A is singular: of an output in fp32 they are up to 1e-5
after 20 steps, 5e-3 after 35, and as large as the output after 50.

Weights are not normalised: the output grows with the number of similar tokens, as in the paper.

Segments run over real tokens and empty landmarks are isolated, as in `zoo.variants.nystrom`: an
empty landmark has the identity's row and column in A and zeros in P. A is then block diagonal, A+
too, and the largest row sum, at least 1 by the diagonal, is in the other block.

Deviations: landmarks are means of segments of the sequence, where the paper convolves or pools
patches of an image. The kernel depends on differences only, so a bias in the projection of the
queries would cancel: it has none. a is taken per sample and head. The published code adds 0.01
to the diagonal of A, which is not done here, and takes the gradient of an exact inverse (as the
journal version, arXiv 2207.03341, argues), which differs where the iteration has not converged.
There is no convolution of v. A sample without real tokens returns zero.
"""

from jaxtyping import Float
from torch import Tensor, nn

from zoo.contract import Count, Keys, Mask, Natural, Queries, Size, Traits
from zoo.kernels.real_tokens import zero_padding
from zoo.projected import ProjectedAttention
from zoo.projection import ShortConvolution
from zoo.variants import variants
from zoo.variants.nystrom import isolate_empty, segment_means


@variants.register("soft")
class Soft(ProjectedAttention):
    """Gaussian-kernel attention of low rank; queries and keys share a projection.

    Axis letters beyond the contract's: `l` landmarks.

    Args:
        landmarks: L; from n on, and with A+ exact, the result equals the Gaussian kernel.
        iterations: Newton-Raphson steps towards the inverse; in fp32 no more than 30.
    """

    version = "1.0"
    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    family = "low rank"
    shared_qk = True
    # fp32 at least: the inverse of a nearly singular A magnifies rounding errors.
    upcast = True

    def __init__(self, size: Size, *, landmarks: Count = 64, iterations: Natural = 20) -> None:
        super().__init__(size)
        self.landmarks, self.iterations = landmarks, iterations
        self.query = nn.Linear(size.dim, size.dim, bias=False)
        self.query_conv = ShortConvolution(size, size.dim)

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        mean, filled = segment_means(q, mask, self.landmarks)
        landmarks = mean @ q
        a, p = gaussian(landmarks, landmarks), gaussian(landmarks, q)
        if filled is not None:
            a = isolate_empty(a, filled)
            p = p.masked_fill(~filled[..., None], 0.0)
        return p.mT @ (inverse(a, self.iterations) @ (p @ zero_padding(v, mask)))

    def head_flops(self, n: int) -> int:
        # P and its two products; A, and its inverse.
        count, width = min(self.landmarks, n), self.size.head_dim
        return 2 * count * (3 * n * width + 2 * count * width + 2 * self.iterations * count**2)


def gaussian(x: Float[Tensor, "b h l e"], y: Float[Tensor, "b h m e"]) -> Float[Tensor, "b h l m"]:
    squares = x.square().sum(-1)[..., None] + y.square().sum(-1)[..., None, :] - 2 * x @ y.mT
    # Rounding can make the difference of squares negative, and no weight exceeds 1.
    return (squares.clamp_min(0.0) * (-0.5 * x.shape[-1] ** -0.5)).exp()


def inverse(a: Float[Tensor, "b h l l"], iterations: int) -> Float[Tensor, "b h l l"]:
    z = a / a.sum(-1).amax(-1).square()[..., None, None]
    for _ in range(iterations):
        z = 2 * z - z @ a @ z
    return z
