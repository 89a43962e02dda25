"""One cell: from a specification to a record, every way of failing included."""

import hashlib
import inspect
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

import torch

from harness import checkpoint
from harness.data import find_task, is_out_of_memory
from harness.environment import continued, describe
from harness.measure import measure
from harness.model import build
from harness.records.record import FINAL, Cost, Environment, Final, Point, Record, Status
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.train import DivergedError, Progress, Trainer, fit
from tasks import create
from tasks.baselines import evaluate
from tasks.contract import SPLITS, Split
from tasks.registry import tasks
from zoo.composition import Composition
from zoo.registry import UserError, in_one_line
from zoo.variants import variants


@runtime_checkable
class ProgressCallback(Protocol):
    """Somebody who is told how a run is going."""

    def phase(self, name: str) -> None:
        """A part of the run begins."""

    def reading(self, point: Point, steps: int) -> None:
        """The losses were read; the run has `steps` steps in all."""

    def failed(self, trace: str) -> None:
        """The run ended in an error that nobody foresaw."""


class Cell:
    """One run on its way: what is known of it so far can become a record at any time."""

    def __init__(self, spec: RunSpec, store: Store, callback: ProgressCallback) -> None:
        """Prepare; nothing is loaded or written yet."""
        self.spec, self.store, self.callback = spec, store, callback
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.clock, self.before = time.perf_counter(), 0.0
        self.environment = environment_of(spec)
        self.progress = Progress(environment=self.environment)
        self.baselines: dict[str, float] = {}
        self.cost: Cost | None = None
        self.final: Final | None = None

    def record(self, status: Status, reason: str) -> Record:
        """What is known by now."""
        return Record(
            spec=self.spec,
            status=status,
            reason=reason,
            started=self.started,
            environment=self.environment,
            implementations=implementations(self.spec),
            baselines=self.baselines,
            expected_failures=expected_failures_of(self.spec),
            curve=self.progress.curve,
            cost=self.cost,
            final=self.final,
        )

    def execute(self) -> None:
        """Load, measure, train, choose the checkpoint on dev, and read test once."""
        spec, device = self.spec, torch.device(self.spec.device)
        if spec.train.compiled:
            # One cache for all models of a process, with a limit behind which nothing is compiled.
            torch.compiler.reset()
        self.callback.phase("load data")
        task = find_task(spec)
        splits = {name: task.load(name) for name in SPLITS}
        self.baselines = evaluate(task, splits, spec.task.digests)
        train, dev, test = (splits[name].to(device) for name in SPLITS)
        self.callback.phase("measure cost")
        self.cost = measure(spec, task, train)
        self.callback.phase("train")
        torch.manual_seed(spec.seed)
        trainer = Trainer(build(spec, task).to(device), train, spec.train, spec.seed)
        self._train(trainer, dev)
        self.callback.phase("test")
        self.final = self._judge(trainer, test)

    def _train(self, trainer: Trainer, dev: Split) -> None:
        """Train from where an earlier process left it, if one did; leave it so at every turn."""
        saved = self.store.checkpoint(self.spec)
        if saved.exists():
            self.progress = checkpoint.load(saved, trainer)
            self.environment = continued(
                self.progress.environment or self.environment,
                self.environment,
                str(saved),
                "go on there, or delete it to start the run again",
            )
        self.before = self.progress.elapsed

        def save() -> None:
            self.progress.elapsed = self._elapsed()
            checkpoint.save(saved, trainer, self.progress)

        fit(
            trainer,
            dev,
            self.progress,
            on_reading=lambda point: self.callback.reading(point, self.spec.train.steps),
            on_evaluation=save,
        )

    def _judge(self, trainer: Trainer, test: Split) -> Final:
        """What the checkpoint that was best on dev comes to on test."""
        trainer.model.load_state_dict(self.progress.best_state)
        return Final(
            test_accuracy=trainer.accuracy(test),
            test_examples=len(test),
            dev_accuracy=self.progress.best_accuracy,
            best_step=self.progress.best_step,
            train_seconds=self.progress.seconds,
            seconds=self._elapsed(),
        )

    def _elapsed(self) -> float:
        """Seconds in all processes that took part."""
        return self.before + time.perf_counter() - self.clock


def environment_of(spec: RunSpec) -> Environment:
    """Where a run of `spec` happens, with the versions of the plug-ins that take part."""
    here, versions = describe(spec.device), dict(tasks.package(spec.task.name))
    for name in Composition.parse(spec.attention).names:
        versions |= variants.package(name)
    return here.model_copy(update={"versions": here.versions | versions})


def implementations(spec: RunSpec) -> dict[str, str]:
    """SHA-256 of the source of each variant's module, by variant; empty where there is none."""
    found = {}
    for name in Composition.parse(spec.attention).names:
        with suppress(OSError, TypeError):
            source = inspect.getsource(inspect.getmodule(variants.find(name)))
            found[name] = hashlib.sha256(source.encode()).hexdigest()
    return found


def expected_failures_of(spec: RunSpec) -> dict[str, str]:
    """The gaps that the variants of a run declare, by variant and check."""
    causal = create(spec.task.name, **spec.task.options).causal
    return {
        f"{name}: {check}": reason
        for name in Composition.parse(spec.attention).names
        for check, reason in variants.find(name).expected_failures_of(causal=causal).items()
    }


def run(spec: RunSpec, store: Store, callback: ProgressCallback) -> Record:
    """Run one cell and put its record in the store, whatever becomes of it.

    An unfinished run of the same specification is gone on with.

    Raises:
        UserError: the input was bad; nothing is written.
        KeyboardInterrupt: somebody interrupted; the record says so.
    """
    cell = Cell(spec, store, callback)
    try:
        cell.execute()
    except UserError:
        raise
    except KeyboardInterrupt:
        save_record(cell.record("interrupted", f"interrupted at step {cell.progress.step}"), store)
        raise
    except Exception as error:
        status = status_of(error)
        record = cell.record(status, reason_of(error))
        if status == "failed":
            callback.failed(traceback.format_exc())
    else:
        record = cell.record("ok", "")
    return save_record(record, store)


def measure_anew(record: Record, store: Store) -> Record:
    """Measure the cost of a run's model anew, put it in its record, and return the record.

    For a machine that was busy when the run began: accuracy does not mind, time does. Floors and
    known gaps are brought up to date with it, and the commit is named that did so.

    Raises:
        UserError: the run was made on another device, with other threads or other versions.
    """
    spec = record.spec
    environment = continued(
        record.environment, environment_of(spec), str(store.path(spec)), "measure it there"
    )
    task = find_task(spec)
    splits = {name: task.load(name) for name in SPLITS}
    cost = measure(spec, task, splits["train"].to(torch.device(spec.device)))
    renewed = record.model_copy(
        update={
            "cost": cost,
            "baselines": evaluate(task, splits, spec.task.digests),
            "expected_failures": expected_failures_of(spec),
            "environment": environment,
        }
    )
    store.write(renewed)
    return renewed


def save_record(record: Record, store: Store) -> Record:
    """Put a record in the store, unless that would lose a finished one; return what is kept there.

    The checkpoint goes with the last word: a run that failed for a passing reason can go on.
    """
    known = store.find(record.spec)
    if record.status != "ok" and known is not None and known.status == "ok":
        return known
    store.write(record)
    if record.status in FINAL:
        store.checkpoint(record.spec).unlink(missing_ok=True)
    return record


def status_of(error: Exception) -> Status:
    """Which kind of end an error is."""
    if isinstance(error, DivergedError):
        return "diverged"
    return "out_of_memory" if is_out_of_memory(error) else "failed"


def reason_of(error: Exception) -> str:
    """One line for a table's cell."""
    if isinstance(error, DivergedError):
        return str(error)
    return in_one_line(error)
