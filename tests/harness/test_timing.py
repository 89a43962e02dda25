"""Samples of time: their number, their certainty, and the time of a call of known length."""

from itertools import count
from types import SimpleNamespace

import pytest
import torch

from harness.timing import (
    CERTAIN_ROUNDS,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    kernel_clock,
    relative_uncertainty,
    sample,
    short_trial,
    wall_clock,
)
from tests.harness.specs import Clock, raising
from zoo.contract import Unsupported

CPU = torch.device("cpu")


def idle():
    """A call; a scripted timer says how long it takes."""


def scripted(seconds):
    """A timer that returns the next of `seconds`, whatever it times."""
    values = iter(seconds)
    return lambda call, repeats: next(values)


@pytest.mark.parametrize("duration", [1e-6, 0.005, 7.0])
def test_calls_of_known_duration_are_measured_within_two_percent(duration):
    clock = Clock()
    calls = [clock.call(duration), clock.call(3 * duration)]
    short, long = sample(calls, wall_clock(CPU, clock), seconds=0.0, clock=clock)
    assert short == pytest.approx([duration] * len(short), rel=0.02)
    assert long == pytest.approx([3 * duration] * len(long), rel=0.02)


def test_a_short_call_is_repeated_within_a_sample():
    clock = Clock()
    repeats = []

    def timer(call, count):
        repeats.append(count)
        return wall_clock(CPU, clock)(call, count)

    sample([clock.call(0.0004)], timer, seconds=0.0, shortest=0.002, clock=clock)
    assert repeats == [1, 1] + [5] * LEAST_ROUNDS


def test_calls_of_equal_time_end_after_the_fewest_rounds_that_an_interval_needs():
    (seconds,) = sample([idle], scripted([0.01] * 1000), seconds=1e9)
    assert len(seconds) == CERTAIN_ROUNDS


def test_noise_is_sampled_until_the_median_is_certain():
    generator = torch.Generator().manual_seed(0)
    noise = (1 + 0.1 * torch.rand(10_000, generator=generator)).tolist()
    (seconds,) = sample([idle], scripted(noise), seconds=1e9)
    assert CERTAIN_ROUNDS < len(seconds) < MOST_ROUNDS
    assert relative_uncertainty(seconds) <= 0.02 < relative_uncertainty(seconds[:CERTAIN_ROUNDS])


def test_sampling_goes_on_while_one_of_the_medians_is_uncertain():
    steady, noisy = (lambda: 1.0), iter([1.0, 9.0] * 1000).__next__
    samples = sample([steady, noisy], lambda call, repeats: call(), seconds=1e9)
    assert [*map(len, samples)] == [MOST_ROUNDS] * 2


def test_a_gpu_is_timed_between_an_empty_cache_and_the_end_of_its_work(monkeypatch):
    order = []

    def log(name, value=None):
        return lambda *_, **__: order.append(name) or value

    event = SimpleNamespace(record=log("event"), elapsed_time=log("read", 2000.0))
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: enable_timing and event)
    monkeypatch.setattr(torch.cuda, "synchronize", log("synchronise"))
    monkeypatch.setattr(torch, "empty", lambda *_, **__: SimpleNamespace(zero_=log("flush")))
    timer = kernel_clock(torch.device("cuda"))
    # Events measure milliseconds.
    assert timer(log("call"), 2) == 2.0
    assert order == ["flush", "event", "call", "event", "synchronise", "read"] * 2


def test_sampling_ends_when_its_time_is_spent_but_not_before_three_rounds():
    ticks = map(float, count(0, 100))
    noise = [1.0, 9.0] * 1000
    (seconds,) = sample([idle], scripted(noise), seconds=50.0, clock=lambda: float(next(ticks)))
    assert len(seconds) == LEAST_ROUNDS


@pytest.mark.parametrize("rounds", [None, 2, 9])
def test_calls_alternate(rounds):
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    samples = sample(calls, lambda call, repeats: call() or 1.0, seconds=0.0, rounds=rounds)
    # Two rounds warm up and are not counted.
    assert order == ["a", "b"] * (2 + (rounds or LEAST_ROUNDS))
    assert samples == [[1.0] * (rounds or LEAST_ROUNDS)] * 2


def test_a_fixed_number_of_rounds_has_one_call_each_however_short():
    repeats = []
    sample([idle], lambda call, count: repeats.append(count) or 1e-9, rounds=4)
    assert repeats == [1] * 6


def test_the_device_is_synchronised_before_and_after_each_call(monkeypatch):
    order = []
    monkeypatch.setattr("harness.timing.synchronise", order.append)
    timer = wall_clock(CPU, lambda: order.append("clock") or 0.0)
    timer(lambda: order.append("call"), 1)
    assert order == [CPU, "clock", "call", CPU, "clock"]


def test_the_interval_of_a_median_covers_it_in_95_percent_of_samples():
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(2000):
        sample = torch.empty(101).exponential_(generator=generator).sort().values
        # The order statistics that `relative_uncertainty` uses: 101 / 2 -+ 0.98 sqrt(101).
        covered += bool(sample[40] <= torch.tensor(2.0).log() <= sample[61])
        expected = (sample[61] - sample[40]) / 2 / sample[50]
        assert relative_uncertainty(sample.tolist()) == pytest.approx(expected.item())
    assert 0.94 < covered / 2000 < 0.98


def test_a_trial_gives_the_least_time_of_each_call_that_can_run():
    clock, calls = Clock(), []

    def maker(name, *seconds):
        durations = iter(seconds)

        def call():
            calls.append(name)
            clock.now += next(durations, seconds[-1])

        return lambda: call

    timer = wall_clock(CPU, clock)
    found = short_trial(
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
        short_trial({"x": raising(RuntimeError("a defect"))}, timer)


def test_a_slow_call_is_timed_once_in_a_trial():
    clock = Clock()
    slow = clock.call(2.0)
    found = short_trial({"a": lambda: slow, "b": lambda: slow}, wall_clock(CPU, clock))
    assert found == {"a": 2.0, "b": 2.0}
    # Each warms up once.
    assert clock.now == 8.0
