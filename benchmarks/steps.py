"""Training steps: of the paper's ListOps run, of plain PyTorch loops, and of several seeds."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.claims import CLAIMS, Finding, Setting, Times, section, unmeasurable, variants_of
from benchmarks.runs import (
    LISTOPS,
    fastest,
    first_batch,
    plain_step,
    plan_of,
    shape_of,
    trainer_of,
)
from harness.plan import Plan
from harness.records.fields import Precision
from harness.reference import REFERENCE, SDPA
from harness.train import Trainer
from tasks.contract import Batch
from tests.literal.build import build

PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


@section("step")
def measure_step(setting: Setting) -> Iterator[Finding]:
    """The training step at the paper's ListOps shape: B=32 N=2000, published dropout.

    `primal` is compared with the literal model of the paper, with SDPA softmax, with itself without
    dropout and in the other precision; `none`, the model without attention, is a lower limit.
    """
    chosen = fastest(setting)
    precisions = [chosen] if setting.kind == "cuda" else [*PRECISIONS[: 1 + (chosen == "bf16")]]
    calls: dict[str, Callable[[], Any]] = {}
    for precision in precisions:
        for name in ("primal", "softmax", "none"):
            calls[f"{name}, {precision}"] = step_of(setting, name, precision)
        calls[f"literal, {precision}"] = literal_step(setting, precision)
    for name in ("primal", "none"):
        calls[f"{name}, {chosen}, no dropout"] = step_of(setting, name, chosen, dropout=0.0)
    shape = shape_of(plan_of(setting, "primal", "listops", "paper", "fp32", LISTOPS))
    times = Times(calls, setting, rounds=5)
    for precision in precisions:
        for other in ("literal", "softmax", "none"):
            names = f"primal, {precision}", f"{other}, {precision}"
            yield times.finding(f"step-{other}-{precision}", *names, f"{shape}, {precision}")
    for name in ("primal", "none"):
        usual = f"{name}, {chosen}"
        names = usual, f"{usual}, no dropout"
        yield times.finding(f"step-dropout-{name}", *names, f"{shape}, {chosen}")
    if len(precisions) > 1:
        yield times.finding("step-bf16", "primal, bf16", "primal, fp32", shape)
    elif chosen == "fp32":
        names = [claim.name for claim in CLAIMS["step"] if claim.name.endswith("bf16")]
        yield from unmeasurable(names, shape, "this processor has no bf16 instructions")


def step_of(
    setting: Setting, attention: str, precision: Precision, dropout: float | None = None
) -> Callable[[], Any]:
    """The step of the harness, on the first batch."""
    settings = dict(LISTOPS)
    if dropout is not None:
        settings["model"] = {"dropout": dropout}
    if attention == REFERENCE:
        settings[REFERENCE] = {"backend": SDPA}
    plan = plan_of(setting, attention, "listops", "paper", precision, settings)
    trainer = trainer_of(plan, setting)
    return lambda: trainer.step(0)


def literal_step(setting: Setting, precision: Precision) -> Callable[[], Any]:
    """An eager step of the literal model of the paper, on the same batch."""
    plan = plan_of(setting, "primal", "listops", "paper", precision, LISTOPS)
    trainer = trainer_of(plan, setting, compiled=False)
    torch.manual_seed(0)
    model = build(plan.spec, plan.task).to(setting.device)
    return plain_step(model, plan, setting, lambda: first_batch(trainer))


@section("training_step")
def measure_loops(setting: Setting) -> Iterator[Finding]:
    """The training step of the harness compared with plain PyTorch loops, on laptop ListOps."""
    plan = plan_of(setting, "primal", "listops", "laptop", fastest(setting), LISTOPS)
    trainer = trainer_of(plan, setting)
    calls = {
        "harness": lambda: trainer.step(0),
        "plain loop": plain_loop(plan, setting),
        "eager loop": eager_loop(plan, setting),
    }
    shape = f"{shape_of(plan)}, {plan.spec.train.precision}"
    times = Times(calls, setting, rounds=31)
    yield times.finding("harness-loop", "harness", "plain loop", shape)
    yield times.finding("harness-eager", "harness", "eager loop", shape)


def plain_loop(plan: Plan, setting: Setting) -> Callable[[], Any]:
    """A step around the model of the harness, on a batch that is gathered before."""
    trainer = trainer_of(plan, setting, compiled=False)
    batch = first_batch(trainer)
    return plain_step(trainer.model, plan, setting, lambda: batch)


def eager_loop(plan: Plan, setting: Setting) -> Callable[[], Any]:
    """A step around the literal model, on the next batch of a DataLoader."""
    train = plan.data.splits["train"]
    whole = train.gather(torch.arange(len(train)))
    mask = torch.ones_like(whole.tokens, dtype=torch.bool) if whole.mask is None else whole.mask
    data = TensorDataset(whole.tokens, mask, whole.targets)
    loader = DataLoader(data, batch_size=plan.spec.train.batch, shuffle=True, drop_last=True)

    def batches() -> Iterator[Batch]:
        while True:
            for parts in loader:
                yield Batch(*(part.to(setting.device) for part in parts))

    stream = batches()
    model = build(plan.spec, plan.task).to(setting.device)
    return plain_step(model, plan, setting, lambda: next(stream))


MODELS = 4


@section("seeds_at_once")
def measure_seeds(setting: Setting) -> Iterator[Finding]:
    """Four seeds trained at once, by `torch.func` over stacked parameters, on laptop ListOps."""
    # Without SDPA softmax: `torch.func` has no batching rule for its kernel on a CPU.
    for name in variants_of("seeds_at_once", "seeds-at-once-"):
        plan = plan_of(setting, name, "listops", "laptop", "fp32", LISTOPS)
        trainers = [trainer_of(plan, setting, compiled=False) for _ in range(MODELS)]
        batch = first_batch(trainers[0])
        calls = {
            "at once": at_once(trainers, batch),
            "one by one": lambda trainers=trainers, batch=batch: one_by_one(trainers, batch),
        }
        times = Times(calls, setting, rounds=11)
        shape = f"{shape_of(plan)}, {MODELS} models, fp32"
        yield times.finding(f"seeds-at-once-{name}", "at once", "one by one", shape)


def one_by_one(trainers: list[Trainer], batch: Batch) -> None:
    """Loss and gradients of each model."""
    for trainer in trainers:
        trainer.model.zero_grad()
        loss_of(trainer, trainer.model(batch), batch).backward()


def at_once(trainers: list[Trainer], batch: Batch) -> Callable[[], Any]:
    """Loss and gradients of all models in one call of stacked parameters."""
    parameters, buffers = stack_module_state([trainer.model for trainer in trainers])
    parameters = {name: parameter.detach() for name, parameter in parameters.items()}

    def loss(parameters: Any, buffers: Any) -> Any:
        output = functional_call(trainers[0].model, (parameters, buffers), (batch,))
        return loss_of(trainers[0], output, batch)

    computed = vmap(grad_and_value(loss), randomness="different")
    return lambda: computed(parameters, buffers)


def loss_of(trainer: Trainer, output: Any, batch: Batch) -> Any:
    scores, losses = output
    return trainer.train.answers.loss(scores, batch.targets) + sum(losses.values())
