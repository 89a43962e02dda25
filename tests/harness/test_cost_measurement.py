"""Samples of time, and records of calls whose time, memory and parameters are known."""

from collections import Counter
from dataclasses import replace
from itertools import chain, count, cycle, repeat
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from harness import timing
from harness.costs import measurement, plan
from harness.records.cost import Limits
from harness.records.fields import Quartiles
from tests.harness.specs import COST, LIMITS, Clock, encoder, raising
from zoo.contract import Unsupported

MIB = 2**20


def call_of(clock: Clock, seconds: float, mib: int) -> measurement.TimedCall:
    # The module has a frozen bias.
    module = torch.nn.Linear(5, 3)
    module.bias.requires_grad_(False)

    def call():
        clock.now += seconds
        torch.empty(mib * MIB, dtype=torch.uint8)

    return measurement.TimedCall(call, module)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measurement, "timer_of", lambda device: timing.wall_clock(device, clock))
    monkeypatch.setattr(measurement, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def calls(monkeypatch, clock):
    # In place of layers; an error is raised where its call is built.
    calls = {"none": call_of(clock, 0.009, 6), "sdpa": call_of(clock, 0.003, 2), "built": []}
    calls["naive"] = call_of(clock, 0.0045, 7)

    def prepare(spec):
        backend = spec.options.get("softmax", {}).get("backend", spec.attention)
        calls["built"].append((backend, spec.batch))
        if isinstance(found := calls[backend], Exception):
            raise found
        return found

    monkeypatch.setattr(measurement, "prepare", prepare)
    return calls


def of(**fields):
    return COST.model_copy(update=fields)


def measured(spec=COST, timeout=60.0):
    return measurement.measure(spec, LIMITS, 0.0, timeout)


@pytest.mark.parametrize(("naive", "reference", "fastest"), [
    (0.0045, "sdpa", 0.003), (0.0015, "naive", 0.0015),
    # The formula needs a margin.
    (0.0029, "sdpa", 0.003), (0.0028, "naive", 0.0028),
])  # fmt: skip
def test_time_is_compared_with_the_fastest_softmax_and_memory_with_sdpa(
    calls, clock, naive, reference, fastest
):
    calls["naive"] = call_of(clock, naive, 7)
    cost, sdpa = measured(), measured(plan.reference_of(COST, "sdpa"))
    assert cost.seconds.median == pytest.approx(0.009) and cost.parameters == 15
    assert cost.ratio is not None and cost.ratio.median == pytest.approx(0.009 / fastest)
    assert (cost.peak_bytes, cost.memory_ratio, cost.reference) == (6 * MIB, 3, reference)
    # SDPA by name is timed itself, not the fastest backend.
    assert sdpa.ratio is not None and sdpa.ratio.median == pytest.approx(0.003 / fastest)
    assert (sdpa.memory_ratio, sdpa.reference) == (1, reference)


@pytest.mark.parametrize(("fields", "share", "tried"), [
    # Two heads of one sample, in fp32; about three tensors of their weights.
    ({}, 3 * 4 * 2 * 64 * 64, True), ({}, 3 * 4 * 2 * 64 * 64 - 1, False),
    ({"precision": "bf16"}, 3 * 2 * 2 * 64 * 64, True),
    # In decoding there is one query; a model has the weights of all layers.
    ({"operation": "decode", "causal": True}, 3 * 4 * 2 * 64, True),
    ({"level": "step", "model": encoder(depth=3)}, 3 * 3 * 4 * 2 * 64 * 64 - 1, False),
])  # fmt: skip
def test_the_formula_is_tried_up_to_a_quarter_of_the_memory(fields, share, tried, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=4 * share))
    spec = of(**fields)
    assert plan.candidates(spec) == ["sdpa", "naive"][: 1 + tried]


def test_auto_is_the_fastest_backend_and_is_timed_once(calls, clock):
    calls["naive"] = call_of(clock, 0.001, 7)
    spec = plan.reference_of(COST, "auto")
    calls["softmax"] = calls["sdpa"]  # without the option
    cost = measured(spec)
    assert cost.seconds.median == pytest.approx(0.001)
    assert cost.ratio == Quartiles(q1=1.0, median=1.0, q3=1.0) and cost.memory_ratio == 3.5
    # For the trial, and as what is measured; not as a reference.
    assert [backend for backend, _ in calls["built"]] == ["softmax", "sdpa", "naive", "naive"]


@pytest.mark.parametrize(("batching", "batch"), [("tokens=256", 1), ("4", 4)])
def test_memory_is_of_one_sample_where_the_batch_depends_on_the_length(calls, batching, batch):
    assert measured(of(batch=4, batching=batching)).memory_batch == batch
    assert {("none", batch), ("sdpa", batch)} <= {*calls["built"]}


def test_the_memory_of_decoding_has_the_state_of_both(calls, clock):
    for name, state in (("none", MIB), ("sdpa", 10 * MIB)):
        calls[name] = replace(calls[name], state_bytes=state)
    cost = measured(of(operation="decode", causal=True))
    assert (cost.memory_bytes, cost.peak_bytes) == (7 * MIB, 6 * MIB)
    assert cost.memory_ratio == pytest.approx(7 / 12)


def test_a_reference_without_memory_is_left_out_with_the_reason(calls):
    calls["sdpa"] = MemoryError()
    cost = measured()
    assert (cost.ratio, cost.memory_ratio, cost.reference) == (None, None, "")
    assert (cost.no_ratio, cost.peak_bytes) == ("softmax is out of memory", 6 * MIB)
    calls["sdpa"] = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        measured()


def test_a_reference_that_would_exceed_the_timeout_is_left_out(calls, clock, monkeypatch):
    calls["sdpa"] = call_of(clock, 0.03, 2)
    # What is measured takes 0.07 s of it, and softmax with its trial 0.48 s.
    cost = measured(timeout=0.55)
    assert cost.no_ratio == "no time is left for softmax: 0.03 s a call" and cost.ratio is None
    assert not measured(timeout=60.0).no_ratio
    # Without the formula there is no trial, which takes half of the time.
    monkeypatch.setattr(measurement, "candidates", lambda spec: ["sdpa"])
    assert not measured(timeout=0.55).no_ratio


@pytest.mark.parametrize(("operation", "level", "precision", "expected"), [
    ("forward", "layer", "bf16", 2 * 2 * 64 * 16 + 4 * 15),
    ("decode", "layer", "fp32", 2 * 4 * 16 + 4 * 15 + 100),
    # Three layers, and the optimiser of a step.
    ("train", "step", "fp32", 3 * 4 * 4 * 64 * 16 + 9 * 4 * 15),
])  # fmt: skip
def test_required_bytes_have_the_precision_and_every_layer(operation, level, precision, expected):
    depth = type("Model", (), {"depth": 3})() if level == "step" else None
    spec = of(operation=operation, model=depth, precision=precision)
    state = 100 if operation == "decode" else None
    timed = replace(call_of(Clock(), 0.0, 0), state_bytes=state)
    assert measurement.required_bytes(spec, timed) == expected


def test_limits_count_the_bytes_of_both_directions_and_two_operations_per_product(monkeypatch):
    monkeypatch.setattr(measurement, "COPIED_BYTES", {"cpu": 4096})
    monkeypatch.setattr(measurement, "SIDE", {"cpu": 8})
    monkeypatch.setattr(measurement, "sample", lambda calls, *_, **__: [[0.5] * 3, [2.0] * 3])
    found = measurement.measure_limits(torch.device("cpu"), "fp32")
    assert found == Limits(bytes_per_second=2 * 4096 / 0.5, flops_per_second=2 * 8**3 / 2)


CPU = torch.device("cpu")


@pytest.mark.parametrize("duration", [1e-6, 0.005, 7.0])
def test_calls_of_known_duration_alternate_and_are_measured_within_two_percent(duration):
    clock, order = Clock(), []
    calls = [lambda: clock.call(duration)() or order.append("a"),
             lambda: clock.call(3 * duration)() or order.append("b")]  # fmt: skip
    short, long = timing.sample(calls, timing.wall_clock(CPU, clock), seconds=0.0, clock=clock)
    assert short == pytest.approx([duration] * timing.LEAST_ROUNDS, rel=0.02)
    assert long == pytest.approx([3 * duration] * timing.LEAST_ROUNDS, rel=0.02)
    # A short call is repeated within a sample; two rounds warm up and are not counted.
    assert (len(order) > 1000) == (duration < 1e-3)
    assert duration < 1e-3 or order == ["a", "b"] * (2 + timing.LEAST_ROUNDS)


@pytest.mark.parametrize(("times", "seconds", "rounds"), [
    # The fewest rounds that an interval needs; the most; its time is spent.
    ([1.0], 1e9, timing.CERTAIN_ROUNDS), ([1.0, 9.0], 1e9, timing.MOST_ROUNDS),
    ([1.0, 9.0], 50.0, timing.LEAST_ROUNDS),
])  # fmt: skip
def test_sampling_ends_when_all_medians_are_certain_or_its_time_is_spent(times, seconds, rounds):
    calls, ticks = [(lambda: 1.0), cycle(times).__next__], map(float, count(0, 100))
    samples = timing.sample(calls, lambda call, _: call(), seconds=seconds, clock=ticks.__next__)
    assert [*map(len, samples)] == [rounds] * 2


def test_a_gpu_is_timed_between_an_empty_cache_and_the_end_of_its_work(monkeypatch):
    gpu = mock.Mock()
    gpu.event.return_value.elapsed_time.return_value = 2000.0  # milliseconds
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronise)
    monkeypatch.setattr(torch, "empty", gpu.empty)
    assert timing.kernel_clock(torch.device("cuda"))(gpu.call, 2) == 2.0
    order = [name.rpartition(".")[2] for name, *_ in gpu.mock_calls]
    once = ["zero_", "record", "call", "record", "synchronise", "elapsed_time"]
    assert [name for name in order if name in once] == once * 2


def test_a_trial_gives_the_least_time_of_each_call_that_can_run():
    clock, calls = Clock(), Counter()
    timer = timing.wall_clock(CPU, clock)

    def make(name, *seconds):
        durations = chain(seconds, repeat(seconds[-1]))
        return lambda: lambda: clock.call(next(durations))() or calls.update([name])

    found = timing.short_trial(
        {
            "hiccup": make("hiccup", 9.0, 0.1, 0.5, 0.1), "even": make("even", 0.15),
            "far": make("far", 0.4), "large": raising(MemoryError()),
            "other": raising(Unsupported("x")),
        },
        timer,
    )  # fmt: skip
    assert found == pytest.approx({"hiccup": 0.1, "even": 0.15, "far": 0.4})
    # One that is much slower is not called again: to warm up, and three times.
    assert calls["far"] == 4 < calls["even"]
    with pytest.raises(RuntimeError, match="a defect"):
        timing.short_trial({"x": raising(RuntimeError("a defect"))}, timer)
    # A slow call is timed once, after a call to warm up.
    clock.now = 0.0
    found = timing.short_trial(dict.fromkeys("ab", lambda: clock.call(2.0)), timer)
    assert (found, clock.now) == ({"a": 2.0, "b": 2.0}, 8.0)
