"""Training steps: of the paper's ListOps run, of plain PyTorch loops, and of several seeds."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.runner import Runner, first_batch, section, shape_of
from harness.environment import native_precisions
from harness.plan import Plan
from harness.timing import Call
from harness.train import Trainer, autocast
from tasks.contract import Batch
from tests.literal.build import build


@section("step")
def measure_step(runner: Runner) -> None:
    """The training step at the paper's ListOps shape: B=32 N=2000, published dropout.

    `primal` is compared with the literal model of the paper, with SDPA softmax, with itself without
    dropout and in the other precision; `none`, the model without attention, is a lower limit.
    """
    chosen, *others = native_precisions(runner.device)
    calls: dict[str, Call] = {}
    for precision in (chosen, *(others if runner.kind == "cpu" else ())):
        for name in ("primal", "softmax", "none"):
            calls[f"{name}, {precision}"] = step_of(runner, name, precision)
        calls[f"literal, {precision}"] = literal_step(runner, precision)
    for name in ("primal", "none"):
        calls[name] = calls[f"{name}, {chosen}"]
        calls[f"{name}, no dropout"] = step_of(runner, name, chosen, model={"dropout": 0.0})
    shape = shape_of(runner.plan("primal", "listops", "paper"))
    runner.compare(calls, shape, rounds=5)
    if chosen == "fp32":
        runner.skip("*, bf16", shape, "this processor has no bf16 instructions")


def step_of(
    runner: Runner, attention: str, precision: str, **settings: Mapping[str, float]
) -> Call:
    """The step of the harness, on the first batch."""
    plan = runner.plan(attention, "listops", "paper", precision, **settings)
    trainer = runner.trainer(plan)
    return lambda: trainer.step(0)


def literal_step(runner: Runner, precision: str) -> Call:
    """An eager step of the literal model of the paper, on the same batch."""
    plan = runner.plan("primal", "listops", "paper", precision)
    trainer = runner.trainer(plan, compiled=False)
    torch.manual_seed(0)
    model = build(plan.spec, plan.task).to(runner.device)
    return plain_step(model, plan, runner, lambda: first_batch(trainer))


def plain_step(model: Any, plan: Plan, runner: Runner, next_batch: Callable[[], Batch]) -> Call:
    """A step of AdamW around any model, in plain PyTorch, on the next batch."""
    spec = plan.spec.train
    recipe = spec.model_dump(include={"lr", "betas", "eps", "weight_decay"})
    optimizer = torch.optim.AdamW(model.parameters(), **recipe, fused=True)

    def step() -> None:
        batch = next_batch()
        with autocast(runner.device.type, spec.precision):
            scores, losses = model(batch)
        (F.cross_entropy(scores.float(), batch.targets) + losses["ksvd"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@section("training_step")
def measure_loops(runner: Runner) -> None:
    """The training step of the harness compared with plain PyTorch loops, on laptop ListOps."""
    plan = runner.plan("primal", "listops", "laptop")
    trainer, eager = runner.trainer(plan), runner.trainer(plan, compiled=False)
    batch = first_batch(eager)
    calls = {
        "harness": lambda: trainer.step(0),
        # Its batch is gathered before.
        "plain loop": plain_step(eager.model, plan, runner, lambda: batch),
        "eager loop": eager_loop(plan, runner),
    }
    shape = f"{shape_of(plan)}, {plan.spec.train.precision}"
    runner.compare(calls, shape, rounds=31)


def eager_loop(plan: Plan, runner: Runner) -> Call:
    """A step around the literal model, on the next batch of a DataLoader."""
    train = plan.data.splits["train"]
    whole = train.gather(torch.arange(len(train)))
    mask = torch.ones_like(whole.tokens, dtype=torch.bool) if whole.mask is None else whole.mask
    data = TensorDataset(whole.tokens, mask, whole.targets)
    loader = DataLoader(data, batch_size=plan.spec.train.batch, shuffle=True, drop_last=True)

    def batches() -> Iterator[Batch]:
        while True:
            for parts in loader:
                yield Batch(*(part.to(runner.device) for part in parts))

    stream = batches()
    model = build(plan.spec, plan.task).to(runner.device)
    return plain_step(model, plan, runner, lambda: next(stream))


MODELS = 4


@section("seeds_at_once")
def measure_seeds(runner: Runner) -> None:
    """Four seeds trained at once, by `torch.func` over stacked parameters, on laptop ListOps."""
    # Without SDPA softmax: `torch.func` has no batching rule for its kernel on a CPU.
    for name in runner.subjects:
        plan = runner.plan(name, "listops", "laptop", "fp32")
        trainers = [runner.trainer(plan, compiled=False) for _ in range(MODELS)]
        batch = first_batch(trainers[0])
        calls = {
            f"{name}, at once": at_once(trainers, batch),
            f"{name}, one by one": partial(one_by_one, trainers, batch),
        }
        runner.compare(calls, f"{shape_of(plan)}, {MODELS} models, fp32", rounds=11)


def one_by_one(trainers: list[Trainer], batch: Batch) -> None:
    """Loss and gradients of one model after another."""
    for trainer in trainers:
        trainer.model.zero_grad()
        loss_of(trainer, trainer.model(batch), batch).backward()


def at_once(trainers: list[Trainer], batch: Batch) -> Call:
    """Loss and gradients of all models in one call of stacked parameters."""
    parameters, buffers = stack_module_state([trainer.model for trainer in trainers])
    parameters = {name: parameter.detach() for name, parameter in parameters.items()}

    def loss(parameters: Any, buffers: Any) -> Any:
        output = functional_call(trainers[0].model, (parameters, buffers), (batch,))
        return loss_of(trainers[0], output, batch)

    computed = vmap(grad_and_value(loss), randomness="different")
    return lambda: computed(parameters, buffers)


def loss_of(trainer: Trainer, output: Any, batch: Batch) -> Any:
    """The loss of an output of a model, with its auxiliary losses."""
    scores, losses = output
    return trainer.train.answers.loss(scores, batch.targets) + sum(losses.values())
