"""Many cells: finished ones are not run again, and a failing one does not stop the others."""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import harness.runner
from harness.engines.jobs import Result, has_outcome
from harness.engines.local import Workers
from harness.engines.serial import Serial
from harness.environment import describe, use_threads
from harness.grid import ATTEMPTS, check, run_all
from harness.plan import resolve
from harness.remeasure import remeasure
from harness.runner import failure, run
from harness.train import DivergedError
from zoo.contract import Unsupported
from zoo.registry import UserError


def serial(view) -> Serial:
    return Serial(view, Workers(1, 1))


class Quiet:
    """A view that counts what a grid tells it, and shows each run by `shown`."""

    def __init__(self, shown):
        self.shown, self.calls = shown, []

    def callback(self, spec):
        return self.shown

    def begin(self, total, done):
        self.calls.append(("begin", total, done))

    def started(self, spec):
        self.calls.append(("started", spec.seed))

    def ended(self, record, result):
        self.calls.append(("ended", record.spec.seed, record.status))

    def refresh(self, running, others):
        pass


def grid(plans, store, callback, rerun=False) -> list[tuple[int, str, bool]]:
    view = Quiet(callback)
    outcome = run_all(plans, store, serial(view), view, rerun=rerun)
    return [(record.spec.seed, record.status, new) for record, new in outcome]


def test_a_finished_cell_is_not_run_again_unless_rerun(plan, store, callback, unmeasured):
    plans = [plan(seed=0), plan(seed=1)]
    assert grid(plans[:1], store, callback) == [(0, "ok", True)]
    assert grid(plans, store, callback) == [(0, "ok", False), (1, "ok", True)]
    assert grid(plans, store, callback, rerun=True) == [(0, "ok", True), (1, "ok", True)]


def test_a_failing_cell_does_not_stop_the_next_and_is_run_again_later(
    plan, store, callback, unmeasured, monkeypatch
):
    real = harness.runner.fit

    def fail_for_seed_0(trainer, *rest, **named):
        if torch.initial_seed() == 0:
            raise RuntimeError("boom")
        real(trainer, *rest, **named)

    plans = [plan(seed=0), plan(seed=1)]
    with monkeypatch.context() as failing:
        failing.setattr("harness.runner.fit", fail_for_seed_0)
        assert grid(plans, store, callback) == [(0, "failed", True), (1, "ok", True)]
    assert grid(plans, store, callback) == [(0, "ok", True), (1, "ok", False)]


def test_a_cell_that_cannot_start_does_not_stop_the_next(
    plan, store, callback, unmeasured, interrupt_at, monkeypatch
):
    plans = [plan(seed=0), plan(seed=1)]
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(plans[0], store, callback)
    other = describe("cpu").model_copy(update={"threads": 99})
    monkeypatch.setattr("harness.provenance.describe", lambda kind: other)
    assert grid(plans, store, callback) == [(0, "failed", True), (1, "ok", True)]
    assert "was started with threads" in store.find(plans[0].spec).reason


def test_a_rerun_ignores_a_checkpoint(plan, store, callback, unmeasured, interrupt_at, monkeypatch):
    one = plan()
    uninterrupted = run(one, store, callback)
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(one, store, callback)
    # Continued, the run would have this environment's threads as an error.
    other = describe("cpu").model_copy(update={"threads": 99})
    monkeypatch.setattr("harness.provenance.describe", lambda kind: other)
    assert store.checkpoint(one.spec).exists()
    assert grid([one], store, callback, rerun=True) == [(0, "ok", True)]
    record = store.find(one.spec)
    assert record.environment.threads == 99
    assert record.final.score == uninterrupted.final.score


def test_partial_files_of_dead_processes_are_removed(plan, store, callback, unmeasured):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    store.folder.mkdir()
    here = platform.node()
    dead = store.folder / f".x.json.{here}.{process.pid}.partial"
    alive = store.folder / f".y.json.{here}.{os.getpid()}.partial"
    elsewhere = store.folder / f".x.json.another-{here}.{process.pid}.partial"
    foreign = store.folder / ".z.partial"
    for path in (dead, alive, elsewhere, foreign):
        path.write_text("{")
    grid([], store, callback)
    assert sorted(store.folder.glob(".*.partial")) == sorted([alive, elsewhere, foreign])


def test_an_interrupt_stops_the_grid(plan, store, callback, unmeasured, interrupt_at):
    interrupt_at(0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        grid([plan(seed=0), plan(seed=1)], store, callback)
    assert [record.status for record in store.read()[0]] == ["interrupted"]


def test_a_broken_record_with_the_name_of_a_cell_is_an_error(plan, store, callback, unmeasured):
    path = store.path(plan().spec)
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(UserError, match="is not a record"):
        grid([plan()], store, callback)
    assert path.read_text() == "{"


def test_the_check_rejects_a_later_cell_before_the_first_and_draws_no_random_number(plan, store):
    state = torch.get_rng_state()
    plans = [plan(), plan("primal")]
    assert check(plans, store) == plans
    assert torch.equal(torch.get_rng_state(), state)
    large = plan("primal", settings={"primal": {"rank": 2**40}})
    with pytest.raises(UserError, match="GiB of memory"):
        check([plan(), large], store)


def test_the_check_rejects_a_batch_that_the_data_do_not_fill(plan, store):
    line = "64 training examples, fewer than a batch of 65; set listops.train higher, or lower"
    with pytest.raises(UserError, match=line):
        check([plan(batch=65)], store)


def test_a_variant_that_does_not_support_a_task_is_skipped(plan, request_of, store):
    tasks = ("copying", "listops")
    plans = [resolve(request_of(name, task)) for task in tasks for name in ("nystrom", "softmax")]
    line = r"skipped: nystrom on copying@1\S*: nystrom is not causal; .*; or make the task bidirec"
    with pytest.warns(UserWarning, match=line + r".* --set copying.causal=false") as warned:
        runnable = check([plans[0], *plans], store)
    assert runnable == plans[1:]
    assert len(warned) == 1
    settings = {"copying": {"causal": "false"}}
    assert check([resolve(request_of("nystrom", "copying", **settings))], store)


def test_a_grid_without_a_cell_that_can_run_is_an_error(request_of, store):
    with pytest.raises(Unsupported, match=r"^nystrom on induction@1.*nystrom is not causal"):
        check([resolve(request_of("nystrom", "induction"))], store)


def test_the_check_finds_a_broken_record_of_a_later_cell(plan, store):
    path = store.path(plan("primal").spec)
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(UserError, match="is not a record"):
        check([plan(), plan("primal")], store)


def test_a_final_status_is_not_run_again(plan, store, callback, unmeasured, interrupt_at):
    interrupt_at(0, DivergedError("task loss is nan by step 1"))
    assert grid([plan()], store, callback) == [(0, "diverged", True)]
    assert grid([plan()], store, callback) == [(0, "diverged", False)]


def test_a_failed_rerun_does_not_replace_a_finished_record(
    plan, store, callback, unmeasured, interrupt_at
):
    assert grid([plan()], store, callback) == [(0, "ok", True)]
    interrupt_at(2, RuntimeError("boom"))
    assert grid([plan()], store, callback, rerun=True) == [(0, "ok", True)]
    assert [record.status for record in store.read()[0]] == ["ok"]


def test_two_grids_on_one_store_run_each_cell_once(plan, store, callback, unmeasured, monkeypatch):
    plans = [plan(seed=seed) for seed in range(3)]
    monkeypatch.setattr("harness.grid.SECONDS_PER_LOOK", 0.01)
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda _: grid(plans, store, callback), range(2)))
    assert all([(seed, status) for seed, status, _ in one] == [
        (0, "ok"), (1, "ok"), (2, "ok")] for one in both)  # fmt: skip
    assert [sum(new for *_, new in cell) for cell in zip(*both, strict=True)] == [1, 1, 1]
    assert callback.phases.count("train") == 3


def test_a_cell_that_another_process_runs_is_left_to_it_and_run_when_that_ends(
    plan, store, callback, unmeasured, monkeypatch
):
    plans = [plan(seed=0), plan(seed=1)]
    name = store.name(plans[0].spec)
    other = store.locks.acquire(name, threads=1, steps=4)
    waited = []
    monkeypatch.setattr("harness.grid.SECONDS_PER_LOOK", 0.01)

    def sleep(seconds):
        waited.append(store.find(plans[1].spec).status)
        other.release(keep_state=True)

    monkeypatch.setattr("harness.grid.time.sleep", sleep)
    assert grid(plans, store, callback) == [(0, "ok", True), (1, "ok", True)]
    assert waited == ["ok"]


def test_a_failure_of_another_process_is_not_repeated_by_the_same_command(plan, store, callback):
    record = failure(plan(), store, "boom")
    assert has_outcome(record, "", rerun=False)
    assert not has_outcome(record, record.started, rerun=False)
    assert not has_outcome(record.model_copy(update={"status": "interrupted"}), "", rerun=False)


class Dying:
    """An engine whose first processes die while they run a cell; the next one runs it."""

    def __init__(self, serial, deaths):
        self.serial, self.left, self.given = serial, deaths, []

    def can_start(self):
        return self.serial.can_start()

    def submit(self, job):
        self.given.append((job.plan.spec.seed, job.restart))
        if self.left:
            self.left -= 1
            self.serial.ended.append((job, Result("died", "ended by SIGKILL")))
        else:
            self.serial.submit(job)

    def finished(self):
        return self.serial.finished()

    def close(self):
        self.given.append("closed")


@pytest.mark.parametrize("rerun", [False, True])
@pytest.mark.parametrize("deaths", [ATTEMPTS - 1, ATTEMPTS])
def test_a_cell_whose_process_dies_is_run_again_and_fails_in_the_end(
    plan, store, callback, unmeasured, deaths, rerun
):
    view = Quiet(callback)
    pool = Dying(serial(view), deaths)
    outcomes = run_all([plan(seed=0), plan(seed=1)], store, pool, view, rerun=rerun)
    status = "failed" if deaths == ATTEMPTS else "ok"
    assert [(record.status, new) for record, new in outcomes] == [(status, True), ("ok", True)]
    # Only the first process starts a repeated run from the beginning.
    assert pool.given == [(0, rerun), (0, False), (0, False), (1, rerun), "closed"]
    reason = f"its process ended {ATTEMPTS} times; the last time ended by SIGKILL"
    assert outcomes[0][0].reason == (reason if status == "failed" else "")
    assert not store.locks.is_held(store.name(plan().spec))


def test_an_interrupted_run_is_continued_with_its_threads(
    plan, store, callback, unmeasured, interrupt_at, monkeypatch
):
    monkeypatch.setattr("harness.environment.os.cpu_count", lambda: 8)
    interrupt_at(3, KeyboardInterrupt())
    with use_threads(3), pytest.raises(KeyboardInterrupt):
        grid([plan()], store, callback)
    assert grid([plan()], store, callback) == [(0, "ok", True)]
    assert store.find(plan().spec).environment.threads == 3 != torch.get_num_threads()


def test_a_run_that_another_machine_began_comes_last_and_starts_again(
    plan, store, callback, unmeasured, interrupt_at, monkeypatch
):
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        grid([plan()], store, callback)
    monkeypatch.setattr("harness.records.locks.platform.node", lambda: "another")
    other = describe("cpu").model_copy(update={"device": "an abacus", "threads": 99})
    monkeypatch.setattr("harness.provenance.describe", lambda kind: other)
    view = Quiet(callback)
    with pytest.warns(UserWarning, match="is of another machine; the run starts again"):
        outcomes = run_all([plan(seed=0), plan(seed=1)], store, serial(view), view)
    assert [call[1] for call in view.calls if call[0] == "started"] == [1, 0]
    record = outcomes[0][0]
    assert (record.status, record.environment.threads) == ("ok", 99)
    assert [point.step for point in record.curve] == [1, 2, 3, 4]


def test_a_cost_has_the_number_of_concurrent_cells(plan, store, callback, unmeasured):
    other = store.locks.acquire("another cell", threads=1, steps=4)
    ((shared, _),) = run_all([plan()], store, serial(Quiet(callback)), Quiet(callback))
    other.release(keep_state=False)
    assert shared.cost.workers == 2
    assert remeasure(shared, store).cost.workers == 1
