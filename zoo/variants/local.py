"""Local attention: softmax over a sliding window around the query.

The local attention of Child et al., "Generating Long Sequences with Sparse Transformers", 2019,
arXiv 1904.10509, section 4.2, and of Beltagy et al., 2020, arXiv 2004.05150, section 3.1. With
window w, and j over real tokens,

    out_i = sum_{j in S_i} softmax_j(q_i . k_j / sqrt(e)) v_j
    S_i = {j : |i - j| <= w}            2w + 1 tokens
    S_i = {j : i - w <= j <= i}         w + 1 tokens, causal

Time O(n w e) per head and memory O(n w) per sample. It is computed as `sinks` without sinks.

Deviations: positions are ranks among the real tokens of a sample, so padding between two tokens
does not change their distance. A sample without real tokens returns zero.
"""

from zoo.contract import Count, Size
from zoo.variants import variants
from zoo.variants.sinks import Sinks


@variants.register("local")
class Local(Sinks):
    """Softmax attention to the `window` tokens before a token, itself, and as many after it."""

    version = "1.0"
    identities = ()

    def __init__(self, size: Size, *, window: Count = 64) -> None:
        """`window`: w, the tokens of the window before the query, and after it unless causal.

        From n - 1 on, the result is softmax attention.
        """
        super().__init__(size, window=window, tokens=0)
