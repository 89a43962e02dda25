"""Predictions from measurements of `harness cost`, and grids of runs by `harness run`."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.runner import Runner
from harness.cli.cost import measure_all
from harness.records.cost import CostRecord
from harness.records.fields import Quartiles
from harness.records.frame import of_costs
from reports.advice.rules import between
from reports.layer_costs import DEPTHS, Model, of_model

ATTENTION, PRECISION = "primal", "fp32"

SMALLEST = 1e-6
"""The smallest error that is told from none: a record has no ratio of 0."""

Shape = tuple[int, int, int]
"""Depth, width, tokens."""

USED: Sequence[Shape] = [(d, w, n) for d in DEPTHS for w in (32, 128) for n in (256, 1024)]

OTHERS: Sequence[Shape] = [
    (2, 32, 256), (3, 128, 256), (6, 32, 1024), (8, 128, 1024), (2, 64, 256), (3, 96, 1024),
    (6, 64, 1024), (2, 128, 512), (4, 64, 512), (8, 96, 512),
]  # fmt: skip


def measure_prediction(runner: Runner) -> None:
    """How far the costs that `harness advise --depth --width` predicts are from measured ones.

    Models of two depths, two widths and two lengths are measured, and ten others are predicted from
    them: deeper ones, and ones of widths and lengths in between.
    """
    shapes = [*USED, *OTHERS[: runner.size(10, 1)]]
    # The training step of each model.
    specs = [
        runner.costs(
            [ATTENTION], [length], level="step", dim=width, heads=max(1, width // 32),
            precision=PRECISION, settings={"model": {"depth": depth}},
        )[0]
        for depth, width, length in shapes
    ]  # fmt: skip
    with TemporaryDirectory() as folder:
        records, _ = measure_all(specs, Path(folder), runner.sampling, 300.0, rerun=True)
    by_id = {record.spec.id: record for record in records}
    measured = [by_id[spec.id] for spec in specs]
    used, others = measured[: len(USED)], measured[len(USED) :]
    errors = [errors_of(used, other) for other in others]
    how = (
        f"{ATTENTION}, {PRECISION}, one sample; from {len(used)} models, of {len(others)} others; "
        f"{runner.sampling:g} s of sampling each"
    )
    for name, values in zip(("time", "memory"), zip(*errors, strict=True), strict=True):
        figures = {f"largest, {name}": Quartiles.of([max(values)])}
        runner.record(f"prediction-{name}", how, values, figures)


def errors_of(used: Sequence[CostRecord], other: CostRecord) -> tuple[float, float]:
    """The relative errors of time and memory of a model that is not among the used ones."""
    assert other.spec.model is not None
    model = Model(other.spec.model.depth, other.spec.dim)
    (actual,) = of_costs([other]).to_dict("records")
    predicted = of_model(of_costs(used), model, PRECISION).sort_values("length")
    points = predicted[["length", "seconds", "memory"]].to_numpy().tolist()
    seconds, memory = between(points, other.spec.length) or (0.0, 0.0)
    of_sample = actual["memory"] / actual["memory_batch"]
    time_error, memory_error = abs(seconds / actual["seconds"] - 1), abs(memory / of_sample - 1)
    return max(SMALLEST, time_error), max(SMALLEST, memory_error)


RUNS, STEPS = 16, 300


def measure_workers(runner: Runner) -> None:
    """Two workers of one thread against one of two threads: `harness run` on a grid of runs."""
    # One round: the grid is long enough for short load to average out.
    count, steps = runner.size(RUNS, 2), runner.size(STEPS, 2)
    how = f"primal on listops, recipe laptop with {steps} steps, {count} seeds; 1 round"
    if (os.cpu_count() or 1) < 2:
        runner.skip("*", how, "there is one CPU")
        return
    with TemporaryDirectory() as store:
        # The data are in the cache after the first run, and the baselines in the store.
        grid_seconds(store, 1, steps, workers=1, threads=2)
        one_worker = grid_seconds(store, count, steps, workers=1, threads=2)
        two_workers = grid_seconds(store, count, steps, workers=2, threads=1)
    figures = {
        "two workers of one thread (s)": Quartiles.of([two_workers]),
        "one worker of two threads (s)": Quartiles.of([one_worker]),
    }
    runner.record("two-workers", how, [two_workers / one_worker], figures)


def grid_seconds(store: str, count: int, steps: int, *, workers: int, threads: int) -> float:
    """Seconds of one command that trains `count` seeds, with its start.

    The records that `store` holds before are deleted, and its baselines kept.
    """
    command = [
        sys.executable, "-m", "harness.cli", "run", "--task", "listops", "--attention",
        "primal", "--seeds", ",".join(map(str, range(count))), "--set", f"train.steps={steps}",
        "--workers", str(workers), "--threads", str(threads), "--device", "cpu",
        "--store", store,
    ]  # fmt: skip
    for record in Path(store).glob("*.json"):
        record.unlink()
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    if len(list(Path(store).glob("*.json"))) != count:
        raise RuntimeError(f"the grid ended without {count} records")
    return seconds
