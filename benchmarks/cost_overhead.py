"""What `harness cost` adds to the measurement of a cell: its process and its record."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.claims import Claim, Finding, Setting
from harness.cost.cell import measure_cell
from harness.cost.limits import measure_limits
from harness.cost.plan import CostRequest, cells
from harness.cost.process import measure_in_process
from harness.cost.sweep import sweep
from harness.measure import quartiles
from harness.records.cost import CostSpec, Limits, Measured
from harness.records.store import CostStore

SECONDS = 3.0
"""Of sampling for a cell: the default of `harness cost`."""

CLAIMS = [
    Claim(
        name="cost-overhead",
        what="Time of a cell of `harness cost` over that of measuring it within its process",
        bounds={"cpu": 1.05, "cuda": 1.05},
        limit="1 and the start of a process, which has torch imported already.",
    )
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`; the first cell starts the server of processes and is not counted."""
    lengths = [setting.size(length, length // 32) for length in (1024, 2048, 4096)]
    budget = 0.1 if setting.tiny else SECONDS
    specs = cells(
        CostRequest(
            attentions=["primal"], lengths=lengths, operations=["train"], level="layer",
            batching="1", dim=64, heads=2, causal=False, precision="fp32", device=setting.kind,
            settings={},
        )
    )  # fmt: skip
    limits = measure_limits(setting.device, "fp32", budget=budget / 3)
    with TemporaryDirectory() as folder:
        inside = Path(folder) / "seconds"
        measured = partial(
            measure_in_process,
            limits=limits,
            budget=budget,
            timeout=300.0,
            measure=partial(timed, inside),
        )
        whole, own = [], []
        for record, _ in sweep(specs, CostStore(Path(folder)), measured, rerun=True):
            whole.append(record.seconds)
            own.append(float(inside.read_text()))
    yield Finding(
        name="cost-overhead",
        setting=f"layers, training, N={lengths}; {budget:g} s of sampling a cell",
        ratios=[a / b for a, b in zip(whole[1:], own[1:], strict=True)],
        figures={
            "cell (s)": quartiles(whole[1:]),
            "within its process (s)": quartiles(own[1:]),
            "first cell (s)": quartiles(whole[:1]),
        },
    )


def timed(seconds: Path, spec: CostSpec, limits: Limits, budget: float, timeout: float) -> Measured:
    """Measure a cell, and write the seconds that it took to a file."""
    start = time.perf_counter()
    measured = measure_cell(spec, limits, budget, timeout)
    seconds.write_text(str(time.perf_counter() - start))
    return measured
