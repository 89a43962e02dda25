"""Four seeds trained at once, by `torch.func` over stacked parameters, on laptop ListOps."""

from collections.abc import Callable, Iterator
from typing import Any

from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Setting
from benchmarks.workloads import FEW, plan_of, shape_of, trainer_of
from harness.train import Trainer
from tasks.contract import Batch

SEEDS = 4

NAMES = "primal", "linear", "none"
"""Without SDPA softmax: `torch.func` has no batching rule for its kernel on a CPU."""

CLAIMS = [
    Claim(
        name=f"seeds-at-once-{name}",
        what=f"Time of loss and gradients of {SEEDS} models of {name} computed at once, over that "
        "of computing them one after the other",
        bounds={"cpu": None, "cuda": None},
        limit="1 where the operations of one model occupy the device already.",
    )
    for name in NAMES
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`; fp32, and the same batch for every model."""
    for name in NAMES:
        plan = plan_of(setting, name, "listops", "laptop", "fp32", {"listops": FEW})
        trainers = [trainer_of(plan, setting, compiled=False) for _ in range(SEEDS)]
        batch = trainers[0].train.gather(trainers[0].order.batch(0))
        calls = {
            "at once": at_once(trainers, batch),
            "one by one": lambda own=trainers, batch=batch: one_by_one(own, batch),
        }
        times = AlternatingTimes(calls, setting, rounds=11)
        shape = f"{shape_of(plan)}, {SEEDS} models, fp32"
        yield times.finding(f"seeds-at-once-{name}", "at once", "one by one", shape)


def one_by_one(trainers: list[Trainer], batch: Batch) -> None:
    """Loss and gradients of each model."""
    for trainer in trainers:
        trainer.model.zero_grad()
        _loss(trainer, trainer.model(batch), batch).backward()


def at_once(trainers: list[Trainer], batch: Batch) -> Callable[[], Any]:
    """Loss and gradients of all models in one call of stacked parameters."""
    parameters, buffers = stack_module_state([trainer.model for trainer in trainers])
    parameters = {name: parameter.detach() for name, parameter in parameters.items()}

    def loss(parameters: Any, buffers: Any) -> Any:
        output = functional_call(trainers[0].model, (parameters, buffers), (batch,))
        return _loss(trainers[0], output, batch)

    computed = vmap(grad_and_value(loss), randomness="different")
    return lambda: computed(parameters, buffers)


def _loss(trainer: Trainer, output: Any, batch: Batch) -> Any:
    scores, losses = output
    return trainer.train.answers.loss(scores, batch.targets) + sum(losses.values())
