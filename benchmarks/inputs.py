"""Data: what loading, gathering and generating them add to training."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from benchmarks.claims import CLAIMS, Finding, Setting, Times, section, unmeasurable
from benchmarks.runs import FEW, fastest, plan_of, shape_of, trainer_of
from harness.records.fields import Quartiles
from harness.timing import sample, wall_clock
from tasks.contract import SPLITS
from tasks.data import cache
from tasks.data.sources import base_key
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.retrieval import TEXT_BYTES, Retrieval
from zoo.registry import UserError

GENERATED = ("listops", "pathfinder")
COMPLETE = ("text", "image", "retrieval")
"""Tasks whose data are loaded as they are published."""

PAPERS = 20_000
"""Random papers of the largest length that is stored: no fewer bytes than the real data."""


@section("loading")
def measure_loading(setting: Setting) -> Iterator[Finding]:
    """The data of the Long Range Arena: what loading them and gathering batches add to training.

    At the published recipe of `primal`. Splits of generated tasks are small here, since gathering a
    batch does not depend on their size; Retrieval is measured on random papers, in as many pairs as
    the real data have.
    """
    for task in (*GENERATED, *COMPLETE):
        try:
            if task == "retrieval":
                with random_papers(setting):
                    yield from measure_task(setting, task)
            else:
                yield from measure_task(setting, task)
        except UserError as error:
            names = [claim.name for claim in CLAIMS["loading"] if claim.name.endswith(f"-{task}")]
            yield from unmeasurable(names, f"{task}, budget paper", str(error))


def measure_task(setting: Setting, name: str) -> Iterator[Finding]:
    """The findings of a task; an error of a user where its data are missing."""
    options = {name: FEW} if name in GENERATED else {}
    plan = plan_of(setting, "primal", name, "paper", fastest(setting), options)
    trainer = trainer_of(plan, setting)
    calls = {
        "gather": lambda: trainer.train.gather(trainer.order.batch(0)),
        "step": lambda: trainer.step(0),
    }
    how = f"{shape_of(plan)}, {plan.spec.train.precision}"
    times = Times(calls, setting, rounds=3)
    yield times.finding(f"gather-{name}", "gather", "step", how)
    if name not in COMPLETE:
        return
    steps = plan.spec.train.steps
    loads = [seconds(lambda: [plan.task.load(split) for split in SPLITS]) for _ in range(3)]
    run = steps * Quartiles.of(times.seconds["step"]).median
    figures = {"load (s)": Quartiles.of(loads), **times.figures("step")}
    yield Finding(f"load-{name}", f"{how}, {steps:,} steps", [one / run for one in loads], figures)


@contextmanager
def random_papers(setting: Setting) -> Iterator[None]:
    """A cache that holds Retrieval with random papers, in as many pairs as the real data have."""
    generator = np.random.default_rng(0)
    papers = setting.size(PAPERS, 50)
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


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


WORKERS, BATCH = 2, 32


@section("pathfinder")
def measure_pathfinder(setting: Setting) -> Iterator[Finding]:
    """Time of generating Pathfinder's images, over that of training on them and of one process."""
    images = setting.size(2000, 20)
    few = {"train": 2 * BATCH, "dev": BATCH, "test": BATCH}
    settings = {"pathfinder": few, "train": {"batch": setting.size(BATCH, 4)}}
    plan = plan_of(setting, "primal", "pathfinder", "paper", fastest(setting), settings)
    trainer = trainer_of(plan, setting)
    (steps,) = sample([lambda: trainer.step(0)], wall_clock(setting.device), rounds=5)
    tenth = images // 10
    task = Pathfinder(train=images - 2 * tenth, dev=tenth, test=tenth)
    alone, together = [], []
    for _ in range(3):
        alone.append(seconds(lambda: task.generate_by(1)) / images)
        together.append(seconds(lambda: task.generate_by(WORKERS)) / images)
    training = Quartiles.of(one / plan.spec.train.batch for one in steps).median
    figures = {
        f"{WORKERS} processes (ms)": Quartiles.of(1000 * one for one in together),
        "one process (ms)": Quartiles.of(1000 * one for one in alone),
    }
    how = f"{images:,} images; {shape_of(plan)}, {plan.spec.train.precision}"
    yield Finding("pathfinder-generation", how, [one / training for one in together], figures)
    ratios = [b / a for a, b in zip(alone, together, strict=True)]
    yield Finding("pathfinder-processes", f"{images:,} images", ratios, figures)
