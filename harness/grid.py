"""Many runs: those without a final record are computed, each by one process at a time."""

import time
import warnings
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import torch

from harness.data import is_out_of_memory, restore
from harness.jobs import Job, Pool, Result, give_up, has_outcome
from harness.memory import require_fit
from harness.model import build_model
from harness.records.locks import State
from harness.records.record import Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from zoo.contract import Unsupported
from zoo.registry import UserError, build

ATTEMPTS = 3
"""Processes that may end during a run, before it counts as failed."""

OF_MODELS = {"question", "attention", "layers", "options", "values", "device"}
"""The fields of a specification that a model depends on."""

SECONDS_PER_LOOK = 1.0
"""Seconds between two looks at the runs of other processes."""


def check(specs: Sequence[RunSpec], store: Store) -> list[RunSpec]:
    """Reject bad input before the first run, and return the runs that are possible.

    A variant that does not support a task is skipped with a warning, which gives the remedy.

    Raises:
        UserError: a model cannot be built or exceeds the memory of its device, a task has fewer
            examples than a batch, a file with the name of a record is not a record, a folder has
            the name of a checkpoint, or no run is possible.
    """
    runnable = []
    reasons: dict[str, str | None] = {}
    for spec in specs:
        store.find(spec)
        if (path := store.checkpoint(spec)).is_dir():
            raise UserError(
                f"{path} is a folder, where the checkpoint of a run belongs; move it away"
            )
        model = spec.model_dump_json(include=OF_MODELS)
        if model not in reasons:
            reasons[model] = _unsupported(spec)
        if not reasons[model]:
            _require_batch(spec)
            runnable.append(spec)
    skipped = dict.fromkeys(reason for reason in reasons.values() if reason)
    if skipped and not runnable:
        raise Unsupported(next(iter(skipped)))
    for reason in skipped:
        warnings.warn(f"skipped: {reason}", stacklevel=2)
    return runnable


def _require_batch(spec: RunSpec) -> None:
    examples = restore(spec).summary.sizes["train"]
    if examples < spec.train.batch:
        sized = "train" in spec.task.options
        remedy = f"set {spec.task.name}.train higher" if sized else "add rows"
        raise UserError(
            f"{restore(spec).task.key} has {examples} training examples, fewer than a batch of "
            f"{spec.train.batch}; {remedy}, or lower train.batch"
        )


def _unsupported(spec: RunSpec) -> str | None:
    """The reason why the variants of a run do not support its task; None where they do."""
    try:
        build(f"attention {spec.attention!r}", partial(_try_to_build, spec))
    except Unsupported as error:
        task, reason = spec.task, f"{spec.attention} on {restore(spec).task.key}: {error}"
        causal = task.options.get("causal")
        if not isinstance(causal, bool):
            return reason
        form, value = ("bidirectional", "false") if causal else ("causal", "true")
        return f"{reason}; or make the task {form} with --set {task.name}.causal={value}"
    return None


def _try_to_build(spec: RunSpec) -> None:
    try:
        require_fit(spec)
        with torch.random.fork_rng(devices=[]):
            build_model(spec, restore(spec).task)
    except SystemExit as error:
        # A plug-in must not end the process with its exit code.
        raise RuntimeError(f"it exits with {error.code!r}") from error
    except (MemoryError, RuntimeError) as error:
        # What does not fit while other processes run is a result: its run records it.
        if not is_out_of_memory(error):
            raise


@runtime_checkable
class View(Protocol):
    """Shows the state of a grid."""

    def begin(self, total: int, done: int) -> None:
        """A grid of `total` runs begins; `done` of them are finished already."""

    def started(self, spec: RunSpec) -> None:
        """A process was given the run."""

    def ended(self, record: Record, result: Result) -> None:
        """The run has an outcome."""

    def refresh(self, running: Mapping[str, State], others: int) -> None:
        """Time has passed; the states of running runs, and how many run in other commands."""


def run_all(
    specs: Sequence[RunSpec],
    store: Store,
    pool: Pool,
    view: View,
    *,
    rerun: bool = False,
    keep_outdated: bool = False,
    keep_checkpoints: bool = False,
) -> list[tuple[Record, bool]]:
    """Compute every run that has no final record in the store; with `rerun` all, from the start.

    A record of earlier code is replaced, unless `keep_outdated`.

    A run that another process computes is left to it, and computed here if that process ends before
    the run does. A run whose process ends unexpectedly `ATTEMPTS` times fails. Runs are begun in
    the order of `specs`; `pool` is closed at the end. For `keep_checkpoints` see
    `harness.runner.run`.

    Returns:
        The record of each run, and whether it was computed now.

    Raises:
        UserError: a record cannot be written, or the file of its name is not a record.
    """
    store.remove_leftovers()
    how = {"rerun": rerun, "keep_outdated": keep_outdated}
    grid = _Grid(specs, store, view, **how, keep_checkpoints=keep_checkpoints)
    try:
        while len(grid.outcomes) < len(grid.jobs):
            while grid.waiting and pool.can_start():
                pool.submit(grid.next())
            for job, result in pool.finished():
                grid.accept(job, result)
            grid.refresh()
    finally:
        pool.close()
    return [grid.outcomes[spec.file_name] for spec in specs]


class _Grid:
    """The runs of a grid: waiting, running, left to other processes, and ended."""

    def __init__(
        self, specs: Sequence[RunSpec], store: Store, view: View, *, rerun: bool,
        keep_outdated: bool, keep_checkpoints: bool,
    ) -> None:  # fmt: skip
        self.store, self.view, self.locks = store, view, store.locks
        self.jobs: dict[str, Job] = {}
        self.outcomes: dict[str, tuple[Record, bool]] = {}
        for spec in specs:
            name, record = spec.file_name, store.find(spec)
            before = record.started if record else ""
            self.jobs[name] = job = Job(
                spec, store.folder, rerun, before, keep_outdated, restart=rerun,
                keep_checkpoints=keep_checkpoints,
            )  # fmt: skip
            if record and has_outcome(record, job):
                self.outcomes[name] = record, False
        left = {name: self.locks.state(name) for name in self.jobs if name not in self.outcomes}
        of_others = {name for name, state in left.items() if state and not state.is_of_this_host}
        # Last, the runs that another machine has begun: until then it may continue them.
        self.waiting = deque(sorted(left, key=lambda name: name in of_others))
        self.running: set[str] = set()
        self.others: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self.look_at = 0.0
        view.begin(len(self.jobs), len(self.outcomes))

    def next(self) -> Job:
        """The next job; its run counts as running."""
        name = self.waiting.popleft()
        self.running.add(name)
        self.view.started(self.jobs[name].spec)
        return self.jobs[name]

    def accept(self, job: Job, result: Result) -> None:
        """Take note of how a job ended."""
        name = job.spec.file_name
        self.running.discard(name)
        for message in result.warnings:
            warnings.warn(message, stacklevel=2)
        if result.state == "error":
            raise UserError(result.message)
        if result.state == "died":
            result = self._died(name, result.message)
        if result.state == "busy":
            self.others.add(name)
        elif result.state == "done":
            record = self.store.find(job.spec)
            if record is None:
                raise UserError(f"{self.store.path(job.spec)} was deleted; run it again")
            self.outcomes[name] = record, result.new
            self.view.ended(record, result)

    def _died(self, name: str, why: str) -> Result:
        """Let another process compute the run, or give it up; the result of that."""
        self.deaths[name] += 1
        if self.deaths[name] == ATTEMPTS:
            reason = f"its process ended {ATTEMPTS} times; the last time {why}"
            return give_up(self.jobs[name], reason)
        self.jobs[name] = self.jobs[name]._replace(restart=False)
        self.waiting.appendleft(name)
        return Result("died")

    def refresh(self) -> None:
        """Show the state, and take the runs back that other processes have left."""
        if time.monotonic() < self.look_at:
            return
        for name in [name for name in self.others if not self.locks.is_held(name)]:
            self.others.remove(name)
            self.waiting.append(name)
        if self.others and not self.waiting and not self.running:
            time.sleep(SECONDS_PER_LOOK)
        running = {n: state for n, state in self.locks.states().items() if n in self.running}
        self.view.refresh(running, len(self.others))
        self.look_at = time.monotonic() + SECONDS_PER_LOOK
