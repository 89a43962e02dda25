"""Trials on real batches, what a store decides by them, and the fastest exact softmax.

Times are compared with the fastest exact softmax, which `softmax.backend=auto` runs: it is found
before anything is measured or trained, once for each shape in a process; see
docs/decisions/0045-the-fastest-softmax-is-the-reference.md. A trial may end in another way each
time, where two candidates take almost the same time: the first decision of a store holds for every
run of it, on whichever process.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from harness.data import restore
from harness.environment import describe, memory_of
from harness.model import build_model
from harness.records.cost import CostSpec
from harness.records.record import Implementation, Precision
from harness.records.spec import RunSpec
from harness.timing import Call, short_trial, timer_of
from harness.train import Trainer
from tasks.contract import Split
from zoo.registry import changed
from zoo.variants import variants

REFERENCE = "softmax"
"""The variant that every cost is compared with."""

SDPA, NAIVE = "sdpa", "naive"
"""Its backends: the fused kernels, whose memory is compared with; the formula."""

BACKENDS: Mapping[str, tuple[str, ...]] = {"cpu": (SDPA, NAIVE), "cuda": (SDPA, NAIVE, "xformers")}
"""Its exact implementations by kind of device."""

WEIGHTS = 3
"""Tensors of the size of the weights of all layers that the formula has in memory, about."""

SHARE = 0.25
"""Share of the memory of the machine that these may take, at most."""

MARGIN = 0.95
"""Share of the time of SDPA that another backend takes at most where it is chosen: two that are
equally fast must not change places from one process to the next."""

Specification = TypeVar("Specification", RunSpec, CostSpec)


def trainer_of(spec: RunSpec, train: Split, compiled: bool | None = None) -> Trainer:
    """A new model of a run on batches of the task's length; `compiled` replaces the recipe's."""
    torch.manual_seed(spec.seed)
    # A cost is of batches of the task's length.
    changes: dict[str, bool] = {"bucket_by_length": False}
    if compiled is not None:
        changes["compiled"] = compiled
    model = build_model(spec, restore(spec).task).to(train.targets.device)
    return Trainer(model, train, spec.train.model_copy(update=changes), spec.seed)


def training_call(trainer: Trainer) -> Call:
    """The first training step, again and again."""

    def call() -> None:
        trainer.model.train()
        trainer.step(0)

    return call


def inference_call(trainer: Trainer) -> Call:
    """The evaluation of one batch, without gradients."""
    batch = trainer.train.gather(trainer.order.batch(0))

    @torch.inference_mode()
    def call() -> None:
        trainer.model.eval()
        trainer.scores(batch)

    return call


@dataclass(frozen=True)
class Trial:
    """Seconds of a step and of inference by implementation; 1 for the only one."""

    training: Mapping[Implementation, float]
    inference: Mapping[Implementation, float]

    @property
    def fastest(self) -> Implementation:
        """The fastest in training."""
        return fastest(self.training)

    @property
    def fastest_inference(self) -> Implementation:
        """The fastest in inference."""
        return fastest(self.inference)


TRIALS: dict[str, Trial | None] = {}
"""Trials by shape; None where SDPA does not fit in memory."""


def softmax_of(spec: RunSpec, implementation: Implementation) -> RunSpec:
    """The run with softmax in place of its variants."""
    options = changed(variants.find(REFERENCE), {"backend": implementation.backend})
    train = spec.question.train.model_copy(update={"precision": implementation.precision})
    question = spec.question.model_copy(update={"train": train})
    changes = {"attention": REFERENCE, "options": {REFERENCE: options}, "question": question}
    return spec.model_copy(update={**changes, "layers": (REFERENCE,) * spec.model.depth})


def is_auto(spec: RunSpec | CostSpec) -> bool:
    """Return whether softmax is among the variants, with its default: options leave `auto` out."""
    return "backend" not in spec.options.get(REFERENCE, {"backend": ""})


def with_backend(spec: Specification, backend: str) -> Specification:
    """The specification with that backend of softmax, for building."""
    options = {**spec.options, REFERENCE: {**spec.options[REFERENCE], "backend": backend}}
    return spec.model_copy(update={"options": options})


def with_fastest_backend(spec: RunSpec, backend: str = "") -> RunSpec:
    """The run with the fastest backend in place of `auto`, for building; its identity has `auto`.

    A compiled model keeps `auto`, which is SDPA within the compiler. A run that is continued keeps
    the `backend` that it began with. Runs of a question of a suite have SDPA, and no trial: curves
    of two stores are equal.
    """
    if not is_auto(spec) or spec.train.compiled:
        return spec
    backend = SDPA if spec.question.suite else backend
    if not backend and (found := trial_of(spec)):
        backend = found.fastest.backend
    return with_backend(spec, backend) if backend else spec


def trial_of(spec: RunSpec) -> Trial | None:
    """The trial of softmax at the shape of a run, made once in a process.

    None where SDPA does not fit in memory.
    """
    key = _key(spec)
    if key not in TRIALS:
        TRIALS[key] = _trial(spec)
    return TRIALS[key]


def _key(spec: RunSpec) -> str:
    """Equal for runs that differ in nothing that a trial of softmax depends on."""
    environment = describe(spec.device)
    return json.dumps([
        spec.task.key, spec.model.model_dump(mode="json"), spec.train.batch,
        spec.train.precision, spec.train.compiled, environment.device, environment.threads,
    ])  # fmt: skip


def formula_fits(weights: int, precision: Precision, kind: str) -> bool:
    """Return whether the formula may store so many weights, of all layers, on such a device."""
    return WEIGHTS * weights * (2 if precision == "bf16" else 4) <= SHARE * memory_of(kind)


def fastest(seconds: Mapping[Implementation, float]) -> Implementation:
    """The implementation that takes the least time; others than SDPA need the `MARGIN`."""
    return min(seconds, key=lambda name: seconds[name] * (MARGIN if name.backend == SDPA else 1))


def candidates(kind: str, precision: Precision, weights: int) -> list[Implementation]:
    """The implementations to try on a device of that kind; the formula only if its weights fit."""
    return [
        Implementation(backend=backend, precision=precision)
        for backend in BACKENDS[kind]
        if backend != NAIVE or formula_fits(weights, precision, kind)
    ]


def _trial(spec: RunSpec) -> Trial | None:
    device = torch.device(spec.device)
    train = restore(spec).splits["train"].to(device)
    timer, trainers = timer_of(device), {}

    def make(implementation: Implementation) -> Call:
        trainers[implementation] = trainer_of(softmax_of(spec, implementation), train)
        return training_call(trainers[implementation])

    names = _candidates_of(spec)
    if len(names) == 1:
        return Trial(dict.fromkeys(names, 1.0), dict.fromkeys(names, 1.0))
    training = short_trial({name: partial(make, name) for name in names}, timer)
    makers = {name: partial(inference_call, trainer) for name, trainer in trainers.items()}
    inference = short_trial(makers, timer)
    return Trial(training, inference) if training and inference else None


def _candidates_of(spec: RunSpec) -> list[Implementation]:
    if spec.train.compiled:
        # Each would be compiled; the compiler has a kernel for SDPA alone.
        return [Implementation(backend=SDPA, precision=spec.train.precision)]
    task = restore(spec).task
    weights = task.length("train") ** 2 * task.sequences * spec.train.batch
    weights *= spec.model.heads * spec.model.depth
    return candidates(spec.device, spec.train.precision, weights)
