"""Cosine attention: the cosine of query and key as the weight, with a learned power of the length.

Mongaras, Dohm, Larson, "Cottention: Linear Transformers With Cosine Attention", 2024, arXiv
2409.18747, equations 3 and 4. With u^ = u / |u|, R the number of real tokens that a query sees and
one learned m per head, 0.5 at first,

    out_i = R^(-sigmoid(m)) sum_j (q^_i . k^_j) v_j

where j runs over the real tokens. Weights lie in [-1, 1] and need not add up to anything: their
sum may grow to R, which R^(-sigmoid(m)) pulls down by as much as the head learns to want, from not
at all to a mean. Time O(n e^2) and memory O(n e) per head; the causal form, with j and R up to i,
adds what `zoo.kernels.causal_sum` says.

Deviations: the length is that of the real tokens. In the causal form the paper leaves it open
where the power is taken; its code divides v_j by the power of the j tokens before it, which lets
early values weigh more in every later sum. Here the sum of query i is divided, by the power of the
i tokens in it, so that the bound above holds for each. A vector shorter than 1e-12 counts as that
long. A query with no real key in sight returns zero.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Size, State, Traits
from zoo.kernels import causal_sum, recurrent_sum
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants


@variants.register("cosine")
class Cosine(ProjectedAttention):
    """Attention with weights `cos(q_i, k_j)`, scaled by a learned power of their number."""

    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=True)
    # fp32 at least: squares overflow half precision, and the sums run over thousands of tokens.
    upcast = True

    def __init__(self, size: Size, *, chunk: int = 128) -> None:
        """Make the parameters.

        Args:
            size: what every variant is built from.
            chunk: tokens of a causal block; the result does not depend on it.

        Raises:
            UserError: `chunk` below 1.
        """
        super().__init__(size)
        require_at_least(1, "cosine", chunk=chunk)
        self.chunk = chunk
        self.power = nn.Parameter(torch.full((size.heads,), 0.5))

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        queries, keys = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if mask is not None:
            keys = keys.masked_fill(~mask[:, None, :, None], 0.0)
        sums = causal_sum.total(queries, keys, v, self.size.causal, self.chunk)
        return self._scaled(sums, self._seen(v, mask))

    def begin(self, batch: int) -> State:
        """See `ProjectedAttention.begin`: the sums of k^_j v_j^T, and how many tokens came."""
        heads, width = self.size.heads, self.size.head_dim
        return self.zero_state(batch, heads, width, width), self.zero_state(batch).long()

    def recur(
        self,
        q: Float[Tensor, "b h 1 e"],
        k: Float[Tensor, "b h 1 e"],
        v: Float[Tensor, "b h 1 e"],
        state: State,
    ) -> tuple[Float[Tensor, "b h 1 e"], State]:
        """See `ProjectedAttention.recur`."""
        sums, seen = state
        queries, keys = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        heads, sums = recurrent_sum.total(queries, keys, v, sums)
        return self._scaled(heads, seen[:, None] + 1), (sums, seen + 1)

    def _scaled(
        self, sums: Float[Tensor, "b h n e"], seen: Int[Tensor, "#b #n"]
    ) -> Float[Tensor, "b h n e"]:
        """Return the sums times R^(-sigmoid(m))."""
        power = self.power.to(sums.dtype).sigmoid()[:, None, None]
        return sums * seen.to(sums.dtype)[:, None, :, None] ** -power

    def _seen(
        self, v: Float[Tensor, "b h m e"], mask: Bool[Tensor, "b m"] | None
    ) -> Int[Tensor, "#b #m"]:
        """Return R, the number of real tokens that each query sees, or 1 for none."""
        m = v.shape[-2]
        real = torch.ones(1, m, dtype=torch.bool, device=v.device) if mask is None else mask
        seen = real.cumsum(1) if self.size.causal else real.sum(1, keepdim=True)
        return seen.clamp_min(1)
