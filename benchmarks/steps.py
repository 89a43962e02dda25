"""Training steps: of the paper's ListOps run, and of plain PyTorch loops."""

from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.runner import Runner, first_batch, shape_of
from harness.costs.work import training_call
from harness.data import restore
from harness.records.spec import RunSpec
from harness.timing import Call
from harness.train import autocast
from tasks.contract import Batch
from tests.literal.build import build


def measure_step(runner: Runner) -> None:
    """The training step at the paper's ListOps shape: B=32 N=2000, published dropout.

    `primal` is compared with the literal model of the paper, with SDPA softmax and, on a GPU, with
    itself without dropout; `none`, the model without attention, is a lower limit. A CPU computes in
    fp32, a GPU in bf16.
    """
    spec = runner.plan("primal", "listops", "paper")
    precision = spec.train.precision
    calls = {
        f"{name}, {precision}": step_of(runner, name) for name in ("primal", "softmax", "none")
    }
    batches = partial(first_batch, runner.trainer(spec, compiled=False))
    calls[f"literal, {precision}"] = literal_step(spec, runner, batches)
    if runner.kind == "cuda":
        for name in ("primal", "none"):
            calls[name] = calls[f"{name}, {precision}"]
            calls[f"{name}, no dropout"] = step_of(runner, name, model={"dropout": 0.0})
    runner.compare(calls, f"{shape_of(spec)}, {precision}", rounds=5)


def step_of(runner: Runner, attention: str, **settings: Any) -> Call:
    """The step of the harness, on the first batch."""
    return training_call(runner.trainer(runner.plan(attention, "listops", "paper", **settings)))


def literal_step(spec: RunSpec, runner: Runner, next_batch: Callable[[], Batch]) -> Call:
    """An eager step of the literal model of the paper, on the next batch."""
    torch.manual_seed(0)
    return plain_step(build(spec, restore(spec).task).to(runner.device), spec, runner, next_batch)


def plain_step(model: Any, spec: RunSpec, runner: Runner, next_batch: Callable[[], Batch]) -> Call:
    """A step of AdamW around any model, in plain PyTorch, on the next batch."""
    train = spec.train
    recipe = train.model_dump(include={"lr", "betas", "eps", "weight_decay"})
    optimizer = torch.optim.AdamW(model.parameters(), **recipe, fused=True)

    def step() -> None:
        batch = next_batch()
        with autocast(runner.device.type, train.precision):
            scores, losses = model(batch)
        (F.cross_entropy(scores.float(), batch.targets) + losses["ksvd"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure_loops(runner: Runner) -> None:
    """The training step of the harness compared with plain PyTorch loops, on laptop ListOps."""
    spec = runner.plan("primal", "listops", "laptop")
    eager = runner.trainer(spec, compiled=False)
    batch = first_batch(eager)
    calls = {
        "harness": training_call(runner.trainer(spec)),
        # Its batch is gathered before.
        "plain loop": plain_step(eager.model, spec, runner, lambda: batch),
        "eager loop": eager_loop(spec, runner),
    }
    shape = f"{shape_of(spec)}, {spec.train.precision}"
    runner.compare(calls, shape, rounds=31)


def eager_loop(spec: RunSpec, runner: Runner) -> Call:
    """A step around the literal model, on the next batch of a DataLoader."""
    train = restore(spec).splits["train"]
    every = train.gather(torch.arange(len(train)))
    mask = torch.ones_like(every.tokens, dtype=torch.bool) if every.mask is None else every.mask
    data = TensorDataset(every.tokens, mask, every.targets)
    loader = DataLoader(data, batch_size=spec.train.batch, shuffle=True, drop_last=True)
    epochs = chain.from_iterable(repeat(loader))
    return literal_step(
        spec, runner, lambda: Batch(*(tensor.to(runner.device) for tensor in next(epochs)))
    )
