"""The data of the Long Range Arena: what loading them and gathering batches add to training.

At the published recipe of `primal`. Splits of generated tasks are small here, since gathering a
batch does not depend on their size; Retrieval is measured on random papers, in as many pairs as the
real data have.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Setting, unmeasurable
from benchmarks.workloads import FEW, fastest, plan_of, shape_of, trainer_of
from harness.measure import quartiles
from harness.plan import Plan
from tasks.contract import SPLITS
from tasks.data import cache
from tasks.data.sources import base_key
from tasks.lra.retrieval import TEXT_BYTES, Retrieval
from zoo.registry import UserError

GENERATED = ("listops", "pathfinder")
COMPLETE = ("text", "image", "retrieval")
"""Tasks whose data are loaded as they are published."""

PAPERS = 20_000
"""Random papers of the largest length that is stored: no fewer bytes than the real data."""

CLAIMS = [
    *(
        Claim(
            name=f"gather-{task}",
            what=f"Time of gathering a batch of {task} over that of a training step of primal",
            bounds={"cpu": 0.02, "cuda": 0.02},
            limit="One read and one write of the tokens of the batch, one byte or two each.",
        )
        for task in (*GENERATED, *COMPLETE)
    ),
    *(
        Claim(
            name=f"load-{task}",
            what=f"Time of loading all splits of {task} from the cache over that of the published "
            "number of training steps of primal",
            bounds={"cpu": 0.001, "cuda": 0.01},
            limit="The time of reading and decompressing the file.",
        )
        for task in COMPLETE
    ),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`; a task without its data has findings without ratios."""
    for task in (*GENERATED, *COMPLETE):
        try:
            if task == "retrieval":
                with random_papers(setting):
                    yield from measure_task(setting, task)
            else:
                yield from measure_task(setting, task)
        except UserError as error:
            names = [claim.name for claim in CLAIMS if claim.name.endswith(f"-{task}")]
            yield from unmeasurable(names, f"{task}, budget paper", str(error))


def measure_task(setting: Setting, name: str) -> Iterator[Finding]:
    """The findings of one task.

    Raises:
        UserError: its data are missing.
    """
    options = {name: FEW} if name in GENERATED else {}
    plan = plan_of(setting, "primal", name, "paper", fastest(setting), options)
    trainer = trainer_of(plan, setting)
    calls = {
        "gather": lambda: trainer.train.gather(trainer.order.batch(0)),
        "step": lambda: trainer.step(0),
    }
    how = f"{shape_of(plan)}, {plan.spec.train.precision}"
    times = AlternatingTimes(calls, setting, rounds=3)
    yield times.finding(f"gather-{name}", "gather", "step", how)
    if name in COMPLETE:
        yield loading(plan, times, how)


def loading(plan: Plan, times: AlternatingTimes, how: str) -> Finding:
    """The share of loading in the whole run."""
    steps = plan.spec.train.steps
    loads = [seconds(lambda: [plan.task.load(split) for split in SPLITS]) for _ in range(3)]
    run = steps * quartiles(times.seconds["step"]).median
    return Finding(
        name=f"load-{plan.spec.task.name}",
        setting=f"{how}, {steps:,} steps",
        ratios=[load / run for load in loads],
        figures={"load (s)": quartiles(loads), **times.figures("step")},
    )


@contextmanager
def random_papers(setting: Setting) -> Iterator[None]:
    """A cache that holds Retrieval with random papers, in as many pairs as the real data have."""
    generator = np.random.default_rng(0)
    papers = setting.size(PAPERS, 50)
    arrays = {
        "values": generator.integers(32, 127, papers * TEXT_BYTES, np.uint8),
        "ends": TEXT_BYTES * np.arange(1, papers + 1),
    }
    for split, count in Retrieval.source().examples.items():
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
