"""Convolution in place of attention: the baseline that mixes near tokens only.

A depth-wise separable convolution, as in Chollet, "Xception: Deep Learning with Depthwise Separable
Convolutions", 2016, arXiv 1610.02357, with T taps and c channels, linear in its input:

    out_i = W_o (sum_t taps_t * v_(i + t - T // 2)) + b_o        v = W_v x + b_v, (n, c)
    out_i = W_o (sum_t taps_t * v_(i + t - T + 1)) + b_o         causal

The product with the taps, (T, c), is by channel; v is zero outside of the sequence. The weights of
a token's neighbours are parameters: they depend on the distance and on no content. Two layers of 16
taps reach 31 tokens. Time O(n d^2 + n d T).

The number of channels is the largest with which the layer has at most the parameters of softmax
attention, 4 d^2 + 4 d: at width 64 and 16 taps c = 114, and 16,594 parameters where softmax has
16,640.

An attention variant is evidence of attention only if it is more accurate than this baseline. The
convolution runs over real tokens, as if there were no padding between them.
"""

import torch
from torch import nn

from zoo.contract import Attended, Attention, Context, Count, Mask, Size, State, Tokens, Traits
from zoo.projection import convolve, convolve_after
from zoo.variants import variants


@variants.register("conv")
class Convolution(Attention):
    """A depth-wise convolution of the values over tokens, between two projections."""

    version = "1.0"
    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=True)
    family = "no attention"
    is_baseline = True

    def __init__(self, size: Size, *, taps: Count = 16) -> None:
        """`taps`: T, the tokens that an output depends on."""
        super().__init__(size)
        softmax = 4 * size.dim**2 + 4 * size.dim
        channels = max(1, (softmax - size.dim) // (2 * size.dim + 1 + taps))
        self.value = nn.Linear(size.dim, channels)
        self.out = nn.Linear(channels, size.dim)
        self.taps = nn.Parameter(torch.empty(taps, channels).uniform_(-1, 1) * taps**-0.5)

    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        before = len(self.taps) - 1 if self.size.causal else len(self.taps) // 2
        return Attended(self.out(convolve(self.value(x), self.taps, before, mask)))

    def analytic_flops(self, n: int) -> int:
        return 4 * n * self.taps.shape[1] * self.size.dim

    def start(self, batch: int) -> State:
        # The values of the last T - 1 tokens.
        taps, channels = self.taps.shape
        return (self.zero_state(batch, taps - 1, channels),)

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        v = self.value(x)
        mixed, past = convolve_after(v, self.taps, state[0], real)
        return self.out(mixed.to(v.dtype)), (past,)
