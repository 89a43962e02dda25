"""Every variant as a layer, forward and backward: 16,384 tokens at N=4096, D=64, fp32.

SDPA computes its weights again in the backward pass, so its memory is linear in N.
"""

from collections.abc import Iterator

import torch

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Setting, same
from benchmarks.layer import both_passes
from zoo.contract import Size
from zoo.cost import peak_bytes
from zoo.variants import variants

MEMORY = {
    "none": None, "primal": 1.0, "linear": 1.0, "cosformer": 1.0, "cosine": 1.0, "flowformer": 1.0,
    "performer": 1.0, "retention": 1.0, "local": 1.0, "gated-linear": 1.0, "nystrom": 2.0,
    "soft": 2.0, "linformer": 2.0, "longformer": 2.0, "reformer": 2.0, "yoso": 2.0,
}  # fmt: skip
"""Bounds of memory over that of SDPA softmax."""

TIME = {
    "linear": 0.104, "cosformer": 0.119, "cosine": 0.11, "flowformer": 0.163, "performer": 0.311,
    "retention": 0.259, "local": 0.168, "gated-linear": 0.25,
}  # fmt: skip
"""Bounds of time over that of SDPA softmax: 1.1 times what was measured (AMD EPYC with AVX512, two
threads) before these variants computed again in the backward pass what they do not store, so that
less memory does not cost time; of gated-linear less. Other variants are for comparison."""

FLOOR = "The memory of `none`, which keeps nothing but its input and its output."


def _memory(name: str, bound: float | None) -> Claim:
    return Claim(
        name=f"memory-{name}",
        what=f"Peak memory of a layer of {name}, forward and backward, over that of SDPA softmax",
        bounds={"cpu": bound, "cuda": None},
        limit=FLOOR,
    )


def _time(name: str, bound: float | None) -> Claim:
    return Claim(
        name=f"time-{name}",
        what=f"Time of a layer of {name}, forward and backward, over that of SDPA softmax",
        bounds={"cpu": bound, "cuda": None},
        limit="The time of `none`, which has the projections alone.",
    )


CLAIMS = [
    *(_memory(name, bound) for name, bound in MEMORY.items()),
    *(_time(name, TIME.get(name)) for name in MEMORY),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`; all variants alternate with SDPA softmax."""
    batch, length = setting.size(4, 1), setting.size(4096, 64)
    size = Size(dim=64, heads=2, max_len=length, causal=False, dropout=0.0)
    shape = f"B={batch} N={length} D={size.dim} H={size.heads}, fp32, default options"
    x = torch.randn(batch, length, size.dim, device=setting.device, requires_grad=True)
    layers = {"softmax": variants.find("softmax")(size, backend="sdpa")}
    layers |= {name: variants.find(name)(size) for name in MEMORY}
    calls = {name: both_passes(layer.to(setting.device), x) for name, layer in layers.items()}
    times = AlternatingTimes(calls, setting, rounds=5)
    peaks = {name: peak_bytes(call, setting.device) for name, call in calls.items()}
    for name in MEMORY:
        figures = {f"{own} (MiB)": peaks[own] / 2**20 for own in (name, "softmax")}
        yield same(f"memory-{name}", shape, peaks[name] / peaks["softmax"], figures)
        yield times.finding(f"time-{name}", name, "softmax", shape)
