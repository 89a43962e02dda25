"""What a model costs: time, memory, operations, beside SDPA softmax in the same run.

Time is of the very step that trains. The model and the reference take turns, so that whatever else
the machine does falls on both, and their ratio is taken turn by turn. The device is waited for
behind every turn: a GPU step bound by its launches looks a little dearer than in training.
"""

import gc
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from harness.data import is_out_of_memory
from harness.model import build
from harness.records.record import Cost, Quartiles, Usage
from harness.records.spec import RunSpec
from harness.train import Trainer, synchronise
from tasks import Task
from tasks.contract import Split
from zoo.composition import Composition
from zoo.cost import flops, peak_bytes
from zoo.registry import Value

REFERENCE = "softmax"
"""The variant that every cost is compared with."""

BACKEND = "sdpa"
"""How it is computed, on every device and whatever else is installed."""

WARMUP = 2
ROUNDS = 9


def measure(spec: RunSpec, task: Task, train: Split) -> Cost:
    """Measure the model of `spec` and the reference on real batches of `train`, on its device.

    Both are built for the purpose and thrown away, so that the run itself starts untouched. A
    reference that the memory does not hold is left out: what it lacks, the model may have.
    """
    usual = spec.model_copy(update={"attention": REFERENCE, "options": _options(BACKEND)})
    trainers = [_trainer(spec, task, train)]
    # What fails here is the model itself; from here on its state is held, as in the turns.
    _training_turn(trainers[0])()
    alone = is_reference(spec)
    trainers += [] if alone else _reference(usual, task, train)
    beside = alone or len(trainers) > 1
    specs = [spec, usual][: len(trainers)]
    tokens = spec.train.batch * task.sequences * task.max_len
    steps = take_turns([_training_turn(trainer) for trainer in trainers], trainers[0].device)
    reads = take_turns([_reading_turn(trainer) for trainer in trainers], trainers[0].device)
    usages = [
        Usage(
            seconds_per_1k_steps=quartiles(1000 * seconds for seconds in stepping),
            tokens_per_second=quartiles(tokens / seconds for seconds in reading),
            peak_bytes=peak_bytes(_training_turn(trainer), trainer.device),
            parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
            flops=flops(_training_turn(_trainer(one, task, train, compiled=False))),
        )
        for one, trainer, stepping, reading in zip(specs, trainers, steps, reads, strict=True)
    ]
    return Cost(
        own=usages[0],
        softmax=usages[-1] if beside else None,
        time_ratio=_ratio(steps[0], steps[-1]) if beside else None,
        inference_ratio=_ratio(reads[0], reads[-1]) if beside else None,
    )


def is_reference(spec: RunSpec) -> bool:
    """Whether a run is of the reference itself."""
    # On a CPU SDPA is what softmax comes to by itself.
    backends = (BACKEND, "auto") if spec.device == "cpu" else (BACKEND,)
    same = [_options(backend) for backend in backends]
    return spec.attention == REFERENCE and spec.options in same


def take_turns(
    turns: list[Callable[[], Any]], device: torch.device, rounds: int = ROUNDS
) -> list[list[float]]:
    """Seconds of each turn, `rounds` times over, after a warm-up; the device is waited for."""
    seconds: list[list[float]] = [[] for _ in turns]
    for number in range(WARMUP + rounds):
        for turn, taken in zip(turns, seconds, strict=True):
            synchronise(device)
            start = time.perf_counter()
            turn()
            synchronise(device)
            if number >= WARMUP:
                taken.append(time.perf_counter() - start)
    return seconds


def quartiles(values: Iterable[float]) -> Quartiles:
    """The quartiles of `values`."""
    q1, median, q3 = np.quantile(list(values), (0.25, 0.5, 0.75)).tolist()
    return Quartiles(q1=q1, median=median, q3=q3)


def _ratio(own: Iterable[float], others: Iterable[float]) -> Quartiles:
    """Of seconds, turn by turn."""
    return quartiles(mine / theirs for mine, theirs in zip(own, others, strict=True))


def _options(backend: str) -> dict[str, dict[str, Value]]:
    """Every option of the reference, computed by `backend`."""
    return Composition.parse(REFERENCE).resolve({REFERENCE: {"backend": backend}})


def _reference(usual: RunSpec, task: Task, train: Split) -> list[Trainer]:
    """The reference; none, and a warning, where the memory does not hold its steps."""
    try:
        found = _trainer(usual, task, train)
        # Twice, because its moments are there from the second on; and as it is counted.
        for trainer in (found, found, _trainer(usual, task, train, compiled=False)):
            _training_turn(trainer)()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return [found]
    warnings.warn(
        f"the memory does not hold {REFERENCE} on {task.key}: no cost beside it; lower the batch "
        "or the length to compare",
        stacklevel=3,
    )
    # An optimiser and its schedule hold each other.
    gc.collect()
    return []


def _trainer(spec: RunSpec, task: Task, train: Split, compiled: bool | None = None) -> Trainer:
    torch.manual_seed(spec.seed)
    recipe = (
        spec.train if compiled is None else spec.train.model_copy(update={"compiled": compiled})
    )
    # The schedule of a short run could end while it is measured: its length is no part of a cost.
    recipe = recipe.model_copy(update={"steps": max(recipe.steps, 10 * (WARMUP + ROUNDS))})
    model = build(spec, task).to(train.targets.device)
    return Trainer(model, train, recipe, spec.seed)


def _training_turn(trainer: Trainer) -> Callable[[], Any]:
    def turn() -> None:
        trainer.model.train()
        trainer.step(0)

    return turn


def _reading_turn(trainer: Trainer) -> Callable[[], Any]:
    batch = trainer.train.gather(trainer.order.batch(0))

    @torch.inference_mode()
    def turn() -> None:
        trainer.model.eval()
        trainer.scores(batch)

    return turn
