"""Longformer: a sliding window, and a few tokens with global attention.

Beltagy, Peters, Cohan, "Longformer: The Long-Document Transformer", 2020, arXiv 2004.05150, section
3.1. With window w, g global tokens, positions that count from 0, and j over real tokens,

    out_i = softmax over j in S_i of (q_i . k_j / sqrt(e)) v_j         i >= g
    S_i = {j : |i - j| <= w or j < g}
    out_i = softmax over all j of (q'_i . k'_j / sqrt(e)) v'_j         i < g

where q', k', v' have separate projections. Time O(n (w + g) e) per head and memory O(n (w + g)) per
sample: `zoo.kernels.window`.

Deviations: the first g real tokens are global, where the paper chooses them by the task (of its
choices, the class token). Positions are ranks among the real tokens of a sample. `window` counts
one side, where the paper's 512 counts both. No dilated windows, which the paper has in its
autoregressive models alone, and no causal form. The projections of global attention are initialised
at random, where the paper copies pretrained local ones. A sample without real tokens attends to
nothing.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Count, Natural, Size, Tokens, Traits
from zoo.kernels.window import RealCount, windowed_attention
from zoo.projection import ShortConvolution
from zoo.recompute import sample_by_sample
from zoo.spans import RealTokensFirst
from zoo.variants import variants
from zoo.variants.softmax import FUSED


@variants.register("longformer")
class Longformer(RealTokensFirst):
    """Softmax attention to a window and to global tokens, which attend to all tokens.

    Axis letter beyond the contract's: `p` projections that are computed at once.

    Args:
        window: w, the tokens of the window on each side; from n - 1 on, and without global
            tokens, the result is softmax attention.
        global_tokens: g; 0 for the window alone.
        separate: whether global attention has separate projections, as in the paper, with
            d (3 d + 3) more parameters.
    """

    version = "1.0"
    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    family = "sparse"
    gpu_kernels = FUSED
    drops_weights = True

    def __init__(
        self, size: Size, *, window: Count = 64, global_tokens: Natural = 1, separate: bool = True
    ) -> None:
        super().__init__(size)
        self.window, self.global_tokens = window, global_tokens
        dim, self.separate = size.dim, separate and global_tokens > 0
        self.local, self.local_conv = nn.Linear(dim, 3 * dim), ShortConvolution(size, 3 * dim)
        if self.separate:
            self.global_query = nn.Linear(dim, dim)
            self.global_query_conv = ShortConvolution(size, dim)
            self.global_context = nn.Linear(dim, 2 * dim)
            self.global_context_conv = ShortConvolution(size, 2 * dim)
        self.out = nn.Linear(size.dim, size.dim)

    def attend_ordered(self, x: Tokens, count: RealCount) -> Tokens:
        real = torch.arange(x.shape[1], device=x.device) < count[:, None]
        real = real.expand(x.shape[:2])
        q, k, v = self._split(self.local_conv(self.local(x), real), 3)
        q, k = self.apply_rotary(q), self.apply_rotary(k)
        first = min(self.global_tokens, x.shape[1])
        dropout = self.size.dropout if self.training else 0.0
        attend = partial(
            windowed_attention, window=self.window, global_tokens=first, dropout=dropout
        )
        heads = sample_by_sample(attend, q, k, v, count)
        if first:
            q = q[:, :, :first]
            if self.separate:
                query = self.global_query_conv(self.global_query(x), real)
                context = self.global_context_conv(self.global_context(x), real)
                (q,), (k, v) = self._split(query[:, :first], 1), self._split(context, 2)
                q, k = self.apply_rotary(q), self.apply_rotary(k)
            full = F.scaled_dot_product_attention(
                q, k, v, attn_mask=real[:, None, None], dropout_p=dropout
            )
            heads = heads.slice_scatter(full, 2, 0, first)
        return self.out(heads.transpose(1, 2).flatten(-2))

    def _split(self, tokens: Float[Tensor, "b n pd"], count: int) -> list[Tensor]:
        shape = count, self.size.heads, self.size.head_dim
        return list(tokens.unflatten(-1, shape).permute(2, 0, 3, 1, 4))
