"""Linear attention: products of positive features in place of the softmax kernel.

Katharopoulos, Vyas, Pappas, Fleuret, "Transformers are RNNs: Fast Autoregressive Transformers with
Linear Attention", ICML 2020, arXiv 2006.16236, sections 3.2 (linearised attention), 3.2.1 (the
feature map), 3.3 (causal masking) and 3.4 (the recurrence):

    phi(x) = elu(x) + 1, that is exp(x) for x <= 0 and x + 1 for x > 0
    out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j))

where j runs over the real tokens, and up to i in the causal form. Time O(n e^2) and memory O(n e)
per head; for the causal form see `zoo.kernels.causal_sum`.

The features are computed as the two branches and not as elu(x) + 1, whose sum loses exp(x) to
rounding from about x = -15 on in fp32. A query whose every coordinate is negative is shifted until
the largest is 0: exp(q - r) = exp(q) exp(-r), and e^(-r) scales numerator and denominator alike.

Deviations: the published code adds 1e-6 to the denominator, a bias that the formula does not have
and that is larger than small features. Here a query without real keys, or whose weights all
underflow, returns zero.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.contract import Count, Keys, Mask, Queries, Size, State, Traits
from zoo.kernels import causal_sum, feature_sum
from zoo.kernels.feature_sum import Part
from zoo.kernels.real_tokens import zero_padding
from zoo.projected import ProjectedAttention
from zoo.spans import in_spans
from zoo.variants import variants


@variants.register("linear")
class Linear(ProjectedAttention):
    """Attention with weights `phi(q_i) . phi(k_j)`, phi = elu + 1, normalised over j."""

    version = "1.0"
    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=True)
    family = "kernel"
    # fp32 at least: half precision is too coarse for sums over thousands of tokens.
    upcast = True
    spans = 8 / 3
    forward = in_spans(ProjectedAttention.forward)

    def __init__(self, size: Size, *, chunk: Count = 64) -> None:
        """`chunk`: tokens of a causal block; the result does not depend on it."""
        super().__init__(size)
        self.chunk = chunk

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        if not self.size.causal and feature_sum.suits(q, k):
            width = q.shape[-1]
            return feature_sum.mean(QueryMap(width), KeyMap(width, mask), q, k, v)
        queries, keys = query_features(q), zero_padding(features(k), mask)
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def head_flops(self, n: int) -> int:
        return 2 * n * (2 * self.size.head_dim**2 + self.size.head_dim)

    def begin(self, batch: int) -> State:
        # The sums of phi(k_j) [v_j, 1]^T.
        heads, width = self.size.heads, self.size.head_dim
        return (self.zero_state(batch, heads, width, width + 1),)

    def attend_after(
        self, q: Queries, k: Keys, v: Keys, real: Mask, state: State
    ) -> tuple[Queries, State]:
        queries, keys = query_features(q), zero_padding(features(k), real)
        heads, sums = causal_sum.mean_after(queries, keys, v, state[0], self.chunk)
        return heads, (sums,)


@dataclass(frozen=True)
class KeyMap(feature_sum.FeatureMap):
    """`features`, zero at padded tokens."""

    features: int
    mask: Mask = None

    def __call__(self, x: Tensor, part: Part) -> Tensor:
        return zero_padding(features(x), None if self.mask is None else self.mask[part])

    def vjp(self, x: Tensor, features: Tensor, gradient: Tensor, part: Part, out: Tensor) -> None:
        torch.mul(gradient, features.clamp_max_(1.0), out=out)


class QueryMap(KeyMap):
    def __call__(self, x: Tensor, part: Part) -> Tensor:
        largest = x.detach().amax(-1, keepdim=True)
        # Few queries have negative coordinates only.
        return features(x - largest.clamp_max_(0.0) if bool((largest < 0).any()) else x)


def query_features(q: Float[Tensor, "*any e"]) -> Float[Tensor, "*any e"]:
    # A factor for negative q cancels in the mean.
    return features(q - q.detach().amax(-1, keepdim=True).clamp_max(0.0))


def features(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    # elu(x) + 1, without loss of precision where it is small.
    # A compiler fuses the formula by itself.
    compiling = torch.compiler.is_compiling()
    return x.clamp_max(0.0).exp() + x.relu() if compiling else _EluPlusOne.apply(x)


class _EluPlusOne(torch.autograd.Function):
    # Saves its result alone for the backward pass: the derivative is phi where x < 0, else 1.

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp_max(0.0).exp_().add_(x.relu())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        return phi.clamp_max(1.0).mul_(gradients[0])
