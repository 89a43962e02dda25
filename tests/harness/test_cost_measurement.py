"""Samples of time, and records of calls whose time, memory and parameters are known."""

from dataclasses import replace
from itertools import count, cycle
from types import SimpleNamespace

import pytest
import torch

from harness import timing
from harness.costs import measurement, plan
from harness.records.cost import Limits, softmax_by
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
    ({"operation": "decode", "causal": True}, 3 * 4 * 2 * 64 - 1, False),
    ({"level": "step", "model": encoder(depth=3)}, 3 * 3 * 4 * 2 * 64 * 64, True),
    ({"level": "step", "model": encoder(depth=3)}, 3 * 3 * 4 * 2 * 64 * 64 - 1, False),
])  # fmt: skip
def test_the_formula_is_tried_up_to_a_quarter_of_the_memory(fields, share, tried, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=4 * share))
    spec = COST.model_copy(update=fields)
    assert plan.candidates(spec) == ["sdpa", "naive"][: 1 + tried]


def test_auto_is_the_fastest_backend_and_is_timed_once(calls, clock):
    calls["naive"] = call_of(clock, 0.001, 7)
    spec = plan.reference_of(COST, "auto")
    calls["softmax"] = calls["sdpa"]  # without the option
    cost = measured(spec)
    assert cost.seconds.median == pytest.approx(0.001)
    assert cost.ratio == Quartiles(q1=1.0, median=1.0, q3=1.0)
    assert cost.memory_ratio == 3.5
    # For the trial, and as what is measured; not as a reference.
    assert [backend for backend, _ in calls["built"]] == ["softmax", "sdpa", "naive", "naive"]


def test_auto_is_one_backend_in_every_layer_of_a_composition():
    options = {"softmax": {}, "primal": {"rank": 2}}
    assert softmax_by("naive", options)["softmax"] == {"backend": "naive"}
    named = {"softmax": {"backend": "sdpa"}}
    assert softmax_by("naive", named) == named
    assert softmax_by("naive", {"primal": {}}) == {"primal": {}}


def test_memory_is_of_one_sample_where_the_batch_depends_on_the_length(calls):
    spec = COST.model_copy(update={"batch": 4, "batching": "tokens=256"})
    assert measured(spec).memory_batch == 1
    assert ("none", 1) in calls["built"] and ("sdpa", 1) in calls["built"]
    calls["built"].clear()
    assert measured(COST.model_copy(update={"batch": 4, "batching": "4"})).memory_batch == 4
    assert {batch for _, batch in calls["built"]} == {4}


def test_the_memory_of_decoding_has_the_state_of_both(calls, clock):
    for name, state in (("none", MIB), ("sdpa", 10 * MIB)):
        calls[name] = replace(calls[name], state_bytes=state)
    cost = measured(COST.model_copy(update={"operation": "decode", "causal": True}))
    assert (cost.memory_bytes, cost.peak_bytes) == (7 * MIB, 6 * MIB)
    assert cost.memory_ratio == pytest.approx(7 / 12)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError()], ids=repr)
def test_a_reference_without_memory_is_left_out_with_the_reason(calls, error):
    calls["sdpa"] = error
    cost = measured()
    assert (cost.ratio, cost.memory_ratio, cost.reference) == (None, None, "")
    assert cost.no_ratio == "softmax is out of memory"
    assert cost.peak_bytes == 6 * MIB


def test_a_reference_that_fails_fails_the_measurement(calls):
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
    ("forward", "step", "fp32", 3 * 2 * 4 * 64 * 16 + 4 * 15),
])  # fmt: skip
def test_required_bytes_have_the_precision_and_every_layer(operation, level, precision, expected):
    depth = type("Model", (), {"depth": 3})() if level == "step" else None
    spec = COST.model_copy(update={"operation": operation, "model": depth, "precision": precision})
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
def test_calls_of_known_duration_are_measured_within_two_percent(duration):
    clock = Clock()
    calls = [clock.call(duration), clock.call(3 * duration)]
    short, long = timing.sample(calls, timing.wall_clock(CPU, clock), seconds=0.0, clock=clock)
    assert short == pytest.approx([duration] * len(short), rel=0.02)
    assert long == pytest.approx([3 * duration] * len(long), rel=0.02)


def test_a_short_call_is_repeated_within_a_sample():
    repeats = []
    timing.sample([print], lambda _, count: repeats.append(count) or 0.0004, seconds=0.0)
    assert repeats == [1, 1] + [5] * timing.LEAST_ROUNDS


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
    order = []

    def log(name, value=None):
        return lambda *_, **__: order.append(name) or value

    event = SimpleNamespace(record=log("event"), elapsed_time=log("read", 2000.0))
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: enable_timing and event)
    monkeypatch.setattr(torch.cuda, "synchronize", log("synchronise"))
    monkeypatch.setattr(torch, "empty", lambda *_, **__: SimpleNamespace(zero_=log("flush")))
    timer = timing.kernel_clock(torch.device("cuda"))
    # Events measure milliseconds.
    assert timer(log("call"), 2) == 2.0
    assert order == ["flush", "event", "call", "event", "synchronise", "read"] * 2


def test_calls_alternate():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    samples = timing.sample(calls, lambda call, count: call() or 1.0, seconds=0.0)
    # Two rounds warm up and are not counted.
    assert order == ["a", "b"] * (2 + timing.LEAST_ROUNDS)
    assert samples == [[1.0] * timing.LEAST_ROUNDS] * 2


def test_a_trial_gives_the_least_time_of_each_call_that_can_run():
    clock, calls = Clock(), []

    def maker(name, *seconds):
        durations = iter(seconds)

        def call():
            calls.append(name)
            clock.now += next(durations, seconds[-1])

        return lambda: call

    timer = timing.wall_clock(CPU, clock)
    found = timing.short_trial(
        {
            "hiccup": maker("hiccup", 9.0, 0.5, 0.1), "even": maker("even", 0.15),
            "far": maker("far", 0.4), "large": raising(MemoryError()),
            "other": raising(Unsupported("x")),
        },
        timer,
    )  # fmt: skip
    assert found == pytest.approx({"hiccup": 0.1, "even": 0.15, "far": 0.4})
    # One that is much slower is not called again: to warm up, and three times.
    assert calls.count("far") == 4 < calls.count("even")
    with pytest.raises(RuntimeError, match="a defect"):
        timing.short_trial({"x": raising(RuntimeError("a defect"))}, timer)


def test_a_slow_call_is_timed_once_in_a_trial():
    clock = Clock()
    slow = clock.call(2.0)
    found = timing.short_trial(dict.fromkeys("ab", lambda: slow), timing.wall_clock(CPU, clock))
    assert found == {"a": 2.0, "b": 2.0}
    # Each warms up once.
    assert clock.now == 8.0
