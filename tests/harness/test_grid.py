"""Many cells: finished ones are not run again, and a failing one does not stop the others."""

import os
import subprocess
import sys

import pytest
import torch

import harness.run
from harness.environment import describe
from harness.grid import check, run_all
from harness.plan import resolve
from harness.run import run
from harness.train import DivergedError
from zoo.contract import Unsupported
from zoo.registry import UserError


def grid(plans, store, callback, rerun=False) -> list[tuple[int, str, bool]]:
    outcome = run_all(plans, store, lambda spec: callback, rerun=rerun)
    return [(record.spec.seed, record.status, new) for record, new in outcome]


def test_a_finished_cell_is_not_run_again_unless_rerun(plan, store, callback, unmeasured):
    plans = [plan(seed=0), plan(seed=1)]
    assert grid(plans[:1], store, callback) == [(0, "ok", True)]
    assert grid(plans, store, callback) == [(0, "ok", False), (1, "ok", True)]
    assert grid(plans, store, callback, rerun=True) == [(0, "ok", True), (1, "ok", True)]


def test_a_failing_cell_does_not_stop_the_next_and_is_run_again_later(
    plan, store, callback, unmeasured, monkeypatch
):
    real = harness.run.fit

    def fail_for_seed_0(trainer, *rest, **named):
        if torch.initial_seed() == 0:
            raise RuntimeError("boom")
        real(trainer, *rest, **named)

    plans = [plan(seed=0), plan(seed=1)]
    with monkeypatch.context() as failing:
        failing.setattr("harness.run.fit", fail_for_seed_0)
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
    assert record.final.test_accuracy == uninterrupted.final.test_accuracy


def test_partial_files_of_dead_processes_are_removed(plan, store, callback, unmeasured):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    store.folder.mkdir()
    dead = store.folder / f".x.json.{process.pid}.partial"
    alive = store.folder / f".y.json.{os.getpid()}.partial"
    foreign = store.folder / ".z.partial"
    for path in (dead, alive, foreign):
        path.write_text("{")
    grid([], store, callback)
    assert sorted(store.folder.iterdir()) == sorted([alive, foreign])


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
    shallow = plan("softmax+primal", settings={"model": {"depth": 1}})
    with pytest.raises(UserError, match="depth=1 is less than"):
        check([plan(), shallow], store)


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
