"""Performer as performer-pytorch computes it; `performer` is corrected.

Choromanski et al., 2020, arXiv 2009.14794, by `performer_pytorch.FastAttention`. It adds an epsilon
of 1e-4 to the features of `zoo.variants.performer`, after stabilisation: at large inputs it is
larger than the features, and as the stabilisers are detached it makes gradients wrong. ListOps of
the suite `lra` falls after 125 steps with it, and rises without it (`epsilon`). The stabiliser of
the keys is one maximum over all tokens and features of a head.

Time O(n M e). Memory O(n M) per head; O(n M e) in the causal form, which without the package's
CUDA extension keeps a state for every token.

Padding is treated as in the package's layer: V is set to zero, and K is not. The package redraws
the projection in place every 1,000 training steps; here it is drawn once.
"""

from functools import partial
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from zoo.contract import Count, Keys, Mask, Queries, Size, Traits
from zoo.kernels.real_tokens import zero_padding
from zoo.packages import library, load, silence
from zoo.projected import ProjectedAttention
from zoo.variants import variants

# The number of blocks of tokens in the plain causal form. The result does not depend on it; with
# the package's 128 the graph takes half a minute to compile.
BLOCKS = 8


@variants.register("performer-lib")
class PerformerLib(ProjectedAttention):
    """`performer_pytorch.FastAttention` between projections.

    Args:
        features: M, the number of random features, drawn here by the package.
        epsilon: what is added to each feature; by default the package's.
    """

    version = "1.0"
    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=False)
    family = "kernel"
    requires = ("performer-pytorch",)
    backend_for = library
    expected_failures = MappingProxyType(
        {
            "large inputs, fp16": "the package computes exponentials in fp16: they overflow",
            "gradients": "an epsilon after a detached maximum: the relative error of derivatives "
            "is 8e-05, and 0.48 at inputs 5 times as large",
            "gradients, long inputs": "an epsilon after a detached maximum: the relative error of "
            "derivatives is 0.022, causal 0.016",
            "second derivatives": "an epsilon after a detached maximum: the error is 0.04",
            "padding invariance, long inputs": "V is zero at padding, K is not: the error is 0.15",
            "padding invariance": "V is zero at padding, K is not: the error is 0.14, causal 0.22",
            "truncation equivalence": "K counts at padding: the error is 0.27, causal 0.37",
            "cross-attention": "K counts at padding: the error is 0.32",
            "causality": "one maximum over the keys of all tokens: past outputs change by 0.22",
            "causality, long inputs": "one maximum over the keys of all tokens: past outputs "
            "change by 0.19",
            "export, causal": f"the package has a loop over {BLOCKS} blocks: fewer tokens raise",
            "causality, fp32": "one maximum over the keys of all tokens: 97461 past outputs change",
        }
    )

    def __init__(
        self, size: Size, *, features: Count = 256, epsilon: Annotated[float, Field(gt=0)] = 1e-4
    ) -> None:
        super().__init__(size)
        name = "performer_pytorch.performer_pytorch"
        package = load("performer-lib", name, "performer-pytorch")
        with silence():
            inner = package.FastAttention(size.head_dim, nb_features=features, causal=size.causal)
        self.kernel = partial(package.softmax_kernel, eps=epsilon)
        self.sums = inner.causal_linear_fn if size.causal else package.linear_attention
        plain = package.causal_linear_attention_noncuda
        if self.sums is plain:
            self.sums = partial(plain, chunk_size=BLOCKS)
        self.inner = inner

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        # `FastAttention.forward`, which has no argument for the epsilon.
        kernel = partial(self.kernel, projection_matrix=self.inner.projection_matrix)
        queries, keys = kernel(q, is_query=True), kernel(k, is_query=False)
        return self.sums(queries, keys, zero_padding(v, mask))
