"""The cost of a model: time, memory and operations, compared with softmax in the same run.

Times are compared with the fastest exact softmax, memory with SDPA softmax: `harness.reference`.
The timed step is the one that trains. Calls of the model and of softmax alternate, and their ratio
is computed pairwise. Every call ends with a synchronisation: a GPU step that takes as long as its
kernel launches is measured slightly slower than in training.
"""

import gc
import warnings
from collections.abc import Mapping

import torch

from harness.data import is_out_of_memory, restore
from harness.environment import merge_commits, use_threads
from harness.layer_inputs import attentions
from harness.model import trainable
from harness.provenance import environment_of, is_outdated
from harness.records.fields import Quartiles
from harness.records.record import Cost, Implementation, Record, Usage
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.reference import (
    REFERENCE,
    SDPA,
    Trial,
    inference_call,
    softmax_of,
    trainer_of,
    training_call,
    trial_of,
    with_fastest_backend,
)
from harness.timing import ROUNDS, sample, wall_clock
from harness.train import Trainer, autocast
from tasks.contract import Split
from zoo.cost import backends, flops, peak_bytes, state_bytes
from zoo.registry import UserError


def measure(spec: RunSpec) -> Cost:
    """Measure the model of a run and softmax on real batches, on the device of the run.

    All are built for the measurement and discarded, so that the run itself is not affected. Softmax
    that does not fit in memory is left out, since the model may fit.
    """
    spec = with_fastest_backend(spec)
    device = torch.device(spec.device)
    train = restore(spec).splits["train"].to(device)
    trainer = trainer_of(spec, train)
    # First the model, so that an error here is the model's. Its optimiser state stays allocated, as
    # it is while all are measured.
    training_call(trainer)()
    trial, trainers = _softmax(spec, trainer, train)
    of_training = trainers[trial.fastest] if trial else trainer
    of_inference = trainers[trial.fastest_inference] if trial else trainer
    steps, passes = (
        # One call where both trainers are the same.
        sample([*map(call, dict.fromkeys((trainer, other)))], wall_clock(device), rounds=ROUNDS)
        for call, other in ((training_call, of_training), (inference_call, of_inference))
    )
    usage = _usage(spec, trainer, train, steps[0], passes[0])
    if trial is None:
        return Cost(own=usage, softmax=None, time_ratio=None, inference_ratio=None)
    sdpa = Implementation(backend=SDPA, precision=spec.train.precision)
    return Cost(
        own=usage,
        softmax=usage
        if {trainers[sdpa], of_training, of_inference} == {trainer}
        else _usage(softmax_of(spec, sdpa), trainers[sdpa], train, steps[-1], passes[-1]),
        time_ratio=Quartiles.of_ratio(steps[0], steps[-1]),
        inference_ratio=Quartiles.of_ratio(passes[0], passes[-1]),
        reference=trial.fastest,
        inference_reference=trial.fastest_inference,
    )


def remeasure(record: Record, store: Store) -> Record:
    """Measure the cost of a recorded run again, write it to its record, and return the record.

    For runs during which other processes used the machine. Nothing but the cost changes, and the
    commit is added. The run's threads are used. The lock of the run is held until the record
    is written, so that no other process repeats the run meanwhile.

    Raises:
        UserError: another process runs it or has replaced it by one that did not finish, it was
            made on another device, with other versions or more threads than this machine has, or
            its task has changed.
    """
    path, spec = str(store.path(record.spec)), record.spec
    with store.locked(spec, record.environment.threads) as lock:
        if lock is None:
            raise UserError(f"another process runs {path}; measure it when that has ended")
        latest = store.find(spec)
        if latest is None or latest.status != "ok":
            raise UserError(f"{path} is no longer a finished run; run it again")
        if is_outdated(latest):
            raise UserError(f"{path} is of other code than now; run it again")
        lock.report(phase="measure cost")
        before = latest.environment
        with use_threads(before.threads):
            ours = environment_of(spec, restore(spec).task)
            environment = merge_commits(before, ours, path, "measure it there")
            cost = measure(spec)
        updated = latest.model_copy(update={"cost": cost, "environment": environment})
        store.write(updated)
        return updated


def _softmax(
    spec: RunSpec, of_run: Trainer, train: Split
) -> tuple[Trial | None, Mapping[Implementation, Trainer]]:
    """The trial of softmax, and the trainers of SDPA and of the fastest implementations.

    The run's trainer is used where they are the same. No trial, with a warning, where
    SDPA does not fit in memory.
    """
    sdpa = Implementation(backend=SDPA, precision=spec.train.precision)
    trial, trainers = trial_of(spec), {}
    try:
        names = (sdpa, trial.fastest, trial.fastest_inference) if trial else ()
        for name in dict.fromkeys(names):
            softmax = softmax_of(spec, name)
            if softmax == spec:
                trainers[name] = of_run
                continue
            trainers[name] = trainer_of(softmax, train)
            # Twice, because the optimiser's state exists from the second step on; and uncompiled,
            # as when operations are counted.
            for trainer in (trainers[name], trainers[name], trainer_of(softmax, train, False)):
                training_call(trainer)()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        trial = None
    if trial is None:
        warnings.warn(
            f"{REFERENCE} does not fit in memory on {spec.task.key}: costs have no ratio to it; "
            "lower the batch or the length to compare",
            stacklevel=3,
        )
        # Trainers are in reference cycles.
        trainers = {}
        gc.collect()
    return trial, trainers


def _usage(
    spec: RunSpec, trainer: Trainer, train: Split, steps: list[float], passes: list[float]
) -> Usage:
    """The usage of a model: `steps` and `passes` are the seconds of training and inference."""
    tokens = spec.train.batch * restore(spec).task.sequences * restore(spec).task.length("train")
    layers = attentions(trainer.model)
    decodes = all(layer.traits.recurrent and layer.size.causal for layer in layers)
    return Usage(
        seconds_per_1k_steps=Quartiles.of(1000 * seconds for seconds in steps),
        tokens_per_second=Quartiles.of(tokens / seconds for seconds in passes),
        peak_bytes=peak_bytes(training_call(trainer), trainer.device),
        parameters=trainable(trainer.model),
        flops=flops_of(spec, train),
        backend=backend_of(spec, trainer),
        state_bytes=sum(state_bytes(layer.start(1)) for layer in layers) if decodes else None,
    )


def flops_of(spec: RunSpec, train: Split) -> int:
    """Floating-point operations in matrix products of one training step."""
    return flops(training_call(trainer_of(spec, train, compiled=False)))


def backend_of(spec: RunSpec, trainer: Trainer) -> str:
    """The backends of the layers, or the compiler, which chooses by itself."""
    if spec.train.compiled:
        return "compiled"
    task = restore(spec).task
    shape = spec.train.batch * task.sequences, task.length("train"), spec.model.dim
    with autocast(spec.device, spec.train.precision):
        return backends(trainer.model, torch.device(spec.device), shape)
