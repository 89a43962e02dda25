"""How far the costs that `harness advise --depth --width` predicts are from measured ones.

Models of two depths, two widths and two lengths are measured, and ten others are predicted from
them: deeper ones, and those of widths and lengths in between.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.claims import Claim, Finding, Setting
from harness.cost.limits import measure_limits
from harness.cost.plan import CostRequest, cells
from harness.cost.process import measure_in_process
from harness.cost.sweep import sweep
from harness.measure import quartiles
from harness.records.cost import CostRecord, CostSpec
from harness.records.frame import of_costs
from harness.records.store import CostStore
from reports.advice.rules import between
from reports.prediction import DEPTHS, Model, of_model

SECONDS = 3.0
"""Of sampling for a measurement: the default of `harness cost`."""

ATTENTION, PRECISION = "primal", "fp32"

SMALLEST = 1e-6
"""The smallest error that is told from none."""

Shape = tuple[int, int, int]
"""Depth, width, tokens."""

USED: Sequence[Shape] = [(d, w, n) for d in DEPTHS for w in (32, 128) for n in (256, 1024)]

OTHERS: Sequence[Shape] = [
    (2, 32, 256), (3, 128, 256), (6, 32, 1024), (8, 128, 1024), (2, 64, 256), (3, 96, 1024),
    (6, 64, 1024), (2, 128, 512), (4, 64, 512), (8, 96, 512),
]  # fmt: skip

CLAIMS = [
    Claim(
        name=f"prediction-{what}",
        what=f"Difference of predicted and measured {what} of a training step, over the latter",
        bounds={"cpu": 0.15},
        limit="The noise of both measurements.",
    )
    for what in ("time", "memory")
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    budget = 0.1 if setting.tiny else SECONDS
    used, others = USED, OTHERS[: setting.size(10, 1)]
    limits = measure_limits(setting.device, PRECISION, budget=budget / 3)
    measured = partial(measure_in_process, limits=limits, budget=budget, timeout=300.0)
    with TemporaryDirectory() as folder:
        specs = [spec_of(shape, setting.kind) for shape in (*used, *others)]
        records = sweep(specs, CostStore(Path(folder)), measured, rerun=True)
        by_id = {record.spec.id: record for record, _ in records}
    done = [by_id[spec.id] for spec in specs]
    errors = [_errors(done[: len(used)], record) for record in done[len(used) :]]
    for name, values in zip(("time", "memory"), zip(*errors, strict=True), strict=True):
        yield Finding(
            name=f"prediction-{name}",
            setting=f"{ATTENTION}, {PRECISION}, one sample; from {len(used)} models, of "
            f"{len(others)} others; {budget:g} s of sampling each",
            ratios=values,
            figures={f"largest, {name}": quartiles([max(values)])},
        )


def spec_of(shape: Shape, kind: str) -> CostSpec:
    """The measurement of a training step of a model."""
    depth, width, length = shape
    request = CostRequest(
        attentions=[ATTENTION], lengths=[length], operations=["train"], level="step",
        batching="1", dim=width, heads=max(1, width // 32), causal=False, precision=PRECISION,
        device="cpu" if kind == "cpu" else "cuda", settings={"model": {"depth": depth}},
    )  # fmt: skip
    return next(spec for spec in cells(request) if spec.attention == ATTENTION)


def _errors(used: Sequence[CostRecord], other: CostRecord) -> tuple[float, float]:
    """The relative errors of time and memory of a model that is not among the used ones."""
    assert other.spec.model is not None
    model = Model(other.spec.model.depth, other.spec.dim)
    (actual,) = of_costs([other]).to_dict("records")
    predicted = of_model(of_costs(used), model, PRECISION).sort_values("length")
    points = predicted[["length", "seconds", "memory"]].to_numpy().tolist()
    seconds, memory = between(points, other.spec.length) or (0.0, 0.0)
    of_sample = actual["memory"] / actual["memory_batch"]
    # A record has no ratio of 0.
    return max(SMALLEST, abs(seconds / actual["seconds"] - 1)), max(
        SMALLEST, abs(memory / of_sample - 1)
    )
