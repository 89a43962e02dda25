"""Claims about calls: steps of loops, what loading and generating data add to them, and grids."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain, repeat
from statistics import median
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import harness
from benchmarks.claims import Result, Setup
from benchmarks.costs import GENERATED, run_of
from harness.costs.plan import of_run
from harness.costs.work import trainer_of, training_call
from harness.data import data_of
from harness.records.fields import Quartiles
from harness.records.spec import RunSpec
from harness.timing import Call, sample, wall_clock
from harness.train import Trainer, autocast
from tasks.contract import SPLITS, Batch
from tasks.data import cache
from tasks.data.sources import base_key
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.retrieval import TEXT_BYTES, Retrieval
from tests.reports.simulated import figures
from zoo.registry import UserError

PAPERS = 20_000
"""Random papers of the largest length that is stored: no fewer bytes than the real data."""

Seconds = dict[str, list[float]]
"""Seconds of each call by name, in every round."""


def seconds_of(setup: Setup, calls: Mapping[str, Call], rounds: int) -> Seconds:
    """Seconds of each call in every round, timed alternately."""
    clock = wall_clock(torch.device(setup.kind))
    taken = sample([*calls.values()], clock, rounds=setup.size(rounds, 3))
    return dict(zip(calls, taken, strict=True))


def compared(setup: Setup, seconds: Seconds, setting: str) -> Iterator[Result]:
    """The claims about times of two of these calls, whose ratio is taken in each round."""
    for claim in setup.claims:
        if seconds.keys() >= {claim.of, claim.over}:
            of, over = seconds[claim.of], seconds[claim.over]
            how = f"{setting}; {len(of)} rounds, alternately"
            figures = milliseconds({claim.of: of, claim.over: over})
            yield Result(claim.name, how, Quartiles.of_ratio(of, over), figures)


def milliseconds(seconds: Seconds) -> dict[str, Quartiles]:
    """Figures of a record: the quartiles of seconds by name."""
    return {f"{name} (ms)": Quartiles.of(taken) / 1e-3 for name, taken in seconds.items()}


def trainer(run: RunSpec) -> Trainer:
    """The trainer of a run, with its training data on the device."""
    return trainer_of(of_run(run, "here", 1)[0])


def first_batch(trainer: Trainer) -> Batch:
    """The first batch in the order of training."""
    return trainer.train.gather(trainer.order.batch(0))


def shape_of(run: RunSpec) -> str:
    """Task, recipe, batch, length and precision in words."""
    step, _ = of_run(run, "here", 1)
    what = f"B={run.train.batch} N={step.length}, {run.train.precision}"
    return f"{run.task.name}, recipe {run.question.recipe}: {what}"


def of_loops(setup: Setup) -> Iterator[Result]:
    """The training step of the harness compared with plain PyTorch loops, on laptop ListOps."""
    which = setup, "primal", "listops", "laptop"
    run, eager = run_of(*which), trainer(run_of(*which, compiled=False))
    literal = trainer(run_of(*which, compiled=False, primal={"backend": "literal"}))
    batch, batches = first_batch(eager), loaded(literal)
    calls = {
        "harness": training_call(trainer(run)),
        # Its batch is gathered before.
        "plain loop": plain_step(eager, lambda: batch),
        "eager loop": plain_step(literal, lambda: next(batches)),
    }
    return compared(setup, seconds_of(setup, calls, 31), shape_of(run))


def plain_step(trainer: Trainer, next_batch: Callable[[], Batch]) -> Call:
    """A step of the model and the optimiser of a trainer in plain PyTorch, on the next batch."""

    def step() -> None:
        batch = next_batch()
        with autocast(trainer.device.type, trainer.spec.precision):
            scores, losses = trainer.model(batch)
        (F.cross_entropy(scores.float(), batch.targets) + losses["ksvd"]).backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    return step


def loaded(trainer: Trainer) -> Iterator[Batch]:
    """The batches of a DataLoader over the data of a trainer, without end."""
    train = trainer.train.to(torch.device("cpu"))
    every = train.gather(torch.arange(len(train)))
    data = TensorDataset(every.tokens, torch.as_tensor(every.mask), every.targets)
    loader = DataLoader(data, batch_size=trainer.spec.batch, shuffle=True, drop_last=True)
    for tensors in chain.from_iterable(repeat(loader)):
        yield Batch(*(tensor.to(trainer.device) for tensor in tensors))


def of_loading(setup: Setup) -> Iterator[Result]:
    """What gathering and loading the data of each task add to a training step of `primal`."""
    for task in dict.fromkeys(claim.of.partition(",")[0] for claim in setup.claims):
        with random_papers(setup) if task == "retrieval" else nullcontext():
            try:
                yield from _of_task(setup, task)
            except UserError as error:  # its data are missing
                yield Result(f"*-{task}", f"{task}, recipe paper", reason=str(error))


def _of_task(setup: Setup, name: str) -> Iterator[Result]:
    run = run_of(setup, "primal", name, "paper")
    of, how, steps = trainer(run), shape_of(run), run.train.steps
    calls = {f"{name}, gathering": lambda: first_batch(of), f"{name}, step": training_call(of)}
    seconds = seconds_of(setup, calls, 3)
    yield from compared(setup, seconds, how)
    if name in GENERATED:
        return
    task, step = data_of(run.task).task, seconds[f"{name}, step"]
    (loads,) = seconds_of(setup, {"": lambda: [*map(task.load, SPLITS)]}, 3).values()
    figures = {"load (s)": Quartiles.of(loads), **milliseconds({"step": step})}
    ratio = Quartiles.of(loads) / (steps * median(step))
    yield Result(f"load-{name}", f"{how}, {steps:,} steps", ratio, figures)


@contextmanager
def random_papers(setup: Setup) -> Iterator[None]:
    """A cache that holds Retrieval with random papers, in as many pairs as the real data have."""
    generator, papers = np.random.default_rng(0), setup.size(PAPERS, 50)
    arrays = {
        "values": generator.integers(32, 127, papers * TEXT_BYTES, np.uint8),
        "ends": TEXT_BYTES * np.arange(1, papers + 1),
    }
    for split, count in Retrieval.source.examples.items():
        arrays[f"{split}_pairs"] = generator.integers(0, papers, (count, 2), np.int32)
        arrays[f"{split}_targets"] = generator.integers(0, 2, count, np.uint8)
    with tempfile.TemporaryDirectory() as home, patch.dict(os.environ, {cache.HOME_VARIABLE: home}):
        cache.write(base_key(Retrieval), arrays)
        yield


def of_pathfinder(setup: Setup) -> Iterator[Result]:
    """Time of generating Pathfinder's images, relative to training on them and to one process."""
    images, batch = setup.size(2000, 20), setup.size(32, 4)
    run = run_of(setup, "primal", "pathfinder", "paper", train={"batch": batch})
    (step,) = seconds_of(setup, {"": training_call(trainer(run))}, 5).values()
    tenth, how = images // 10, f"{images:,} images; {shape_of(run)}"
    task = Pathfinder(train=images - 2 * tenth, dev=tenth, test=tenth)
    calls = {"one process": lambda: task.generate(1), "2 processes": lambda: task.generate(2)}
    alone, together = (Quartiles.of(s) / images for s in seconds_of(setup, calls, 3).values())
    figures = {"one process (ms)": alone / 1e-3, "2 processes (ms)": together / 1e-3}
    ratio = together / (median(step) / batch)
    yield Result("pathfinder-generation", how, ratio, figures)
    yield Result("pathfinder-processes", how, together / alone, figures)


def of_workers(setup: Setup) -> Iterator[Result]:
    """Two workers of one thread against one of two threads: `harness run` on a grid of runs."""
    # One round: the grid is long enough for short load to average out.
    count, steps, clock = setup.size(16, 2), setup.size(300, 2), wall_clock(torch.device("cpu"))
    how = f"primal on listops, recipe laptop with {steps} steps, {count} seeds; 1 round"
    if (os.cpu_count() or 1) < 2:
        yield Result("*", how, reason="there is one CPU")
        return

    def grid(count: int, workers: int, threads: int) -> None:
        """Train `count` seeds in a new store."""
        with tempfile.TemporaryDirectory() as store:
            runs = harness.run(
                "primal", "listops", range(count), train={"steps": steps}, workers=workers,
                threads=threads, device="cpu", store=store, cost=False,
            )  # fmt: skip
        if len(runs) != count or (runs["status"] != "ok").any():
            raise RuntimeError(f"the grid ended without {count} finished runs")

    grid(1, 1, 2)  # the data are in the cache afterwards
    one, two = (Quartiles.of([clock(lambda w=w: grid(count, w, 3 - w), 1)]) for w in (1, 2))
    figures = {"two workers of one thread (s)": two, "one worker of two threads (s)": one}
    yield Result("two-workers", how, two / one, figures)


def of_statistics(setup: Setup) -> Iterator[Result]:
    """Intervals and rank groups of simulated leaderboards, whose true means are known."""
    tables = setup.size(1000, 4)
    for name, ratio, shares in figures(tables):
        yield Result(f"statistics-{name}", f"{tables:,} tables of each scenario", ratio, shares)
