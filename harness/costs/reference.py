"""The reference of every cost: time of the fastest exact softmax, memory of SDPA softmax.

See docs/decisions/0045-the-fastest-softmax-is-the-reference.md.
"""

from collections.abc import Mapping

from harness.environment import memory_of
from harness.records.cost import CostSpec
from zoo.registry import Value, changed
from zoo.variants import variants

REFERENCE = "softmax"
"""The variant that every cost is compared with."""

SDPA, NAIVE = "sdpa", "naive"
"""Its backends: the fused kernels, whose memory is compared with; the formula."""

BACKENDS: Mapping[str, tuple[str, ...]] = {"cpu": (SDPA, NAIVE), "cuda": (SDPA, NAIVE, "xformers")}
"""Its exact implementations by kind of device."""

WEIGHTS = 3
"""Tensors of the size of the weights of all layers that the formula has in memory, about."""

SHARE = 0.25
"""Share of the memory of the machine that these may take, at most."""

Options = dict[str, dict[str, Value]]


def reference_of(spec: CostSpec, backend: str = SDPA) -> CostSpec:
    """The measurement of softmax, by a backend, that `spec` is compared with."""
    options = {REFERENCE: changed(variants.find(REFERENCE), {"backend": backend})}
    return spec.model_copy(update={"attention": REFERENCE, "options": options, "overrides": {}})


def softmax_by(backend: str, options: Options) -> Options:
    """Options by variant, with that backend in place of softmax's default, `auto`."""
    if "backend" in options.get(REFERENCE, {"backend": ""}):
        return options
    return {**options, REFERENCE: {**options[REFERENCE], "backend": backend}}


def candidates(spec: CostSpec) -> list[str]:
    """The backends to try; the formula only where its weights fit, a compiled model with SDPA."""
    weights = spec.batch * spec.heads * spec.length * (spec.model.depth if spec.model else 1)
    weights *= 1 if spec.operation == "decode" else spec.length
    needed = WEIGHTS * weights * (2 if spec.precision == "bf16" else 4)
    if spec.train and spec.train.compiled:
        # Each would be compiled; the compiler has a kernel for SDPA alone.
        return [SDPA]
    fits = needed <= SHARE * memory_of(spec.device)
    return [name for name in BACKENDS[spec.device] if name != NAIVE or fits]
