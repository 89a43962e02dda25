"""Linear attention: a positive feature map on either side in place of the softmax kernel.

Katharopoulos, Vyas, Pappas, Fleuret, "Transformers are RNNs: Fast Autoregressive Transformers with
Linear Attention", ICML 2020, arXiv 2006.16236, sections 3.2 (linearised attention), 3.2.1 (the
feature map), 3.3 (causal masking) and 3.4 (the recurrence):

    phi(x) = elu(x) + 1, that is exp(x) for x <= 0 and x + 1 beyond
    out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j))

where j runs over the real tokens, and up to i in the causal form. Time O(n e^2) and memory O(n e)
per head; the causal form adds what `zoo.kernels.causal_sum` says.

The features are computed as the two branches and not as elu(x) + 1, whose sum loses exp(x) to
rounding from about x = -15 on in fp32. A query whose every coordinate is negative is shifted until
the largest is 0: exp(q - r) = exp(q) exp(-r), and e^(-r) scales numerator and denominator alike.

Deviations: the published code adds 1e-6 to the denominator, a bias that the formula does not have
and that swamps small features. Here a query with no real key in sight, or whose weights all
vanish, returns zero.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.contract import Size, State, Traits
from zoo.kernels import causal_sum, recurrent_sum
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants


@variants.register("linear")
class Linear(ProjectedAttention):
    """Attention with weights `phi(q_i) . phi(k_j)`, phi = elu + 1, normalised over j."""

    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=True)
    # fp32 at least: sums over thousands of tokens leave half precision no digits.
    upcast = True

    def __init__(self, size: Size, *, chunk: int = 128) -> None:
        """Keep the options.

        Args:
            size: what every variant is built from.
            chunk: tokens of a causal block; the result does not depend on it.

        Raises:
            UserError: `chunk` below 1.
        """
        super().__init__(size)
        require_at_least(1, "linear", chunk=chunk)
        self.chunk = chunk

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        queries, keys = shifted(q), features(k)
        if mask is not None:
            keys = keys.masked_fill(~mask[:, None, :, None], 0.0)
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def begin(self, batch: int) -> State:
        """See `ProjectedAttention.begin`: the sums of phi(k_j) [v_j, 1]^T."""
        return (
            self.zero_state(batch, self.size.heads, self.size.head_dim, self.size.head_dim + 1),
        )

    def recur(
        self,
        q: Float[Tensor, "b h 1 e"],
        k: Float[Tensor, "b h 1 e"],
        v: Float[Tensor, "b h 1 e"],
        state: State,
    ) -> tuple[Float[Tensor, "b h 1 e"], State]:
        """See `ProjectedAttention.recur`."""
        heads, sums = recurrent_sum.mean(shifted(q), features(k), v, *state)
        return heads, (sums,)


def shifted(q: Float[Tensor, "*any e"]) -> Float[Tensor, "*any e"]:
    """Return phi(q), for negative q but for a factor that the mean does not feel."""
    return features(q - q.detach().amax(-1, keepdim=True).clamp_max(0.0))


def features(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return elu(x) + 1, with all its digits where it is small."""
    # A compiler fuses the formula by itself.
    return _elu_plus_one(x) if torch.compiler.is_compiling() else _EluPlusOne.apply(x)


def _elu_plus_one(x: Tensor) -> Tensor:
    return x.clamp_max(0.0).exp() + x.relu()


class _EluPlusOne(torch.autograd.Function):
    """Keeps its result alone for the way back: the derivative is phi where x < 0, else 1."""

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
