"""Sweeps: their order, what is skipped or measured again; how the process of a measurement ends."""

import multiprocessing
import resource
from functools import partial
from typing import Any
from unittest import mock

import pytest

import harness.costs.measurement
import harness.costs.sweep
from harness.costs.sweep import Outcome, measure_all, measure_in_process, measure_runs, sweep
from harness.environment import describe
from harness.records.frame import of_costs
from harness.records.store import CostStore, Store
from tests.conftest import ROOT
from tests.harness.calls import end
from tests.harness.specs import COST, LIMITS, MEASURED
from tests.reports.conftest import make_record
from zoo.registry import UserError


def spec(attention, length, machine="one"):
    options = {name: {} for name in attention.split("+")}
    return COST.model_copy(update={
        "attention": attention, "options": options, "length": length, "batch": 1024 // length,
        "batching": "tokens=1024", "machine": machine,
    })  # fmt: skip


SPECS = [spec(name, length) for name in ("softmax", "none") for length in (512, 256, 1024)]


def measuring(failures=()):
    def measure(spec):
        status = dict(failures).get((spec.attention, spec.length))
        return Outcome(status, "a reason", None) if status else Outcome("ok", "", MEASURED)

    return mock.Mock(side_effect=measure)


def calls(measure):
    return [(spec.attention, spec.length) for ((spec,), _) in measure.call_args_list]


@pytest.fixture
def store(tmp_path) -> CostStore:
    return CostStore(tmp_path)


@pytest.fixture
def run(store):
    def make(failures=(), rerun=False):
        measure = measuring(failures)
        return list(sweep(SPECS, store, measure, rerun=rerun)), calls(measure)

    return make


def statuses(outcomes):
    return {(record.spec.attention, record.spec.length): record.status for record, _ in outcomes}


def test_rows_are_measured_from_short_to_long_and_every_measurement_has_a_record(run, store):
    outcomes, calls = run()
    assert calls == [(name, n) for name in ("softmax", "none") for n in (256, 512, 1024)]
    assert all(new for _, new in outcomes)
    records, broken = store.read()
    assert len(records) == 6 and not broken
    linear = {(record.spec.attention, record.claims_linear) for record in records}
    assert linear == {("none", True), ("softmax", False)}


@pytest.mark.parametrize("status", ["out_of_memory", "failed"])
def test_longer_lengths_of_a_row_that_fails_are_skipped_and_a_failure_is_not_final(
    status, run, store
):
    outcomes, calls = run({("softmax", 512): status})
    found = statuses(outcomes)
    assert (found["softmax", 512], found["softmax", 1024]) == (status, "skipped")
    assert ("softmax", 1024) not in calls
    skipped = store.find(spec("softmax", 1024))
    assert skipped and skipped.reason == f"{status.replace('_', ' ')} at 512 tokens"
    assert {status for (name, _), status in found.items() if name == "none"} == {"ok"}
    outcomes, calls = run()
    assert calls == [("softmax", 512), ("softmax", 1024)] * (status == "failed")
    again = {record.spec.length for record, new in outcomes if new}
    assert again == ({512, 1024} if status == "failed" else {1024})
    assert (statuses(outcomes)["softmax", 1024] == "ok") == (status == "failed")
    assert len(run(rerun=True)[1]) == len(SPECS)


def test_a_cost_of_other_code_is_measured_again_unless_it_is_kept(run, store):
    run()
    first, second = (store.find(one) for one in SPECS[:2])
    # A cost is of the first and of the second part of a version.
    for record, versions in ((first, {"softmax": "1.9"}), (second, {"softmax": "0.0"})):
        store.write(record.model_copy(update={"versions": versions}))
    assert of_costs(store.read()[0])["outdated"].sum() == 2
    measure = measuring()
    assert len([*sweep(SPECS, store, measure, rerun=False, keep_outdated=True)]) == len(SPECS)
    assert not measure.called and run()[1] == [("softmax", 256), ("softmax", 512)]
    assert not of_costs(store.read()[0])["outdated"].any()


def test_a_record_has_its_seconds_its_machine_and_the_claim_of_all_its_variants(store):
    ticks, both, measure = iter([10.0, 12.5, 20.0, 21.0]), "softmax+none", measuring()
    specs = [spec(both, 256), spec(both, 256, "other")]
    found = sweep(specs, store, measure, rerun=False, clock=lambda: next(ticks))
    first, _ = next(found)
    # What was measured before an end is kept.
    assert (store.read(), measure.call_count) == (([first], []), 1)
    costs = [first, *(cost for cost, _ in found)]
    assert [(cost.seconds, cost.claims_linear) for cost in costs] == [(2.5, False), (1.0, False)]
    assert len(store.read()[0]) == 2


def test_a_file_that_is_no_record_is_rejected_before_anything_is_measured(store):
    measure = measuring()
    store.path(SPECS[-1]).write_text("{}")
    with pytest.raises(UserError, match="is not a record"):
        list(sweep(SPECS, store, measure, rerun=True))
    assert not measure.called


def test_the_limits_of_each_precision_are_measured_once_and_only_where_something_is_measured(
    outcomes, tmp_path, recorded
):
    limits = recorded(harness.costs.measurement, "measure_limits", lambda _, precision: precision)
    bf16 = [one.model_copy(update={"precision": "bf16"}) for one in SPECS]
    for specs in ([*SPECS, *bf16, *SPECS], SPECS):
        records = measure_all(specs, tmp_path)
        assert len(records) == len({one.id for one in specs}) and limits == ["fp32", "bf16"]


@pytest.fixture
def runs(tmp_path, outcomes):
    return lambda *runs, **how: measure_runs(runs, Store(tmp_path), **how)


HERE: dict[str, Any] = {"device": "cpu", "machine": describe("cpu").device, "threads": 3}


def test_each_shape_of_finished_runs_of_this_machine_is_measured_once(runs, caplog):
    given = [
        make_record("primal", **HERE), make_record("primal", seed=1, train={"lr": 0.5}, **HERE),
        make_record("linear", **{**HERE, "machine": "another"}),
        make_record("none", status="failed", reason="no", **HERE),
    ]  # fmt: skip
    costs = runs(*given)
    assert [(c.spec.attention, c.spec.operation, c.spec.threads) for c in costs] == [
        ("primal", "train", 3), ("primal", "forward", 3),
    ]  # fmt: skip
    assert {cost.spec.task.key for cost in costs} == {"listops@1"}
    caplog.set_level("INFO", "harness.costs.sweep")
    caplog.clear()
    assert runs(*given) == costs and runs(*given, rerun=True)
    lines = [line for line in caplog.messages if "tokens" in line]
    assert ["present" in line for line in lines] == [True] * 2 + [False] * 2 and runs() == []


def test_nothing_is_measured_beside_runs_in_progress(runs, tmp_path):
    lock = Store(tmp_path).locks.acquire("another run", threads=1, steps=4)
    with pytest.warns(
        UserWarning, match=r"nothing is measured while runs are in progress on this machine \(1\)"
    ):
        assert runs(make_record("none", **HERE)) == []
    lock.release(keep_state=False)
    assert len(runs(make_record("none", **HERE))) == 2


@pytest.mark.parametrize(("how", "status", "reason"), [
    ("measures", "ok", ""), ("crashes", "crashed", "it was ended by SIGSEGV"),
    ("is killed", "out_of_memory", "the system ended it, probably for its memory"),
    ("raises", "failed", "ValueError: an error"), ("hangs", "timeout", "it took more than 0.5 s"),
    ("allocates everything", "out_of_memory", "RuntimeError: "),
])  # fmt: skip
def test_a_process_gives_its_measurement_or_a_reason(monkeypatch, how, status, reason, capfd):
    monkeypatch.syspath_prepend(ROOT)  # for the module of the function
    monkeypatch.setenv("NAMED_SINCE", how)
    timeout = 0.5 if how == "hangs" else 120.0
    actual = measure_in_process(
        COST, LIMITS, seconds=0.0, timeout=timeout, measure=partial(end, how, MEASURED)
    )
    assert actual.status == status and (actual.measured is None) == (status != "ok")
    assert actual.reason.startswith(reason) and not multiprocessing.active_children()


@pytest.mark.parametrize("limit", [2**33, resource.RLIM_INFINITY])
def test_a_measurement_keeps_a_lower_limit_of_the_user(limit, monkeypatch):
    process, limits = mock.Mock(), []
    process().memory_info().vms = 2**34
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    monkeypatch.setattr("harness.costs.sweep.psutil.Process", process)
    harness.costs.sweep._limit_memory()
    ((soft, hard),) = limits
    assert hard == limit and (soft == limit if limit > 0 else soft > 2**34)
