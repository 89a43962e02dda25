"""What a model costs: time, memory and operations, compared with SDPA softmax in the same run.

The time is that of the step that trains. Calls of the model and of the reference alternate, so that
other load of the machine affects both, and their ratio is computed pairwise. Every call ends with a
synchronisation: a GPU step whose time is that of its kernel launches is measured slightly slower
than in training.
"""

import gc
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from harness.data import is_out_of_memory
from harness.layer_inputs import attentions
from harness.model import build_model
from harness.plan import Plan
from harness.records.fields import Quartiles
from harness.records.record import Cost, Usage
from harness.records.spec import RunSpec
from harness.train import Trainer, autocast, synchronise
from tasks.contract import Split
from zoo.composition import Composition
from zoo.cost import backends, flops, peak_bytes, state_bytes

REFERENCE = "softmax"
"""The variant that every cost is compared with."""

BACKEND = "sdpa"
"""Its backend, on every device."""

WARMUP = 2
ROUNDS = 9


def measure(plan: Plan) -> Cost:
    """Measure the model of `plan` and the reference on real batches, on the device of the run.

    Both are built for the measurement and discarded, so that the run itself is not affected. A
    reference that does not fit in memory is left out, since the model may fit.
    """
    device = torch.device(plan.spec.device)
    train = plan.data.splits["train"].to(device)
    composition = Composition.parse(REFERENCE)
    options = composition.resolve({REFERENCE: {"backend": BACKEND}})
    softmax_spec = plan.spec.model_copy(update={"attention": REFERENCE, "options": options})
    softmax_plan = replace(plan, spec=softmax_spec, composition=composition)
    trainers = [_trainer(plan, train)]
    # First the model, so that an error here is the model's. Its optimiser state stays allocated, as
    # it is while both are measured.
    _training_call(trainers[0])()
    own_is_reference = is_reference(plan.spec)
    trainers += [] if own_is_reference else _reference(softmax_plan, train)
    compared = own_is_reference or len(trainers) > 1
    plans = [plan, softmax_plan][: len(trainers)]
    tokens = plan.spec.train.batch * plan.task.sequences * plan.task.max_len
    steps = time_alternately([_training_call(trainer) for trainer in trainers], device)
    passes = time_alternately([_inference_call(trainer) for trainer in trainers], device)
    usages = [
        Usage(
            seconds_per_1k_steps=quartiles(1000 * seconds for seconds in training),
            tokens_per_second=quartiles(tokens / seconds for seconds in inference),
            peak_bytes=peak_bytes(_training_call(trainer), device),
            parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
            flops=flops(_training_call(_trainer(one, train, compiled=False))),
            backend=_backend(one, trainer),
            state_bytes=_state_bytes(trainer),
        )
        for one, trainer, training, inference in zip(plans, trainers, steps, passes, strict=True)
    ]
    return Cost(
        own=usages[0],
        softmax=usages[-1] if compared else None,
        time_ratio=_ratio(steps[0], steps[-1]) if compared else None,
        inference_ratio=_ratio(passes[0], passes[-1]) if compared else None,
    )


def _state_bytes(trainer: Trainer) -> int | None:
    """Memory of the state of decoding of one sequence; None without one."""
    layers = attentions(trainer.model)
    if not all(one.traits.recurrent and one.size.causal for one in layers):
        return None
    return sum(state_bytes(one.start(1)) for one in layers)


def is_reference(spec: RunSpec) -> bool:
    """Whether a run is of the reference itself."""
    # On a CPU `auto` selects SDPA.
    backends = (BACKEND, "auto") if spec.device == "cpu" else (BACKEND,)
    return spec.attention == REFERENCE and spec.options[REFERENCE]["backend"] in backends


def time_alternately(
    calls: list[Callable[[], Any]], device: torch.device, rounds: int = ROUNDS
) -> list[list[float]]:
    """Call the functions in `calls` alternately; return the seconds of each call of each of them.

    The device is synchronised before and after each call; rounds of warm-up are not counted.
    """
    seconds: list[list[float]] = [[] for _ in calls]
    for number in range(WARMUP + rounds):
        for call, taken in zip(calls, seconds, strict=True):
            synchronise(device)
            start = time.perf_counter()
            call()
            synchronise(device)
            if number >= WARMUP:
                taken.append(time.perf_counter() - start)
    return seconds


def quartiles(values: Iterable[float]) -> Quartiles:
    """The quartiles of `values`."""
    q1, median, q3 = np.quantile(list(values), (0.25, 0.5, 0.75)).tolist()
    return Quartiles(q1=q1, median=median, q3=q3)


def _ratio(own: Iterable[float], others: Iterable[float]) -> Quartiles:
    """Pairwise ratios of seconds."""
    return quartiles(a / b for a, b in zip(own, others, strict=True))


def _reference(plan: Plan, train: Split) -> list[Trainer]:
    """The trainer of the reference; none, with a warning, if its steps do not fit in memory."""
    try:
        trainer = _trainer(plan, train)
        # Twice, because the optimiser's state exists from the second step on; and uncompiled, as
        # when its operations are counted.
        for one in (trainer, trainer, _trainer(plan, train, compiled=False)):
            _training_call(one)()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return [trainer]
    warnings.warn(
        f"{REFERENCE} does not fit in memory on {plan.task.key}: costs have no ratio to it; lower "
        "the batch or the length to compare",
        stacklevel=3,
    )
    # Trainers are in reference cycles.
    gc.collect()
    return []


def _trainer(plan: Plan, train: Split, compiled: bool | None = None) -> Trainer:
    spec = plan.spec
    torch.manual_seed(spec.seed)
    recipe = spec.train.model_copy(
        update={
            "compiled": spec.train.compiled if compiled is None else compiled,
            # A cost is that of batches of the task's length.
            "bucket_by_length": False,
            # Nor does it depend on the number of steps of the run.
            "steps": max(spec.train.steps, 10 * (WARMUP + ROUNDS)),
        }
    )
    model = build_model(spec, plan.task, plan.composition).to(train.targets.device)
    return Trainer(model, train, recipe, spec.seed)


def _backend(plan: Plan, trainer: Trainer) -> str:
    """The backends of the layers, or the compiler, which chooses by itself."""
    spec = plan.spec
    if spec.train.compiled:
        return "compiled"
    shape = spec.train.batch * plan.task.sequences, plan.task.max_len, spec.model.dim
    with autocast(spec.device, spec.train.precision):
        return backends(trainer.model, torch.device(spec.device), shape)


def _training_call(trainer: Trainer) -> Callable[[], Any]:
    def call() -> None:
        trainer.model.train()
        trainer.step(0)

    return call


def _inference_call(trainer: Trainer) -> Callable[[], Any]:
    batch = trainer.train.gather(trainer.order.batch(0))

    @torch.inference_mode()
    def call() -> None:
        trainer.model.eval()
        trainer.scores(batch)

    return call
