"""Many runs: executes those without a final record, each in one process at a time."""

import logging
import time
import warnings
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from harness.data import is_out_of_memory, restore
from harness.engines import Resources, start
from harness.environment import is_foreign, is_outdated, use_threads
from harness.model import build_model, require_fit
from harness.records.record import Record
from harness.records.spec import RunSpec
from harness.records.store import Store, summary
from harness.runner import Result, execute, execute_elsewhere, title
from zoo.contract import Unsupported
from zoo.registry import UserError, build, in_one_line

LOG = logging.getLogger(__name__)
ATTEMPTS = 3  # A run fails after so many processes have ended during it
SECONDS_PER_SUMMARY = 60.0  # Seconds between two lines with the state of a grid
BAR_WIDTH = 20  # Characters of the bar of a grid
SECONDS_PER_LOOK = 1.0  # Seconds between two looks at the runs of other processes
# Fields of a specification that determine the model.
OF_MODELS = {"question", "attention", "layers", "options", "values", "device"}


class Checked(NamedTuple):
    spec: RunSpec
    record: Record | None
    is_done: bool


def check(
    specs: Sequence[RunSpec], store: Store, *, rerun: bool = False, keep_outdated: bool = False
) -> list[Checked]:
    # Final records are results, unless of earlier code and not `keep_outdated`, or with `rerun`.
    runnable: list[Checked] = []
    reasons: dict[str, str | None] = {}
    for spec in specs:
        record = store.find(spec)
        is_final = record is not None and record.is_final and not rerun
        if record and is_final and (keep_outdated or not is_outdated(record)):
            runnable.append(Checked(spec, record, True))
            continue
        if (path := store.checkpoint(spec)).is_dir():
            message = f"{path} is a folder, where the checkpoint of a run belongs; move it away"
            raise UserError(message)
        model = spec.model_dump_json(include=OF_MODELS)
        if model not in reasons:
            reasons[model] = _unsupported(spec)
        if reasons[model]:
            continue
        examples, task = restore(spec).summary.sizes["train"], spec.task
        if examples < spec.train.batch:
            remedy = f"set {task.name}.train higher" if "train" in task.options else "add rows"
            raise UserError(
                f"{task.key} has {examples} training examples, fewer than a batch of "
                f"{spec.train.batch}; {remedy}, or lower train.batch"
            )
        runnable.append(Checked(spec, record, False))
    skipped = dict.fromkeys(reason for reason in reasons.values() if reason)
    if skipped and not runnable:
        raise Unsupported(next(iter(skipped)))
    for reason in skipped:
        warnings.warn(f"skipped: {reason}", stacklevel=2)
    return runnable


def _unsupported(spec: RunSpec) -> str | None:
    try:
        build(f"attention {spec.attention!r}", partial(_try_to_build, spec))
    except Unsupported as error:
        task, reason = spec.task, f"{spec.attention} on {spec.task.key}: {error}"
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
        # A lack of memory, perhaps for other processes, is a result of the run.
        if not is_out_of_memory(error):
            raise


def run_all(
    checked_runs: Sequence[Checked], store: Store, resources: Resources, *,
    rerun: bool = False, keep_checkpoints: bool = False,
) -> list[tuple[Record, bool]]:  # fmt: skip
    # Runs of another command are left to it, unless it ends before they do.
    store.remove_leftovers()
    missing = {run.spec.file_name: run for run in checked_runs if not run.is_done}
    done = {run.spec.file_name: (run.record, False) for run in checked_runs
            if run.is_done and run.record}  # fmt: skip
    for name, run in missing.items() if rerun else ():
        with store.locks.unused(name) as unused:
            if unused:
                store.checkpoint(run.spec).unlink(missing_ok=True)
    grid = _Grid(missing, store, resources, keep_checkpoints, len(done))
    outcomes = done | (grid.execute() if missing else {})
    return [outcomes[spec.file_name] for spec, *_ in checked_runs]


class _Grid:
    def __init__(
        self, missing: Mapping[str, Checked], store: Store, resources: Resources,
        keep_checkpoints: bool, done: int,
    ) -> None:  # fmt: skip
        self.store, self.keep_checkpoints, self.done = store, keep_checkpoints, done
        self.specs = {name: run.spec for name, run in missing.items()}
        self.before = {name: run.record.started if run.record else ""
                       for name, run in missing.items()}  # fmt: skip
        isolated = any(is_foreign(spec.variants) for spec in self.specs.values())
        self.resources = replace(resources, isolated=isolated)
        self.executor: Executor | None = None
        self.waiting: deque[str] = deque()
        self.running: dict[Future[Result], str] = {}
        self.others: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self.outcomes: dict[str, tuple[Record, bool]] = {}
        self.look_at, self.shown = 0.0, set[str]()
        self.began = self.summary_at = time.monotonic()

    def execute(self) -> dict[str, tuple[Record, bool]]:
        left = {name: self.store.locks.state(name) for name in self.specs}
        of_others = {name for name, state in left.items() if state and not state.is_of_this_host}
        # Runs that another machine began come last: it may continue them until then.
        self.waiting.extend(sorted(left, key=lambda name: name in of_others))
        self.executor = start(self.resources, self.store.folder)
        try:
            while self.waiting or self.running or self.others:
                while self.waiting and len(self.running) < self.resources.runs_at_once:
                    self._submit(self.waiting.popleft())
                for future in wait(self.running, SECONDS_PER_LOOK, FIRST_COMPLETED).done:
                    self._accept(self.running.pop(future), future)
                self._look()
        finally:
            for name in ("grid", "run"):
                LOG.debug("", extra={"bar": name})
            if self.executor:
                self.executor.shutdown(cancel_futures=True)
        return self.outcomes

    def _submit(self, name: str) -> None:
        self._show()
        spec = self.specs[name]
        how = {"before": self.before[name], "keep_checkpoints": self.keep_checkpoints}
        threads, future = self.resources.threads_of_run, Future[Result]()
        if self.executor is None:
            with use_threads(threads):
                future.set_result(execute(spec, self.store, **how))
        else:
            run = partial(execute_elsewhere, spec, self.store.folder.absolute(), threads, **how)
            try:
                future = self.executor.submit(run)
            except BrokenExecutor:  # a process of a pool was killed
                self.executor.shutdown()
                self.executor = start(self.resources, self.store.folder)
                self.waiting.appendleft(name)
                return
        self.running[future] = name

    def _accept(self, name: str, future: Future[Result]) -> None:
        if error := future.exception():
            self.deaths[name] += 1
            if self.deaths[name] < ATTEMPTS:
                self.waiting.appendleft(name)
                return
            why = str(error) if isinstance(error, BrokenExecutor) else in_one_line(error)
            reason = f"its process ended {ATTEMPTS} times; the last time {why}"
            before = self.before[name]
            result = execute(self.specs[name], self.store, before=before, failed=reason)
        else:
            result = future.result()
        for message in result.warnings:
            warnings.warn(message, stacklevel=2)
        if result.error:
            raise UserError(result.error)
        if result.record is None:
            self.others.add(name)
            return
        self.outcomes[name] = result.record, result.new
        name_of_run = title(result.record.spec)
        if result.trace:
            LOG.error("%s: failed:\n%s", name_of_run, result.trace)
        if len(self.specs) + self.done > 1:
            LOG.info("%s: %s; %s", name_of_run, result.record.status, self._summary())

    def _look(self) -> None:
        if time.monotonic() < self.look_at:
            return
        for name in [name for name in self.others if not self.store.locks.is_held(name)]:
            self.others.remove(name)
            self.waiting.append(name)
        if self.others and not self.waiting and not self.running:
            time.sleep(SECONDS_PER_LOOK)
        for name in {*self.running.values()} - self.shown:
            if state := self.store.locks.state(name):
                self.shown.add(name)
                LOG.info("%s: process %s of %s", title(self.specs[name]), state.pid, state.host)
        if time.monotonic() > self.summary_at + SECONDS_PER_SUMMARY:
            self.summary_at = time.monotonic()
            LOG.info(self._summary(), extra={"bar": "grid"})
        self._show()
        self.look_at = time.monotonic() + SECONDS_PER_LOOK

    def _show(self) -> None:
        # The line at the foot of a terminal: a bar, and the steps of runs in other processes.
        if len(self.specs) + self.done > 1:
            share = (self.done + len(self.outcomes)) / (self.done + len(self.specs))
            bar = f"[{'=' * round(share * BAR_WIDTH):<{BAR_WIDTH}}] {self._summary()}"
            LOG.debug("%s", bar, extra={"bar": "grid"})
        if self.executor and LOG.isEnabledFor(logging.DEBUG):
            found = ((name, self.store.locks.state(name)) for name in self.running.values())
            texts = [f"{title(self.specs[name])}: step {state.step}/{state.steps}"
                     for name, state in found if state]  # fmt: skip
            LOG.debug("%s", "; ".join(texts), extra={"bar": "run"})

    def _summary(self) -> str:
        ended, total = len(self.outcomes), len(self.specs)
        failed = sum(not record.is_final for record, _ in self.outcomes.values())
        seconds = (time.monotonic() - self.began) * (total - ended) / ended if ended else 0.0
        counts = self.done + ended - failed, self.done + total, len(self.running), failed
        return summary(*counts, len(self.others), seconds)
