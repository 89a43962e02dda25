"""Data: what loading, gathering and generating them add to training."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import numpy as np

from benchmarks.runner import GENERATED, Runner, first_batch, milliseconds, per, shape_of
from harness.costs.work import training_call
from harness.data import restore
from harness.records.fields import Quartiles
from tasks.contract import SPLITS
from tasks.data import cache
from tasks.data.sources import base_key
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.retrieval import TEXT_BYTES, Retrieval
from zoo.registry import UserError

PAPERS = 20_000
"""Random papers of the largest length that is stored: no fewer bytes than the real data."""


def measure_loading(runner: Runner) -> None:
    """The data of the Long Range Arena: what loading them and gathering batches add to training.

    At the published recipe of `primal`. Splits of generated tasks are small here, since gathering a
    batch does not depend on their size; Retrieval is measured on random papers, in as many pairs as
    the real data have.
    """
    for task in runner.subjects:
        with random_papers(runner) if task == "retrieval" else nullcontext():
            try:
                measure_task(runner, task)
            except UserError as error:
                runner.skip(f"{task}, *", f"{task}, recipe paper", str(error))


def measure_task(runner: Runner, name: str) -> None:
    """The claims about a task; an error of a user where its data are missing."""
    spec = runner.plan("primal", name, "paper")
    trainer = runner.trainer(spec)
    calls = {
        f"{name}, gathering": lambda: first_batch(trainer),
        f"{name}, step": training_call(trainer),
    }
    how = f"{shape_of(spec)}, {spec.train.precision}"
    step = runner.compare(calls, how, rounds=3)[f"{name}, step"]
    if name in GENERATED:
        return
    loads = [runner.clock(lambda: [*map(restore(spec).task.load, SPLITS)], 1) for _ in range(3)]
    run = spec.train.steps * Quartiles.of(step).median
    figures = {"load (s)": Quartiles.of(loads), **milliseconds({"step": step})}
    how += f", {spec.train.steps:,} steps"
    runner.record(f"load-{name}", how, per(Quartiles.of(loads), run), figures)


@contextmanager
def random_papers(runner: Runner) -> Iterator[None]:
    """A cache that holds Retrieval with random papers, in as many pairs as the real data have."""
    generator = np.random.default_rng(0)
    papers = runner.size(PAPERS, 50)
    arrays = {
        "values": generator.integers(32, 127, papers * TEXT_BYTES, np.uint8),
        "ends": TEXT_BYTES * np.arange(1, papers + 1),
    }
    for split, count in Retrieval.source.examples.items():
        arrays[f"{split}_pairs"] = generator.integers(0, papers, (count, 2), np.int32)
        arrays[f"{split}_targets"] = generator.integers(0, 2, count, np.uint8)
    with (
        tempfile.TemporaryDirectory() as home,
        patch.dict(os.environ, {cache.HOME_VARIABLE: home}),
    ):
        cache.write(base_key(Retrieval), arrays)
        yield


WORKERS, BATCH = 2, 32


def measure_pathfinder(runner: Runner) -> None:
    """Time of generating Pathfinder's images, relative to training on them and to one process."""
    images = runner.size(2000, 20)
    batch = runner.size(BATCH, 4)
    spec = runner.plan("primal", "pathfinder", "paper", train={"batch": batch})
    steps = runner.seconds({"step": training_call(runner.trainer(spec))}, rounds=5)["step"]
    tenth = images // 10
    task = Pathfinder(train=images - 2 * tenth, dev=tenth, test=tenth)
    alone, together = [], []
    for _ in range(3):
        alone.append(runner.clock(lambda: task.generate(1), 1) / images)
        together.append(runner.clock(lambda: task.generate(WORKERS), 1) / images)
    training = Quartiles.of(steps).median / batch
    figures = milliseconds({f"{WORKERS} processes": together, "one process": alone})
    how = f"{images:,} images; {shape_of(spec)}, {spec.train.precision}"
    runner.record("pathfinder-generation", how, per(Quartiles.of(together), training), figures)
    ratio = Quartiles.of_ratio(together, alone)
    runner.record("pathfinder-processes", f"{images:,} images", ratio, figures)
