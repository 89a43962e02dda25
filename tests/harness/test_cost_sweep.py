"""Sweeps: the order of cells, what is skipped, and what is measured again."""

import pytest

from harness.cost.process import Outcome
from harness.cost.sweep import sweep
from harness.records.cost import CostSpec, Limits, Measured
from harness.records.fields import Quartiles
from harness.records.store import CostStore
from zoo.registry import UserError

SECOND = Quartiles(q1=1, median=1, q3=1)
MEASURED = Measured(
    seconds=SECOND, samples=9, ratio=SECOND, no_ratio="", peak_bytes=1, memory_ratio=1, flops=1,
    analytic_flops=None, backend="", required_bytes=1, parameters=1, state_bytes=None,
    limits=Limits(bytes_per_second=1, flops_per_second=1),
)  # fmt: skip


def spec(attention, length, machine="one"):
    return CostSpec(
        attention=attention, options={name: {} for name in attention.split("+")},
        level="layer", operation="train", length=length,
        batch=1024 // length, batching="tokens=1024", dim=16, heads=2, causal=False,
        model=None, precision="fp32", device="cpu", machine=machine, threads=1,
    )  # fmt: skip


SPECS = [spec(name, length) for name in ("softmax", "none") for length in (512, 256, 1024)]


class Measure:
    """Measures nothing, and keeps the cells that it was called with."""

    def __init__(self, failures=()):
        self.failures, self.calls = dict(failures), []

    def __call__(self, spec):
        self.calls.append((spec.attention, spec.length))
        status = self.failures.get((spec.attention, spec.length))
        return Outcome(status, "a reason", None) if status else Outcome("ok", "", MEASURED)


def statuses(outcomes):
    return {(one.spec.attention, one.spec.length): one.status for one, _ in outcomes}


def test_rows_are_measured_from_short_to_long_and_every_cell_has_a_record(tmp_path):
    measure, store = Measure(), CostStore(tmp_path)
    outcomes = list(sweep(SPECS, store, measure, rerun=False))
    lengths = [256, 512, 1024]
    assert measure.calls == [(name, n) for name in ("softmax", "none") for n in lengths]
    assert all(new for _, new in outcomes)
    records, broken = store.read()
    assert len(records) == 6 and not broken
    assert {one.claims_linear for one in records if one.spec.attention == "none"} == {True}
    assert {one.claims_linear for one in records if one.spec.attention == "softmax"} == {False}


@pytest.mark.parametrize("status", ["out_of_memory", "timeout", "crashed", "failed"])
def test_longer_lengths_of_a_row_that_fails_are_skipped_with_the_reason(status, tmp_path):
    measure, store = Measure({("softmax", 512): status}), CostStore(tmp_path)
    outcomes = list(sweep(SPECS, store, measure, rerun=False))
    assert statuses(outcomes)["softmax", 512] == status
    assert statuses(outcomes)["softmax", 1024] == "skipped"
    assert ("softmax", 1024) not in measure.calls
    skipped = store.find(spec("softmax", 1024))
    assert skipped and skipped.reason == f"{status.replace('_', ' ')} at 512 tokens"
    assert {status for (name, _), status in statuses(outcomes).items() if name == "none"} == {"ok"}


@pytest.mark.parametrize("status", ["out_of_memory", "timeout", "crashed"])
def test_a_cell_with_a_final_record_is_not_measured_again_unless_asked(status, tmp_path):
    store = CostStore(tmp_path)
    list(sweep(SPECS, store, Measure({("none", 1024): status}), rerun=False))
    again = Measure()
    outcomes = list(sweep(SPECS, store, again, rerun=False))
    assert again.calls == [] and not any(new for _, new in outcomes)
    list(sweep(SPECS, store, again, rerun=True))
    assert len(again.calls) == len(SPECS)


def test_a_failed_cell_and_those_skipped_for_it_are_measured_by_the_next_sweep(tmp_path):
    store = CostStore(tmp_path)
    list(sweep(SPECS, store, Measure({("softmax", 512): "failed"}), rerun=False))
    again = Measure()
    outcomes = list(sweep(SPECS, store, again, rerun=False))
    assert again.calls == [("softmax", 512), ("softmax", 1024)]
    assert set(statuses(outcomes).values()) == {"ok"}


def test_a_sweep_that_is_ended_loses_at_most_the_cell_in_progress(tmp_path):
    store, first = CostStore(tmp_path), Measure()
    cells = sweep(SPECS, store, first, rerun=False)
    next(cells), next(cells)
    cells.close()
    again = Measure()
    list(sweep(SPECS, store, again, rerun=False))
    assert len(first.calls) == 2 and len(again.calls) == len(SPECS) - 2


def test_a_record_has_the_seconds_of_its_cell_and_the_claim_of_all_its_variants(tmp_path):
    ticks = iter([10.0, 12.5])
    cells = sweep(
        [spec("softmax+none", 256)], CostStore(tmp_path), Measure(), rerun=False,
        clock=lambda: next(ticks),
    )  # fmt: skip
    ((record, _),) = cells
    assert record.seconds == 2.5 and record.claims_linear is False


def test_the_cells_of_two_machines_are_different_records(tmp_path):
    store, measure = CostStore(tmp_path), Measure()
    list(sweep([spec("none", 256), spec("none", 256, "other")], store, measure, rerun=False))
    assert len(measure.calls) == 2 and len(store.read()[0]) == 2


@pytest.mark.parametrize("rerun", [False, True])
def test_a_file_that_is_no_record_is_rejected_before_anything_is_measured(rerun, tmp_path):
    store, measure = CostStore(tmp_path), Measure()
    store.path(SPECS[-1]).write_text("{}")
    with pytest.raises(UserError, match="is not a record"):
        list(sweep(SPECS, store, measure, rerun=rerun))
    assert not measure.calls
