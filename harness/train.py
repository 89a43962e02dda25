"""Training: the schedules of a step, the step, evaluation, and the loop over steps."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Shaped
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from harness.batches import ShuffledBatches, in_order, reader
from harness.optimisers import OPTIMISERS
from harness.records.fields import Seconds
from harness.records.record import Environment, Point, Processor
from harness.records.spec import TrainSpec
from harness.timing import processor_seconds, synchronise
from tasks.contract import Split
from tasks.metrics import Metric

MOMENTUM = (0.85, 0.95)  # Lowest and highest beta1 of a cycle, as in PyTorch's `OneCycleLR`
Step = Annotated[int, Field(ge=0, lt=2**63)]


def one_cycle(step: int, spec: TrainSpec) -> tuple[float, float]:
    # `torch.optim.lr_scheduler.OneCycleLR` with linear annealing: a rise from lr / 25 to lr at step
    # `warmup - 1`, then a fall to lr / 250,000. With a warm-up below two steps, for which PyTorch
    # divides by zero, the first step has the highest rate.
    peak, last = max(spec.warmup - 1, 0), spec.steps - 1
    lowest, highest = MOMENTUM if spec.cycle_momentum else (spec.betas[0], spec.betas[0])
    if step <= peak:
        weight = step / peak if peak else 1.0
        return _lerp(spec.lr / 25, spec.lr, weight), _lerp(highest, lowest, weight)
    weight = (step - peak) / (last - peak)
    return _lerp(spec.lr, spec.lr / 250_000, weight), _lerp(lowest, highest, weight)


def cosine(step: int, spec: TrainSpec) -> tuple[float, float]:
    # As DeiT (Touvron et al., 2021, arXiv 2012.12877), by step instead of epoch: a linear rise from
    # lr / 1,000 to lr in `warmup` steps, then a cosine over all steps, which ends at lr / 100.
    if step < spec.warmup:
        return _lerp(spec.lr / 1000, spec.lr, step / spec.warmup), spec.betas[0]
    weight = (1 - math.cos(math.pi * step / spec.steps)) / 2
    return _lerp(spec.lr, spec.lr / 100, weight), spec.betas[0]


def constant(step: int, spec: TrainSpec) -> tuple[float, float]:
    # Rises linearly in `warmup` steps, from `lr / warmup` at the first.
    return spec.lr * min((step + 1) / max(spec.warmup, 1), 1.0), spec.betas[0]


# Learning rate and beta1 of a step.
SCHEDULES = {"one-cycle": one_cycle, "cosine": cosine, "constant": constant}


def _lerp(start: float, end: float, weight: float) -> float:
    return start + (end - start) * weight


class DivergedError(ArithmeticError):
    """A loss is not finite."""


class Evaluation(NamedTuple):
    """Values of predictions, (n,) or (n, a) as the targets; see `tasks.metrics.Measure`.

    `metric` is of their mean over `answered` targets.
    """

    values: Shaped[Tensor, "n ..."]
    answered: int
    metric: Metric

    @property
    def mean(self) -> float:
        return self.values.double().sum().item() / self.answered

    @property
    def score(self) -> float:
        return self.metric.value(self.mean)

    def part(self, split: Split, examples: Bool[Tensor, " n"]) -> float:
        counted = split.answers.counted(split.targets[examples])
        total = self.values[examples].double().sum().item()
        return self.metric.value(total / int(counted.sum()))


class Trainer:
    def __init__(self, model: nn.Module, train: Split, spec: TrainSpec, seed: int) -> None:
        self.device = train.targets.device
        self.model, self.spec, self.train = model, spec, train
        self.forward = torch.compile(model, dynamic=False) if spec.compiled else model
        lengths = train.example_lengths() if spec.bucket_by_length else None
        self.order = ShuffledBatches(len(train), spec.batch, seed, self.device, lengths)
        self.read = reader(train, self.order, spec, seed)
        self.answers = train.answers.smoothed(spec.label_smoothing)
        self.optimizer = OPTIMISERS[spec.optimiser](model, spec)

    def step(self, number: int) -> dict[str, Tensor]:
        # Returns losses by name, as tensors on the device.
        lr, momentum = SCHEDULES[self.spec.schedule](min(number, self.spec.steps - 1), self.spec)
        for group in self.optimizer.param_groups:
            group["lr"], group["betas"] = lr, (momentum, self.spec.betas[1])
        parts = self.read(number)
        counts = [self.answers.counted(part.targets).sum() for part in parts]
        means: dict[str, Tensor] = {}
        for part, count in zip(parts, counts, strict=True):
            with autocast(self.device.type, self.spec.precision):
                scores, losses = self.forward(part)
            losses = {"task": self.answers.loss(scores, part.targets), **losses}
            if len(parts) > 1:
                # Together the mean over the answers of all parts.
                share = count / torch.stack(counts).sum()
                losses = {name: share * loss for name, loss in losses.items()}
            torch.stack([*losses.values()]).sum().backward()
            for name, loss in losses.items():
                means[name] = means[name] + loss.detach() if name in means else loss.detach()
        if self.spec.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.spec.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return means

    @torch.inference_mode()
    def evaluate(self, split: Split) -> Evaluation:
        self.model.eval()
        answers, order, parts = split.answers, [], []
        by_length = self.spec.bucket_by_length or self.spec.parts_by_length
        for examples, length in in_order(split, self.spec.batch, by_length):
            batch = split.gather(examples, length)
            order.append(examples)
            parts.append(answers.values(self.scores(batch), batch.targets))
        self.model.train()
        values = torch.cat(parts)[torch.cat(order).argsort()]
        return Evaluation(values, int(answers.counted(split.targets).sum()), answers.metric)

    def scores(self, batch: Any) -> Tensor:
        with autocast(self.device.type, self.spec.precision):
            return self.forward(batch)[0]


def autocast(device: str, precision: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")


class Progress(BaseModel):
    """The state of a run; a checkpoint has it with the state of the trainer."""

    model_config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, extra="forbid")

    step: Step = 0
    seconds: Seconds = 0.0
    curve: list[Point] = Field(default=[])
    best: float | None = None  # The score on dev at `best_step`, with the parameters `best_state`
    best_step: Step = 0
    best_on_test: float | None = None  # The best score on test so far, if the recipe asks for it
    elapsed: Seconds = 0.0  # Seconds since the start of the run, over all processes
    environment: Environment | None = None  # The environment at the start of the run
    version: str = ""  # As `Record.version`
    # The fields of `harness.records.record.Processor`
    processor: dict[str, Seconds] = Field(default=dict.fromkeys(Processor.model_fields, 0.0))
    best_state: dict[str, Tensor] = Field(default={}, exclude=True)
    # The sum of each loss since the last point of the curve
    sums: dict[str, Tensor] = Field(default={}, exclude=True)

    @contextmanager
    def spent(self, on: Literal["data", "training", "evaluation"]) -> Iterator[None]:
        start = processor_seconds()
        try:
            yield
        finally:
            self.processor[on] += processor_seconds() - start


def fit(
    trainer: Trainer, dev: Split, progress: Progress, on_point: Callable[[Point], None],
    save: Callable[[], None], save_is_due: Callable[[], bool] = lambda: False,
    test: Split | None = None, groups: Mapping[str, Tensor] = MappingProxyType({}),
) -> None:  # fmt: skip
    # Synchronises with the device only at the points of the curve, about a hundred. `test` is
    # evaluated with dev and selects nothing; `groups` are parts of dev with separate scores.
    spec, evaluations = trainer.spec, evaluation_steps(trainer.spec)
    interval = max(1, spec.steps // 100)
    trainer.model.train()
    while progress.step < spec.steps and not has_reached(progress, spec, dev):
        last = progress.curve[-1].step if progress.curve else 0
        until = min(spec.steps, last + interval, next(step for step in evaluations if step > last))
        with progress.spent("training"):
            is_reached = _advance(trainer, progress, until, save_is_due)
        if not is_reached:
            save()
            continue
        evaluated = dev if until in evaluations else None
        with progress.spent("evaluation"):
            point = _point(trainer, evaluated, test, progress, until - last, groups)
        progress.curve.append(point)
        on_point(point)
        if point.dev is not None or save_is_due():
            save()


def has_reached(progress: Progress, spec: TrainSpec, dev: Split) -> bool:
    scores = [point.dev for point in progress.curve if point.dev is not None][-2:]
    sign = dev.answers.metric.sign
    return (
        spec.stop_at is not None
        and len(scores) == 2
        and all(sign * (score - spec.stop_at) >= 0 for score in scores)
    )


def _point(
    trainer: Trainer, dev: Split | None, test: Split | None, progress: Progress, steps: int,
    groups: Mapping[str, Tensor],
) -> Point:  # fmt: skip
    # Updates the best result in `progress`, and restarts its sums.
    losses = {name: total.item() / steps for name, total in progress.sums.items()}
    progress.sums = {}
    for name, mean in losses.items():
        if not math.isfinite(mean):
            raise DivergedError(f"{name} loss is {mean} by step {progress.step}")
    on_dev: dict[str, Any] = {}
    if dev:
        found = trainer.evaluate(dev)
        if not math.isfinite(found.mean):
            name = found.metric.name
            raise DivergedError(f"{name} on dev is {found.mean} at step {progress.step}")
        if _is_better(found, progress.best):
            progress.best, progress.best_step = found.score, progress.step
            state = trainer.model.state_dict()
            progress.best_state = {name: value.clone() for name, value in state.items()}
        parts = {name: found.part(dev, group) for name, group in groups.items()}
        on_dev = {"dev": found.score, "groups": parts}
    if dev and test and _is_better(result := trainer.evaluate(test), progress.best_on_test):
        progress.best_on_test = result.score
    return Point(
        step=progress.step, seconds=progress.seconds, loss=losses.pop("task"), losses=losses,
        **on_dev,
    )  # fmt: skip


def evaluation_steps(spec: TrainSpec) -> list[int]:
    count = min(spec.evaluations, spec.steps)
    return [spec.steps * (i + 1) // count for i in range(count)]


def _advance(
    trainer: Trainer, progress: Progress, until: int, save_is_due: Callable[[], bool]
) -> bool:
    # Returns whether it reached `until` before a checkpoint was due.
    start = time.perf_counter()
    sums, due = progress.sums, False
    while progress.step < until and not due:
        for name, loss in trainer.step(progress.step).items():
            sums[name] = sums[name] + loss if name in sums else loss
        progress.step += 1
        due = progress.step < until and save_is_due()
    synchronise(trainer.device)
    progress.seconds += time.perf_counter() - start
    return not due


def _is_better(result: Evaluation, score: float | None) -> bool:
    return score is None or result.metric.sign * (result.score - score) > 0
