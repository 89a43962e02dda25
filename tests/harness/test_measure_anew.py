"""Costs of finished runs, measured once more."""

import pytest

from harness.run import measure_anew, run
from zoo.registry import UserError


def test_a_cost_measured_anew_replaces_the_old_one_and_nothing_else(
    plan, store, quiet, unmeasured, monkeypatch
):
    record = run(plan(), store, quiet)
    other = unmeasured.model_copy(
        update={"softmax": unmeasured.own.model_copy(update={"flops": 7})}
    )
    monkeypatch.setattr("harness.run.measure", lambda *_: other)
    renewed = measure_anew(record, store)
    assert renewed == record.model_copy(update={"cost": other})
    assert store.read() == ([renewed], [])


def test_who_measured_anew_is_named_beside_who_trained(plan, store, quiet, unmeasured, monkeypatch):
    record = run(plan(), store, quiet)
    trained = record.environment.model_copy(update={"commit": "aaa"})
    here = record.environment.model_copy(update={"commit": "bbb"})
    monkeypatch.setattr("harness.run.describe", lambda kind: here)
    renewed = measure_anew(record.model_copy(update={"environment": trained}), store)
    assert renewed.environment.commits == ["aaa", "bbb"]
    assert measure_anew(renewed, store).environment.commits == ["aaa", "bbb"]


def test_a_cost_is_not_measured_anew_on_another_machine(
    plan, store, quiet, unmeasured, monkeypatch
):
    record = run(plan(), store, quiet)
    other = record.environment.model_copy(update={"threads": 99})
    with pytest.raises(UserError, match=r"was begun with threads 99 .*; measure it there"):
        measure_anew(record.model_copy(update={"environment": other}), store)
    assert store.read() == ([record], [])
