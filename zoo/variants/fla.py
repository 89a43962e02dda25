"""Layers of flash-linear-attention, for machines with triton, CUDA and the package.

Each is the package's layer with its projections, gates and norms, at the width and the heads of the
other variants; key and value widths are the package's defaults:

    fla-gla             Yang et al., 2023, arXiv 2312.06635
    fla-deltanet        Yang et al., 2024, arXiv 2406.06484
    fla-gated-deltanet  Yang, Kautz, Hatamizadeh, 2024, arXiv 2412.06464
    fla-retention       Sun et al., 2023, arXiv 2307.08621

All are recurrences over tokens, in time and memory O(n): causal with and without `Size.causal`.
Padding goes to the package as its mask, which removes padded tokens from the sequence.
"""

from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import torch

from zoo.contract import Attended, Attention, Context, Mask, Size, Tokens, Traits, Unsupported
from zoo.packages import library, load
from zoo.variants import variants


def missing_requirement() -> str:
    for module, package in (("fla", "flash-linear-attention"), ("triton", "triton")):
        if find_spec(module) is None:
            return f"{package} is not installed; pip install {package}"
    if not torch.cuda.is_available():
        return "its kernels need a CUDA device, and there is none; run it on one"
    return ""


class FlashLinear(Attention):
    """The layer of `fla.layers` that has the name of the subclass."""

    traits = Traits(causal=True, cross=False, linear=True, stochastic=False, recurrent=False)
    family = "decay"
    gpu_kernels = MappingProxyType(dict.fromkeys((False, True), "flash-linear-attention"))
    requires = ("CUDA", "flash-linear-attention", "triton")
    unchecked = "its kernels need CUDA and have no double precision; see tests/gpu"
    backend_for = library

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        if size.short_conv:
            raise Unsupported(f"{self.name()} has the convolutions of its package; leave out "
                              f"short_conv={size.short_conv}")  # fmt: skip
        if reason := missing_requirement():
            raise Unsupported(f"{self.name()} cannot run here: {reason}")
        layers = load(self.name(), "fla.layers", "flash-linear-attention")
        build = getattr(layers, type(self).__name__)
        self.inner = build(hidden_size=size.dim, num_heads=size.heads, **self.widths(size))

    def widths(self, size: Size) -> dict[str, Any]:
        return {}

    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        tokens, *_ = self.inner(x, attention_mask=None if mask is None else mask.int())
        return Attended(tokens)


@variants.register("fla-gla")
class GatedLinearAttention(FlashLinear):
    """Linear attention with a data-dependent decay for each channel."""

    version = "1.0"


@variants.register("fla-deltanet")
class DeltaNet(FlashLinear):
    """Linear attention that replaces the value stored for a key: the delta rule."""

    version = "1.0"
    family = "delta rule"


@variants.register("fla-gated-deltanet")
class GatedDeltaNet(FlashLinear):
    """The delta rule with a data-dependent decay."""

    version = "1.0"
    family = "delta rule"

    def widths(self, size: Size) -> dict[str, Any]:
        return {"head_dim": size.head_dim}


@variants.register("fla-retention")
class MultiScaleRetention(FlashLinear):
    """Linear attention with a fixed decay for each head."""

    version = "1.0"
