"""Many cells: those without a final record are run, each by one process at a time."""

import time
import warnings
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch

from harness.data import is_out_of_memory
from harness.engines.jobs import Job, Pool, Result, give_up, has_outcome
from harness.memory import require_fit
from harness.model import build_model
from harness.plan import Plan
from harness.records.locks import State
from harness.records.record import Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.torch_state import unchanged
from zoo.contract import Unsupported
from zoo.registry import UserError, build

ATTEMPTS = 3
"""Processes that may end while they run a cell, before it counts as failed."""

SECONDS_PER_LOOK = 1.0
"""Seconds between two looks at the cells of other processes."""


def check(plans: Sequence[Plan], store: Store) -> list[Plan]:
    """Reject bad input before the first cell runs, and return the cells that can run.

    A variant that does not support a task is skipped with a warning, which gives the remedy.

    Raises:
        UserError: a model cannot be built or exceeds the memory of its device, a task has fewer
            examples than a batch, a file with the name of a cell's record is not a record, or no
            cell can run.
    """
    runnable = []
    reasons: dict[str, str | None] = {}
    for plan in plans:
        store.find(plan.spec)
        spec, examples = plan.spec, plan.data.sizes["train"]
        cell = spec.model_copy(update={"seed": 0}).id
        if cell not in reasons:
            reasons[cell] = unsupported(plan)
        if reasons[cell]:
            continue
        if examples < spec.train.batch:
            sized = "train" in spec.task.options
            remedy = f"set {spec.task.name}.train higher" if sized else "add rows"
            raise UserError(
                f"{plan.task.key} has {examples} training examples, fewer than a batch of "
                f"{spec.train.batch}; {remedy}, or lower train.batch"
            )
        runnable.append(plan)
    skipped = dict.fromkeys(reason for reason in reasons.values() if reason)
    if skipped and not runnable:
        raise Unsupported(next(iter(skipped)))
    for reason in skipped:
        warnings.warn(f"skipped: {reason}", stacklevel=2)
    return runnable


def unsupported(plan: Plan) -> str | None:
    """Why the variants of a cell do not support its task, in one line; None where they do."""

    def make() -> None:
        try:
            require_fit(plan)
            with torch.random.fork_rng(devices=[]), unchanged("building it"):
                build_model(plan.spec, plan.task)
        except SystemExit as error:
            # A plug-in must not end the process with its own exit code.
            raise RuntimeError(f"it exits with {error.code!r}") from error
        except (MemoryError, RuntimeError) as error:
            # What does not fit while other processes run is a result: its cell records it.
            if not is_out_of_memory(error):
                raise

    try:
        build(f"attention {plan.spec.attention!r}", make)
    except Unsupported as error:
        task, reason = plan.spec.task, f"{plan.spec.attention} on {plan.task.key}: {error}"
        causal = task.options.get("causal")
        if not isinstance(causal, bool):
            return reason
        form, value = ("bidirectional", "false") if causal else ("causal", "true")
        return f"{reason}; or make the task {form} with --set {task.name}.causal={value}"
    return None


@runtime_checkable
class View(Protocol):
    """Shows the state of a grid."""

    def begin(self, total: int, done: int) -> None:
        """A grid begins that has `total` cells, of which `done` are finished already."""
        ...

    def started(self, spec: RunSpec) -> None:
        """A process was given the cell."""
        ...

    def ended(self, record: Record, result: Result) -> None:
        """The cell has an outcome."""
        ...

    def refresh(self, running: Mapping[str, State], others: Mapping[str, State]) -> None:
        """Time has passed; the states of the own running cells, and of those that others run."""
        ...


def run_all(
    plans: Sequence[Plan],
    store: Store,
    pool: Pool,
    view: View,
    *,
    rerun: bool = False,
    keep: bool = False,
    cost: bool = True,
) -> list[tuple[Record, bool]]:
    """Run every cell that has no final record in the store; with `rerun` all, from the beginning.

    A cell that another process runs is left to it, and run if that process ends before the cell
    does. A cell whose process ends unexpectedly `ATTEMPTS` times fails.

    Args:
        plans: the cells, in the order in which they are begun.
        store: where their records are.
        pool: runs them; it is closed at the end.
        view: shows them.
        rerun: whether to repeat finished runs.
        keep: whether runs keep their weights; see `harness.runner.run`.
        cost: whether runs measure their cost.

    Returns:
        The record of each cell, and whether it was run now.

    Raises:
        UserError: a record cannot be written, or the file of its name is not a record.
    """
    store.remove_leftovers()
    grid = _Grid(plans, store, view, rerun=rerun, keep=keep, cost=cost)
    try:
        with store.locks.announce([*grid.jobs]):
            while grid.unfinished:
                while grid.waiting and pool.can_start():
                    pool.submit(grid.next())
                for job, result in pool.finished():
                    grid.accept(job, result)
                grid.refresh()
    finally:
        pool.close()
    return [grid.outcomes[store.name(plan.spec)] for plan in plans]


class _Grid:
    """The cells of a grid: waiting, running, left to other processes, and ended."""

    def __init__(
        self,
        plans: Sequence[Plan],
        store: Store,
        view: View,
        *,
        rerun: bool,
        keep: bool,
        cost: bool,
    ) -> None:
        self.store, self.view, self.locks = store, view, store.locks
        self.outcomes: dict[str, tuple[Record, bool]] = {}
        self.jobs: dict[str, Job] = {}
        for plan in plans:
            name, existing = store.name(plan.spec), store.find(plan.spec)
            before = existing.started if existing else ""
            self.jobs[name] = Job(plan, store.folder, rerun, before, rerun, keep, cost)
            if existing and has_outcome(existing, before, rerun=rerun):
                self.outcomes[name] = existing, False
        left = [name for name in self.jobs if name not in self.outcomes]
        # Last, the runs that another machine has begun: until then it may continue them.
        self.waiting = deque(sorted(left, key=self._is_of_another_host))
        self.running: set[str] = set()
        self.others: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self.look_at = 0.0
        view.begin(len(self.jobs), len(self.outcomes))

    @property
    def unfinished(self) -> bool:
        return len(self.outcomes) < len(self.jobs)

    def next(self) -> Job:
        """The next job; its cell counts as running."""
        name = self.waiting.popleft()
        self.running.add(name)
        self.view.started(self.jobs[name].plan.spec)
        return self.jobs[name]

    def accept(self, job: Job, result: Result) -> None:
        """Take note of how a job ended."""
        name = job.name
        self.running.discard(name)
        for message in result.warnings:
            warnings.warn(message, stacklevel=2)
        if result.state == "error":
            raise UserError(result.message)
        if result.state == "died":
            result = self._died(job, result.message)
        if result.state == "busy":
            self.others.add(name)
        elif result.state == "done":
            record = self.store.find(job.plan.spec)
            if record is None:
                raise UserError(f"{self.store.path(job.plan.spec)} was deleted; run it again")
            self.outcomes[name] = record, result.new
            self.view.ended(record, result)

    def _died(self, job: Job, why: str) -> Result:
        """Let another process run the cell, or give it up; the result of that."""
        self.deaths[job.name] += 1
        if self.deaths[job.name] < ATTEMPTS:
            self.jobs[job.name] = job._replace(restart=False)
            self.waiting.appendleft(job.name)
            return Result("died")
        new = give_up(job, f"its process ended {ATTEMPTS} times; the last time {why}")
        return Result("busy") if new is None else Result("done", new=new)

    def refresh(self) -> None:
        """Show the state, and take the cells back that other processes have left."""
        if time.monotonic() < self.look_at:
            return
        for name in [name for name in self.others if not self.locks.is_held(name)]:
            self.others.remove(name)
            self.waiting.append(name)
        if self.others and not self.waiting and not self.running:
            time.sleep(SECONDS_PER_LOOK)
        states = self.locks.states()
        self.view.refresh(
            *(
                {n: s for n, s in states.items() if n in names}
                for names in (self.running, self.others)
            )
        )
        self.look_at = time.monotonic() + SECONDS_PER_LOOK

    def _is_of_another_host(self, name: str) -> bool:
        state = self.locks.state(name)
        return state is not None and not state.is_of_this_host
