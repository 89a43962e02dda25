"""Grids of runs by `harness.run`."""

import os
from tempfile import TemporaryDirectory

import harness
from benchmarks.runner import Runner, per
from harness.records.fields import Quartiles

RUNS, STEPS = 16, 300


def measure_workers(runner: Runner) -> None:
    """Two workers of one thread against one of two threads: `harness run` on a grid of runs."""
    # One round: the grid is long enough for short load to average out.
    count, steps = runner.size(RUNS, 2), runner.size(STEPS, 2)
    how = f"primal on listops, recipe laptop with {steps} steps, {count} seeds; 1 round"
    if (os.cpu_count() or 1) < 2:
        runner.skip("*", how, "there is one CPU")
        return

    def grid(count: int, workers: int, threads: int) -> None:
        """Train `count` seeds in a new store."""
        with TemporaryDirectory() as store:
            runs = harness.run(
                "primal", "listops", range(count), train={"steps": steps}, workers=workers,
                threads=threads, device="cpu", store=store, cost=False,
            )  # fmt: skip
        if len(runs) != count or (runs["status"] != "ok").any():
            raise RuntimeError(f"the grid ended without {count} finished runs")

    grid(1, 1, 2)  # the data are in the cache afterwards
    one_worker, two_workers = (
        Quartiles.of([runner.clock(lambda how=how: grid(count, *how), 1)])
        for how in ((1, 2), (2, 1))
    )
    figures = {"two workers of one thread (s)": two_workers,
               "one worker of two threads (s)": one_worker}  # fmt: skip
    runner.record("two-workers", how, per(two_workers, one_worker.median), figures)
