"""Costs of recorded runs, measured again."""

import pytest
import torch

from harness.remeasure import remeasure
from harness.runner import run
from zoo.registry import UserError


def test_a_new_cost_replaces_the_old_one_and_nothing_else(
    plan, store, callback, unmeasured, monkeypatch
):
    record = run(plan(), store, callback)
    other = unmeasured.model_copy(
        update={"softmax": unmeasured.own.model_copy(update={"flops": 7})}
    )
    monkeypatch.setattr("harness.remeasure.measure", lambda plan: other)
    renewed = remeasure(record, store)
    assert renewed == record.model_copy(update={"cost": other})
    assert store.read() == ([renewed], [])


def test_the_commits_of_training_and_of_measuring_are_both_named(
    plan, store, callback, unmeasured, monkeypatch
):
    record = run(plan(), store, callback)
    trained = record.environment.model_copy(update={"commit": "aaa"})
    here = record.environment.model_copy(update={"commit": "bbb"})
    monkeypatch.setattr("harness.provenance.describe", lambda kind: here)
    store.write(record.model_copy(update={"environment": trained}))
    renewed = remeasure(record, store)
    assert renewed.environment.commits == ["aaa", "bbb"]
    assert remeasure(renewed, store).environment.commits == ["aaa", "bbb"]


def test_a_cost_is_not_measured_again_on_another_machine(plan, store, callback, unmeasured):
    record = run(plan(), store, callback)
    threads = record.environment.model_copy(update={"threads": 99})
    other = record.model_copy(update={"environment": threads})
    store.write(other)
    with pytest.raises(UserError, match=r"was started with threads 99 .*; measure it there"):
        remeasure(record, store)
    assert store.read() == ([other], [])


def test_a_cost_is_not_measured_again_with_other_data(plan, store, callback, unmeasured):
    record = run(plan(), store, callback)
    task = record.spec.task.model_copy(update={"digests": {"train": "x"}})
    old = record.model_copy(update={"spec": record.spec.model_copy(update={"task": task})})
    store.write(old)
    with pytest.raises(UserError, match=r"the data of listops@1.* have changed since the run"):
        remeasure(old, store)


def test_a_record_that_was_repeated_meanwhile_keeps_all_but_its_cost(
    plan, store, callback, unmeasured
):
    old = run(plan(), store, callback)
    repeated = old.model_copy(update={"started": "2030-01-01T00:00:00+00:00", "cost": None})
    store.write(repeated)
    expected = repeated.model_copy(update={"cost": unmeasured})
    assert remeasure(old, store) == expected
    assert store.read() == ([expected], [])


def test_a_run_that_a_process_repeats_is_not_measured(plan, store, callback, unmeasured):
    record = run(plan(), store, callback)
    name = store.name(record.spec)
    other = store.locks.acquire(name, threads=1, steps=4)
    with pytest.raises(UserError, match=r"another process runs .*; measure it when that has ended"):
        remeasure(record, store)
    other.release(keep_state=False)
    assert store.read() == ([record], [])
    remeasure(record, store)
    assert not store.locks.is_held(name) and not store.locks.states()


def test_nobody_can_repeat_a_run_while_it_is_measured(
    plan, store, callback, unmeasured, monkeypatch
):
    record, taken = run(plan(), store, callback), []

    def measure(_):
        taken.append(store.locks.acquire(store.name(record.spec), threads=1, steps=4))
        return unmeasured

    monkeypatch.setattr("harness.remeasure.measure", measure)
    remeasure(record, store)
    assert taken == [None]


@pytest.mark.parametrize("status", ["failed", None])
def test_a_record_that_no_longer_is_of_a_finished_run_is_not_measured(
    plan, store, callback, unmeasured, status
):
    record = run(plan(), store, callback)
    store.path(record.spec).unlink()
    left = [record.model_copy(update={"status": status, "final": None})] if status else []
    for one in left:
        store.write(one)
    with pytest.raises(UserError, match="is no longer a finished run; run it again"):
        remeasure(record, store)
    assert store.read() == (left, [])


def test_a_measurement_that_changes_the_state_of_pytorch_is_not_written(
    plan, store, callback, unmeasured, monkeypatch
):
    record = run(plan(), store, callback)
    monkeypatch.setattr("harness.remeasure.measure", lambda _: torch.set_grad_enabled(False))
    with pytest.raises(UserError, match="the gradient mode"):
        remeasure(record, store)
    assert store.read() == ([record], []) and torch.is_grad_enabled()
