"""Every variant as a layer, forward and backward: 16,384 tokens at N=4096, D=64, fp32.

SDPA computes its weights again in the backward pass, so its memory is linear in N.
"""

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.claims import Claim, Finding, Setting, same
from benchmarks.layer import both_passes, outputs
from benchmarks.turns import Turns
from zoo.contract import Size
from zoo.cost import peak_bytes
from zoo.variants import variants

MEMORY = {
    "none": None, "primal": 1.0, "linear": 1.0, "cosformer": 1.0, "cosine": 1.0, "flowformer": 1.0,
    "performer": 1.0, "retention": 1.0, "local": 1.0, "gated-linear": 1.0, "nystrom": 2.0,
    "soft": 2.0, "linformer": 2.0, "longformer": 2.0, "reformer": 2.0, "yoso": 2.0,
}  # fmt: skip
"""Bounds of memory over that of SDPA softmax."""

TIME = {"gated-linear": 0.25}
"""Bounds of time over that of SDPA softmax; other variants are for comparison."""

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
    """See `CLAIMS`; each variant alternates with SDPA softmax."""
    batch, length = setting.size(4, 1), setting.size(4096, 64)
    size = Size(dim=64, heads=2, max_len=length, causal=False, dropout=0.0)
    shape = f"B={batch} N={length} D={size.dim} H={size.heads}, fp32, default options"
    x = torch.randn(batch, length, size.dim, device=setting.device, requires_grad=True)

    def call_of(name, **options):
        torch.manual_seed(0)
        layer = variants.find(name)(size, **options).to(setting.device)
        return both_passes(layer, x, partial(outputs, layer, x))

    sdpa = call_of("softmax", backend="sdpa")
    sdpa()
    reference = peak_bytes(sdpa, setting.device)
    for name in MEMORY:
        call = call_of(name)
        turns = Turns({name: call, "softmax": sdpa}, setting, rounds=5)
        peak = peak_bytes(call, setting.device)
        figures = {f"{name} (MiB)": peak / 2**20, "softmax (MiB)": reference / 2**20}
        yield same(f"memory-{name}", shape, peak / reference, figures)
        yield turns.finding(f"time-{name}", name, "softmax", shape)
