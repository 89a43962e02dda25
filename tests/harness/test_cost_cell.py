"""What a cell records of calls whose time, memory and parameters are known."""

from types import SimpleNamespace

import pytest
import torch

from harness import reference
from harness.cost import cell
from harness.cost.work import Work
from harness.records.cost import Limits
from harness.timing import wall_clock
from tests.harness.specs import COST, LIMITS, Clock
from zoo.contract import Unsupported

MIB = 2**20


def work_of(clock: Clock, seconds: float, mib: int) -> Work:
    """A call that takes that long and allocates that much; its module has a frozen bias."""
    module = torch.nn.Linear(5, 3)
    module.bias.requires_grad_(False)

    def call():
        clock.now += seconds
        torch.empty(mib * MIB, dtype=torch.uint8)

    return Work(call, module)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(cell, "timer_of", lambda device: wall_clock(device, made))
    monkeypatch.setattr(cell, "time", SimpleNamespace(monotonic=made))
    return made


@pytest.fixture
def works(monkeypatch, clock):
    """The work of a variant and of each backend of softmax, in place of layers, and what is built.

    A work that is an error is raised where it is built.
    """
    made = {"none": work_of(clock, 0.009, 6), "sdpa": work_of(clock, 0.003, 2), "built": []}
    made["naive"] = work_of(clock, 0.0045, 7)

    def prepare(spec):
        backend = spec.options.get("softmax", {}).get("backend", spec.attention)
        made["built"].append((backend, spec.batch))
        if isinstance(found := made[backend], Exception):
            raise found
        return found

    monkeypatch.setattr(cell, "prepare", prepare)
    return made


def measured(spec=COST, timeout=60.0):
    return cell.measure_cell(spec, LIMITS, 0.0, timeout)


def test_time_and_memory_are_those_of_the_cell_over_those_of_the_reference(works):
    one = measured()
    assert one.seconds.median == pytest.approx(0.009)
    assert one.over_softmax is not None and one.over_softmax.median == pytest.approx(3)
    assert (one.peak_bytes, one.memory_ratio) == (6 * MIB, 3)
    assert (one.parameters, one.reference) == (15, "sdpa")


def test_time_is_compared_with_the_fastest_softmax_and_memory_with_sdpa(works, clock):
    works["naive"] = work_of(clock, 0.0015, 7)
    one = measured()
    assert one.over_softmax is not None and one.over_softmax.median == pytest.approx(6)
    assert (one.reference, one.memory_over_softmax) == ("naive", 3)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0029, "sdpa"), (0.0028, "naive")])
def test_the_formula_needs_a_margin(works, clock, seconds, expected):
    works["naive"] = work_of(clock, seconds, 7)
    assert measured().reference == expected


@pytest.mark.parametrize(
    "naive", [MemoryError("7 TiB"), Unsupported("no such kernel here")], ids=repr
)
def test_a_backend_that_cannot_run_is_no_reference(works, naive):
    works["naive"] = naive
    assert measured().reference == "sdpa"


def test_the_formula_is_not_tried_where_its_weights_take_too_much_memory(works, monkeypatch):
    asked = []
    monkeypatch.setattr(reference, "formula_fits", lambda *given: asked.append(given) or False)
    assert measured().reference == "sdpa" and "naive" not in dict(works["built"])
    decoding = COST.model_copy(update={"operation": "decode", "causal": True})
    measured(decoding)
    # Two heads of one sample; in decoding there is one query.
    assert [count for count, *_ in asked] == [2 * 64 * 64, 2 * 64]


def test_auto_is_the_fastest_backend(works, clock):
    works["naive"] = work_of(clock, 0.001, 7)
    spec = cell.reference_of(COST, "auto")
    works["softmax"] = works["sdpa"]  # without the option
    one = measured(spec)
    assert one.seconds.median == pytest.approx(0.001)
    assert one.over_softmax is not None and one.over_softmax.median == 1
    assert one.memory_over_softmax == 3.5


def test_memory_is_of_one_sample_where_the_batch_depends_on_the_length(works):
    spec = COST.model_copy(update={"batch": 4, "batching": "tokens=256"})
    assert measured(spec).memory_batch == 1
    assert ("none", 1) in works["built"] and ("sdpa", 1) in works["built"]
    works["built"].clear()
    assert measured(COST.model_copy(update={"batch": 4, "batching": "4"})).memory_batch == 4
    assert {batch for _, batch in works["built"]} == {4}


def test_the_memory_of_decoding_has_the_state_of_both(works, clock):
    for name, state in (("none", MIB), ("sdpa", 10 * MIB)):
        work = works[name]
        works[name] = Work(work.call, work.module, state)
    one = measured(COST.model_copy(update={"operation": "decode", "causal": True}))
    assert (one.memory, one.peak_bytes) == (7 * MIB, 6 * MIB)
    assert one.memory_over_softmax == pytest.approx(7 / 12)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError()], ids=repr)
def test_a_reference_without_memory_is_left_out_with_the_reason(works, error):
    works["sdpa"] = error
    one = measured()
    assert (one.ratio, one.memory_ratio, one.reference) == (None, None, "")
    assert one.no_ratio == "softmax is out of memory"
    assert one.peak_bytes == 6 * MIB


def test_a_reference_that_fails_fails_the_cell(works):
    works["sdpa"] = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        measured()


def test_a_reference_that_would_take_longer_than_the_cell_has_is_left_out(
    works, clock, monkeypatch
):
    works["sdpa"] = work_of(clock, 0.03, 2)
    one = measured(timeout=0.4)
    assert one.no_ratio == "no time is left for softmax: 0.03 s a call" and one.ratio is None
    assert not measured(timeout=60.0).no_ratio
    # Without the formula there is no trial, which takes half of the time.
    monkeypatch.setattr(reference, "formula_fits", lambda *_: False)
    assert not measured(timeout=0.4).no_ratio


@pytest.mark.parametrize(
    ("operation", "level", "precision", "expected"),
    [
        ("forward", "layer", "bf16", 2 * 2 * 64 * 16 + 4 * 15),
        ("decode", "layer", "fp32", 2 * 4 * 16 + 4 * 15 + 100),
        # Three layers, and the optimiser of a step.
        ("train", "step", "fp32", 3 * 4 * 4 * 64 * 16 + 9 * 4 * 15),
        ("forward", "step", "fp32", 3 * 2 * 4 * 64 * 16 + 4 * 15),
    ],
)
def test_required_bytes_are_in_the_precision_and_of_every_layer(
    operation, level, precision, expected
):
    depth = type("Model", (), {"depth": 3})() if level == "step" else None
    spec = COST.model_copy(update={"operation": operation, "model": depth, "precision": precision})
    work = work_of(Clock(), 0.0, 0)
    state = 100 if operation == "decode" else None
    assert cell.required_bytes(spec, Work(work.call, work.module, state)) == expected


def test_limits_count_the_bytes_of_both_directions_and_two_operations_per_product(monkeypatch):
    monkeypatch.setattr(cell, "COPIED_BYTES", {"cpu": 4096})
    monkeypatch.setattr(cell, "SIDE", {"cpu": 8})
    monkeypatch.setattr(cell, "sample", lambda calls, *_, **__: [[0.5] * 3, [2.0] * 3])
    found = cell.measure_limits(torch.device("cpu"), "fp32")
    assert found == Limits(bytes_per_second=2 * 4096 / 0.5, flops_per_second=2 * 8**3 / 2)
