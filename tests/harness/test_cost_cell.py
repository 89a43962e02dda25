"""What a cell records of calls whose time, memory and parameters are known."""

import pytest
import torch

from harness.cost import cell, limits
from harness.cost.timing import cpu_timer
from harness.cost.work import Work
from harness.records.cost import CostSpec, Limits

MIB = 2**20
LIMITS = Limits(bytes_per_second=1e9, flops_per_second=1e9)
SPEC = CostSpec(
    attention="none", options={"none": {}}, level="layer", operation="train", length=64, batch=1,
    batching="1", dim=16, heads=2, causal=False, model=None, precision="fp32", device="cpu",
    machine="test", threads=1,
)  # fmt: skip


class Clock:
    """A clock that calls advance."""

    now = 0.0

    def __call__(self):
        return self.now


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
    monkeypatch.setattr(cell, "timer_of", lambda device: cpu_timer(made))
    return made


@pytest.fixture
def works(monkeypatch, clock):
    """Own work and that of the reference by name, in place of the layers of a specification."""
    made = {"none": work_of(clock, 0.009, 6), "softmax": work_of(clock, 0.003, 2)}

    def prepare(spec):
        if isinstance(found := made[spec.attention], Exception):
            raise found
        return found

    monkeypatch.setattr(cell, "prepare", prepare)
    return made


def measured(timeout=60.0):
    return cell.measure_cell(SPEC, LIMITS, 0.0, timeout)


def test_time_and_memory_are_those_of_the_cell_over_those_of_the_reference(works):
    one = measured()
    assert one.seconds.median == pytest.approx(0.009)
    assert one.ratio is not None and one.ratio.median == pytest.approx(3)
    assert (one.peak_bytes, one.memory_ratio) == (6 * MIB, 3)
    assert one.parameters == 15


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError()], ids=repr)
def test_a_reference_without_memory_is_left_out_with_the_reason(works, error):
    works["softmax"] = error
    one = measured()
    assert (one.ratio, one.memory_ratio) == (None, None)
    assert one.no_ratio == "softmax is out of memory"
    assert one.peak_bytes == 6 * MIB


def test_a_reference_that_fails_fails_the_cell(works):
    works["softmax"] = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        measured()


def test_a_reference_that_would_take_longer_than_the_cell_has_is_left_out(works, clock):
    works["softmax"] = work_of(clock, 0.03, 2)
    one = measured(timeout=0.2)
    assert one.no_ratio == "no time is left for softmax: 0.03 s a call" and one.ratio is None
    assert not measured(timeout=60.0).no_ratio


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
    spec = SPEC.model_copy(update={"operation": operation, "model": depth, "precision": precision})
    work = work_of(Clock(), 0.0, 0)
    state = 100 if operation == "decode" else None
    assert cell.required_bytes(spec, Work(work.call, work.module, state)) == expected


def test_limits_count_the_bytes_of_both_directions_and_two_operations_per_product(monkeypatch):
    monkeypatch.setattr(limits, "COPIED_BYTES", {"cpu": 4096})
    monkeypatch.setattr(limits, "SIDE", {"cpu": 8})
    monkeypatch.setattr(
        limits, "sample_alternately", lambda calls, *_, **__: [[0.5] * 3, [2.0] * 3]
    )
    found = limits.measure_limits(torch.device("cpu"), "fp32")
    assert found == Limits(bytes_per_second=2 * 4096 / 0.5, flops_per_second=2 * 8**3 / 2)
