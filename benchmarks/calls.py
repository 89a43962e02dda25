"""Claims about calls: steps of loops, what loading and generating data add to them, and grids."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain, repeat
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import harness
from benchmarks.claims import Result, Setup
from benchmarks.costs import setting_of, step_of
from harness.costs.work import trainer_of, training_call
from harness.data import data_of
from harness.recipes import find
from harness.records.fields import Quartiles
from harness.timing import Call, sample, wall_clock
from harness.train import Trainer, autocast
from tasks.contract import SPLITS, Batch
from tasks.data import cache
from tasks.data.sources import base_key
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.retrieval import TEXT_BYTES, Retrieval
from tests.reports.simulated import figures
from zoo.registry import UserError


def seconds_of(setup: Setup, calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call by name in every round, timed alternately."""
    clock = wall_clock(torch.device(setup.kind))
    taken = sample([*calls.values()], clock, rounds=setup.size(rounds, 3))
    return dict(zip(calls, taken, strict=True))


def compared(setup: Setup, seconds: Mapping[str, list[float]], setting: str) -> Iterator[Result]:
    """The claims about times of two of these calls, whose ratio is taken in each round."""
    for claim in setup.claims:
        if seconds.keys() >= {claim.of, claim.over}:
            pair = {name: seconds[name] for name in (claim.of, claim.over)}
            figures = {f"{name} (ms)": Quartiles.of(s) / 1e-3 for name, s in pair.items()}
            how = f"{setting}; {len(pair[claim.of])} rounds, alternately"
            yield Result(claim.name, how, Quartiles.of_ratio(*pair.values()), figures)


def of_loops(setup: Setup) -> Iterator[Result]:
    """The training step of the harness compared with plain PyTorch loops, on laptop ListOps."""
    run = setup, "primal", "listops", "laptop"
    step, eager = step_of(*run), trainer_of(step_of(*run, compiled=False))
    literal = trainer_of(step_of(*run, compiled=False, primal={"backend": "literal"}))
    (batch,), batches = eager.read(0), loaded(literal)
    calls = {
        "harness": training_call(trainer_of(step)),
        # Its batch is gathered before.
        "plain loop": plain_step(eager, lambda: batch),
        "eager loop": plain_step(literal, lambda: next(batches)),
    }
    return compared(setup, seconds_of(setup, calls, 31), setting_of(step))


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
    step = step_of(setup, "primal", name, "paper")
    trainer, task = trainer_of(step), data_of(step.task).task
    calls = {f"{name}, gathering": lambda: trainer.read(0),
             f"{name}, step": training_call(trainer),
             f"{name}, loading": lambda: [*map(task.load, SPLITS)]}  # fmt: skip
    seconds, steps = seconds_of(setup, calls, 3), find("paper").of_task(name).train["steps"]
    seconds[f"{name}, run"] = [steps * step for step in seconds[f"{name}, step"]]
    yield from compared(setup, seconds, f"{setting_of(step)}, {steps:,} steps")


@contextmanager
def random_papers(setup: Setup) -> Iterator[None]:
    """A cache that holds Retrieval with random papers, in as many pairs as the real data have."""
    # Of the largest length that is stored: no fewer bytes than the real data.
    generator, papers = np.random.default_rng(0), setup.size(20_000, 50)
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
    step = step_of(setup, "primal", "pathfinder", "paper", train={"batch": batch})
    tenth, how = images // 10, f"{images:,} images; {setting_of(step)}"
    task = Pathfinder(train=images - 2 * tenth, dev=tenth, test=tenth)
    calls = {"one process": lambda: task.generate(1), "2 processes": lambda: task.generate(2),
             "step": training_call(trainer_of(step))}  # fmt: skip
    seconds = seconds_of(setup, calls, 3)
    seconds["training"] = [images / batch * step for step in seconds["step"]]
    return compared(setup, seconds, how)


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
