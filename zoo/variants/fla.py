"""Layers of flash-linear-attention, registered where they can run: triton, CUDA, the package.

Each is the package's own layer with its own projections, gates and norms, at the width and the
heads of the others; key and value widths are the package's defaults:

    fla-gla             Yang et al., 2023, arXiv 2312.06635
    fla-deltanet        Yang et al., 2024, arXiv 2406.06484
    fla-gated-deltanet  Yang, Kautz, Hatamizadeh, 2024, arXiv 2412.06464
    fla-retention       Sun et al., 2023, arXiv 2307.08621

All are recurrences over tokens, in time and memory O(n): causal whether `Size.causal` asks for it
or not. Padding goes to the package as its mask, which takes padded tokens out of the sequence.
"""

from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.contract import Attended, Attention, Size, Traits, Unsupported
from zoo.packages import load
from zoo.variants import variants


def absence() -> str:
    """Why the layers cannot run here; empty where they can."""
    for module, package in (("fla", "flash-linear-attention"), ("triton", "triton")):
        if find_spec(module) is None:
            return f"{package} is not installed; pip install {package}"
    if not torch.cuda.is_available():
        return "its kernels need a CUDA device, and there is none; run it on one"
    return ""


class FlashLinear(Attention):
    """A layer of `fla.layers`, called `layer` there."""

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=False)
    unchecked = "its kernels run on CUDA alone, and not in double precision; see tests/gpu"
    layer: ClassVar[str]

    def __init__(self, size: Size) -> None:
        """Build the package's layer.

        Raises:
            Unsupported: the package, triton or a CUDA device is missing.
        """
        super().__init__(size)
        if reason := absence():
            raise Unsupported(f"fla.layers.{self.layer} is not available here: {reason}")
        layers = load(self.layer, "fla.layers", "flash-linear-attention")
        build = getattr(layers, self.layer)
        self.inner = build(hidden_size=size.dim, num_heads=size.heads, **self.widths(size))

    def widths(self, size: Size) -> dict[str, Any]:
        """What the package's layer must be told beside its width and heads."""
        return {}

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m d"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Attended:
        """See `Attention.forward`."""
        self.require_self(x, context)
        mask = None if mask is None else mask.int()
        tokens, *_ = self.inner(x, attention_mask=mask)
        return Attended(tokens)


class GatedLinearAttention(FlashLinear):
    """Linear attention that forgets channel by channel, as the tokens say."""

    layer = "GatedLinearAttention"


class DeltaNet(FlashLinear):
    """Linear attention that overwrites what its key recalls."""

    layer = "DeltaNet"


class GatedDeltaNet(FlashLinear):
    """The delta rule, with a gate that forgets."""

    layer = "GatedDeltaNet"

    def widths(self, size: Size) -> dict[str, Any]:
        """The width of a head, which this layer does not take from the others."""
        return {"head_dim": size.head_dim}


class MultiScaleRetention(FlashLinear):
    """Linear attention that forgets at a fixed rate a head."""

    layer = "MultiScaleRetention"


LAYERS: dict[str, type[FlashLinear]] = {
    "fla-gla": GatedLinearAttention,
    "fla-deltanet": DeltaNet,
    "fla-gated-deltanet": GatedDeltaNet,
    "fla-retention": MultiScaleRetention,
}

_REASON = absence()
for name, layer in LAYERS.items():
    if _REASON:
        variants.withhold(name, _REASON)
    else:
        variants.register(name)(layer)
