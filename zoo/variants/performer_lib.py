"""Performer as performer-pytorch computes it; `performer` is the same mechanism, mended.

Choromanski et al., 2020, arXiv 2009.14794, by `performer_pytorch.FastAttention`. Beside the
features of `zoo.variants.performer` stands an epsilon of 1e-4, added behind the stabilisers: at
large inputs it swamps the features, and as the stabilisers are detached it makes gradients wrong.
The stabiliser of the keys is one maximum over all tokens and features of a head.

Time O(n M e). Memory O(n M) per head; O(n M e) in the causal form, which without the package's
CUDA extension keeps a state for every token.

Padding goes to the package as its own layer gives it: V is zeroed, and K is not. The package
redraws the projection in place every 1,000 training steps; here it stays as drawn.
"""

from functools import partial
from types import MappingProxyType

from jaxtyping import Bool, Float
from torch import Tensor

from zoo.contract import Size, Traits
from zoo.packages import load, silence
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants

BLOCKS = 8
"""Into how many the plain causal form cuts the tokens. The result does not depend on it; with the
package's 128 the graph takes half a minute to compile."""


@variants.register("performer-lib")
class PerformerLib(ProjectedAttention):
    """`performer_pytorch.FastAttention` between projections."""

    traits = Traits(causal=True, cross=True, linear=True, stochastic=False, recurrent=False)
    expected_failures = MappingProxyType(
        {
            "gradients": "an epsilon behind a detached maximum: derivatives are off by a "
            "fraction of 8e-05, at inputs 5 times as loud of 0.48",
            "padding invariance": "V is zeroed at padding, K is not: outputs move by 0.14, causal 0.22",
            "truncation equivalence": "K counts at padding: outputs are off by 0.27, causal 0.37",
            "cross-attention": "K counts at padding: outputs move by 0.32",
            "causality": "the keys share a maximum over all tokens: the past moves by 0.22",
            "causality, fp32": "the keys share a maximum over all tokens: 38050 entries of "
            "the past move",
        }
    )

    def __init__(self, size: Size, *, features: int = 256) -> None:
        """Let the package draw its projection.

        Args:
            size: what every variant is built from.
            features: M, the number of random features.

        Raises:
            UserError: `features` below 1.
            Unsupported: performer-pytorch cannot be imported.
        """
        super().__init__(size)
        require_at_least(1, "performer-lib", features=features)
        name = "performer_pytorch.performer_pytorch"
        package = load("performer-lib", name, "performer-pytorch")
        with silence():
            inner = package.FastAttention(size.head_dim, nb_features=features, causal=size.causal)
        plain = package.causal_linear_attention_noncuda
        if size.causal and inner.causal_linear_fn is plain:
            inner.causal_linear_fn = partial(plain, chunk_size=BLOCKS)
        self.inner = inner

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        if mask is not None:
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        return self.inner(q, k, v)
