"""Costs of recorded runs, measured again."""

import pytest

from harness.remeasure import remeasure
from harness.run import run
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
    renewed = remeasure(record.model_copy(update={"environment": trained}), store)
    assert renewed.environment.commits == ["aaa", "bbb"]
    assert remeasure(renewed, store).environment.commits == ["aaa", "bbb"]


def test_a_cost_is_not_measured_again_on_another_machine(plan, store, callback, unmeasured):
    record = run(plan(), store, callback)
    other = record.environment.model_copy(update={"threads": 99})
    with pytest.raises(UserError, match=r"was started with threads 99 .*; measure it there"):
        remeasure(record.model_copy(update={"environment": other}), store)
    assert store.read() == ([record], [])


def test_a_cost_is_not_measured_again_with_other_data(plan, store, callback, unmeasured):
    record = run(plan(), store, callback)
    task = record.spec.task.model_copy(update={"digests": {"train": "x"}})
    old = record.model_copy(update={"spec": record.spec.model_copy(update={"task": task})})
    with pytest.raises(UserError, match=r"the data of listops@1.* have changed since the run"):
        remeasure(old, store)
