"""Costs of recorded runs, measured again."""

import pytest
import torch

from harness.measure import remeasure
from harness.records.store import Store
from harness.runner import NoProgress, run
from tests.harness.conftest import TREES, requested
from tests.reports.conftest import changed
from zoo.registry import UserError


@pytest.fixture(scope="module")
def finished(shared_data, tmp_path_factory):
    """A run that is made once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_DATA", str(shared_data))
        plan = requested("none", "listops", listops=TREES)
        return run(plan, Store(tmp_path_factory.mktemp("finished")), NoProgress(), cost=False)


@pytest.fixture
def record(finished, store, unmeasured):
    store.write(record := finished.model_copy(update={"cost": unmeasured}))
    return record


def test_a_new_cost_replaces_the_old_one_and_nothing_else(store, record, unmeasured, monkeypatch):
    """Also of a record that was repeated meanwhile, while nobody can repeat it."""
    repeated = record.model_copy(update={"started": "2030-01-01T00:00:00+00:00", "cost": None})
    store.write(repeated)
    other = unmeasured.model_copy(
        update={"softmax": unmeasured.own.model_copy(update={"flops": 7})}
    )
    name, taken = record.spec.file_name, []

    def measure(_):
        taken.append(store.locks.acquire(name, threads=1, steps=4))
        return other

    monkeypatch.setattr("harness.measure.measure", measure)
    renewed = remeasure(record, store)
    assert renewed == repeated.model_copy(update={"cost": other})
    assert store.read() == ([renewed], []) and taken == [None]
    assert not store.locks.is_held(name) and not store.locks.states()


def test_the_commits_of_training_and_of_measuring_are_both_named(store, record, monkeypatch):
    here = record.environment.model_copy(update={"commit": "bbb"})
    monkeypatch.setattr("harness.provenance.describe", lambda kind: here)
    store.write(changed(record, "environment", commit="aaa"))
    renewed = remeasure(record, store)
    assert renewed.environment.commits == ["aaa", "bbb"]
    assert remeasure(renewed, store).environment.commits == ["aaa", "bbb"]


def test_the_threads_are_those_of_the_run(store, record, unmeasured, monkeypatch):
    monkeypatch.setattr("harness.environment.os.cpu_count", lambda: 8)
    store.write(changed(record, "environment", threads=3))
    seen = []
    monkeypatch.setattr(
        "harness.measure.measure", lambda _: seen.append(torch.get_num_threads()) or unmeasured
    )
    remeasure(record, store)
    assert seen == [3] != [torch.get_num_threads()]


def other_data(record):
    return changed(record, "spec", data={"train": "x"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: changed(record, "environment", threads=99), "with threads 99 .*; measure"),
        (other_data, r"the data of listops@1.* have changed since the run"),
        (lambda record: record.model_copy(update={"status": "failed", "final": None}),
         "is no longer a finished run; run it again"),
        (None, "is no longer a finished run; run it again"),
    ],
)  # fmt: skip
def test_another_record_is_not_measured_and_stays_as_it_is(store, record, change, message):
    store.path(record.spec).unlink()
    left = [change(record)] if change else []
    for other in left:
        store.write(other)
    with pytest.raises(UserError, match=message):
        remeasure(left[0] if change is other_data else record, store)
    assert store.read() == (left, [])


def test_a_run_that_a_process_repeats_is_not_measured(store, record):
    other = store.locks.acquire(record.spec.file_name, threads=1, steps=4)
    with pytest.raises(UserError, match=r"another process runs .*; measure it when that has ended"):
        remeasure(record, store)
    other.release(keep_state=False)
    assert store.read() == ([record], [])
