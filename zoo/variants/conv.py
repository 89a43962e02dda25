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
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Attended, Attention, Context, Count, Mask, Size, State, Token, Tokens
from zoo.kernels.real_tokens import with_real_tokens_first
from zoo.traits import Traits
from zoo.variants import variants


@variants.register("conv")
class Convolution(Attention):
    """A depth-wise convolution of the values over tokens, between two projections.

    Axis letters beyond the contract's: `c` channels, `t` taps.
    """

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

    def forward(
        self, x: Tokens, context: Context | None = None, mask: Mask | None = None
    ) -> Attended:
        """See `Attention.forward`."""
        self.require_self(x, context)
        v = self.value(x)
        if mask is None:
            return Attended(self.out(self.convolve(v)))
        v = torch.where(mask[..., None], v, 0.0)
        # Padded tokens come last, with values of zero.
        mixed = with_real_tokens_first(lambda v, _: self.convolve(v), mask, v)
        return Attended(self.out(mixed))

    def convolve(self, v: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        """The weighted sum of the tokens around each token, or before it, by channel."""
        taps, channels = self.taps.shape
        before = taps - 1 if self.size.causal else taps // 2
        padded = F.pad(v.mT, (before, taps - 1 - before))
        return F.conv1d(padded, self.taps.mT[:, None], groups=channels).mT

    def analytic_flops(self, n: int) -> int:
        """See `Attention.analytic_flops`: the two projections, and the taps."""
        taps, channels = self.taps.shape
        return 2 * n * channels * (2 * self.size.dim + taps)

    def start(self, batch: int) -> State:
        """See `Attention.start`: the values of the last T - 1 tokens."""
        taps, channels = self.taps.shape
        return (self.zero_state(batch, taps - 1, channels),)

    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """See `Attention.step`."""
        v = self.value(x)[:, None]
        values = torch.cat([state[0], v.to(state[0].dtype)], dim=1)
        mixed = (values * self.taps).sum(1)
        return self.out(mixed.to(v.dtype)), (values[:, 1:],)
