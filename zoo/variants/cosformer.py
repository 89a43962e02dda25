"""cosFormer: linear attention whose weights fall with distance like a cosine.

Qin et al., "cosFormer: Rethinking Softmax in Attention", ICLR 2022, arXiv 2202.08791, section 3
(ReLU features, and the re-weighting by cosines):

    w_ij = (relu(q_i) . relu(k_j)) cos(pi/2 (i - j) / M)
    out_i = sum_j w_ij v_j / sum_j w_ij

where j runs over the real tokens, and up to i in the causal form. With t_i = pi/2 i / M,

    cos(t_i - t_j) = cos t_i cos t_j + sin t_i sin t_j

so the weights are products of features [relu(x) cos t, relu(x) sin t], all of them nonnegative, as
0 <= t < pi/2: sums cancel nothing. Time O(n e^2) and memory O(n e) per head; the causal form adds
what `zoo.kernels.causal_sum` says.

Deviations: M is `max_len`, where the paper takes the length of the sequence at hand: then padding
would stretch the cosine, and in the causal form M itself would tell how much future there is.
Positions are ranks among the real tokens, so that padding moves none. The two agree on sequences
of full length without padding. The published code also keeps the denominator above 1e-6; here a
query whose every weight is zero, such as one without a positive coordinate, returns zero, and all
others get the formula. Self-attention only: between sequences `i - j` has no meaning.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.contract import Size, State, Traits, Unsupported
from zoo.kernels import causal_sum, recurrent_sum
from zoo.kernels.real_tokens import token_ranks
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants


@variants.register("cosformer")
class CosFormer(ProjectedAttention):
    """Attention with weights `(relu(q_i) . relu(k_j)) cos(pi/2 (i - j) / M)`, normalised over j.

    Axis letters beyond the contract's: `f` features, 2e of them.
    """

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    # fp32 at least: half precision cannot tell neighbouring angles of a long sequence apart.
    upcast = True

    def __init__(self, size: Size, *, chunk: int = 128) -> None:
        """Keep the options.

        Args:
            size: what every variant is built from; `max_len` is M.
            chunk: tokens of a causal block; the result does not depend on it.

        Raises:
            UserError: `chunk` below 1.
        """
        super().__init__(size)
        require_at_least(1, "cosformer", chunk=chunk)
        self.chunk = chunk

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h n e"],
        v: Float[Tensor, "b h n e"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`.

        Raises:
            Unsupported: there are more tokens than `max_len`: cosines would be negative.
        """
        n, most = q.shape[-2], self.size.max_len
        if n > most:
            raise Unsupported(
                f"cosformer built for {most} tokens got {n}; build it with max_len={n}"
            )
        rank = torch.arange(n, device=q.device)[None] if mask is None else token_ranks(mask)
        angle = self._angles(rank, q.dtype)
        queries, keys = features(q, angle), features(k, angle)
        if mask is not None:
            keys = keys.masked_fill(~mask[:, None, :, None], 0.0)
        return causal_sum.mean(queries, keys, v, self.size.causal, self.chunk)

    def begin(self, batch: int) -> State:
        """See `ProjectedAttention.begin`: sums of features and [v_j, 1]^T, and the tokens seen."""
        heads, width = self.size.heads, self.size.head_dim
        return self.zero_state(batch, heads, 2 * width, width + 1), self.zero_state(batch).long()

    def recur(
        self,
        q: Float[Tensor, "b h 1 e"],
        k: Float[Tensor, "b h 1 e"],
        v: Float[Tensor, "b h 1 e"],
        state: State,
    ) -> tuple[Float[Tensor, "b h 1 e"], State]:
        """See `ProjectedAttention.recur`; tokens beyond `max_len` stand where the last one does."""
        sums, seen = state
        angle = self._angles(seen[:, None].clamp_max(self.size.max_len - 1), q.dtype)
        heads, sums = recurrent_sum.mean(features(q, angle), features(k, angle), v, sums)
        return heads, (sums, seen + 1)

    def _angles(self, rank: Int[Tensor, "#b n"], dtype: torch.dtype) -> Float[Tensor, "#b 1 n 1"]:
        """Return t, from 0 at the first real token to less than pi/2."""
        return (rank.to(dtype) * (math.pi / 2 / self.size.max_len))[:, None, :, None]


def features(
    x: Float[Tensor, "b h n e"], angle: Float[Tensor, "#b 1 n 1"]
) -> Float[Tensor, "b h n f"]:
    """Return [relu(x) cos t, relu(x) sin t]."""
    x = x.relu()
    return torch.cat([x * angle.cos(), x * angle.sin()], dim=-1)
