"""Costs against hand counts: bytes, operations, and whose turn it is."""

import pytest
import torch
from torch import nn

from harness.measure import WARMUP, flops, measure, peak_bytes, quartiles, take_turns
from harness.run import find_task
from harness.train import Trainer
from zoo.contract import Size
from zoo.variants.softmax import Softmax

CPU = torch.device("cpu")
MIB = 2**20


class Bare(Trainer):
    """A trainer whose step is any piece of work."""

    def __init__(self, work) -> None:
        self.work = work

    def step(self, number):
        self.work()
        return {}


def hold(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def two_at_once():
    first, second = hold(4), hold(4)
    del first
    return second


def one_after_the_other():
    for _ in range(3):
        hold(4)


def a_peak_between():
    first, second = hold(4), hold(8)
    del second
    third = hold(2)
    return first, third


PATTERNS = {
    two_at_once: 8,
    one_after_the_other: 4,
    a_peak_between: 12,
}


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.__name__)
def test_the_peak_is_the_most_held_at_once_beyond_what_was_held_before(pattern):
    before = hold(16)
    assert peak_bytes(pattern, CPU) == PATTERNS[pattern] * MIB
    assert before.numel() == 16 * MIB


def test_the_peak_covers_the_backward_pass():
    x = torch.ones(MIB, requires_grad=True)
    forward = peak_bytes(lambda: x.sin().sum(), CPU)
    backward = peak_bytes(lambda: x.sin().sum().backward(), CPU)
    assert 4 * MIB <= forward < 5 * MIB
    assert 8 * MIB <= backward < 13 * MIB


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_linear_layer_counts_two_operations_a_product_forward_and_each_way_back(requires_grad):
    n, d, e = 7, 5, 3
    layer, x = nn.Linear(d, e), torch.randn(n, d, requires_grad=requires_grad)
    passes = 3 if requires_grad else 2
    assert flops(Bare(lambda: layer(x).sum().backward())) == passes * 2 * n * d * e


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("backend", "products"), [("naive", 2 + 4), ("sdpa", 2 + 5)])
def test_attention_counts_its_products_and_the_scores_that_sdpa_recomputes(
    backend, products, padded
):
    b, h, n, e = 2, 2, 9, 4
    layer = Softmax(Size(dim=h * e, heads=h, max_len=n, causal=False, dropout=0.0), backend=backend)
    q, k, v = torch.randn(3, b, h, n, e, requires_grad=True).unbind()
    keep = torch.arange(n).expand(b, n) < n - 1 if padded else None
    work = Bare(lambda: layer.attend(q, k, v, keep).sum().backward())
    assert flops(work) == products * 2 * b * h * n * n * e


def test_attention_without_gradients_counts_its_two_products():
    q, k, v = torch.randn(3, 2, 2, 9, 4).unbind()
    attend = nn.functional.scaled_dot_product_attention
    assert flops(Bare(lambda: attend(q, k, v))) == 2 * 2 * 2 * 2 * 9 * 9 * 4


def test_a_product_added_in_place_counts():
    total, left, right = torch.zeros(3, 4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    assert flops(Bare(lambda: total.baddbmm_(left, right))) == 2 * 3 * 4 * 5 * 6
    assert flops(Bare(lambda: torch.baddbmm(total, left, right))) == 2 * 3 * 4 * 5 * 6


def test_a_whole_step_counts_its_formula(plan, prepare):
    b, n, d, ff, head, classes, depth = 4, 24, 64, 128, 128, 10, 2
    linear = depth * n * (4 * d * d + 2 * d * ff) + d * head + head * classes
    attention = depth * n * n * d
    expected = b * (3 * 2 * linear + 7 * 2 * attention)
    assert flops(prepare(plan("softmax", batch=b))) == expected


def test_turns_are_taken_in_turn_and_the_warm_up_is_not_counted(monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr("harness.measure.time.perf_counter", lambda: clock[0])

    def turn(name: str, seconds: float):
        def take() -> None:
            order.append(name)
            clock[0] += 1000.0 if len(order) <= 2 * WARMUP else seconds + len(order)

        return take

    seconds = take_turns([turn("a", 0.25), turn("b", 0.5)], CPU, rounds=3)
    assert order == ["a", "b"] * (WARMUP + 3)
    first = 2 * WARMUP + 1
    assert seconds == [
        [0.25 + first, 2.25 + first, 4.25 + first],
        [1.5 + first, 3.5 + first, 5.5 + first],
    ]


def test_quartiles_are_those_of_the_values():
    found = quartiles([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (found.q1, found.median, found.q3) == (2.0, 3.0, 4.0)


@pytest.fixture
def told(monkeypatch):
    """Seconds that the turns are said to take: of steps, then of readings."""
    lists = []
    monkeypatch.setattr("harness.measure.take_turns", lambda turns, device: lists.pop(0))
    return lists


def test_the_reference_beside_itself_has_ratio_exactly_one(plan):
    spec = plan("softmax")
    task = find_task(spec)
    cost = measure(spec, task, task.load("train"))
    assert {*cost.time_ratio.model_dump().values()} == {1.0}
    assert {*cost.inference_ratio.model_dump().values()} == {1.0}
    assert cost.memory_ratio == 1.0
    assert cost.own == cost.softmax


@pytest.mark.parametrize("attention", ["softmax", "primal"])
def test_a_cost_is_that_of_the_model_beside_softmax_at_its_defaults(plan, prepare, attention):
    settings = {"softmax": {"backend": "naive"}} if attention == "softmax" else {}
    spec, usual = plan(attention, settings=settings), plan("softmax")
    task = find_task(spec)
    cost = measure(spec, task, task.load("train"))
    for usage, one in ((cost.own, spec), (cost.softmax, usual)):
        assert usage.flops == flops(prepare(one))
        assert usage.parameters == sum(p.numel() for p in prepare(one).model.parameters())
        trainer = prepare(one)
        trainer.step(0)
        assert usage.peak_bytes == pytest.approx(
            peak_bytes(lambda trainer=trainer: trainer.step(0), CPU), rel=0.02
        )
    assert cost.own.flops != cost.softmax.flops


def test_ratios_pair_the_turns_and_units_are_those_of_the_record(plan, told):
    told += [[[2.0, 6.0, 3.0], [1.0, 2.0, 4.0]], [[0.5, 0.5, 0.5], [0.25, 0.5, 1.0]]]
    spec = plan("primal", batch=4)
    task = find_task(spec)
    cost = measure(spec, task, task.load("train"))
    # Turn by turn 2, 3 and 3/4; the ratio of the medians would be 3/2.
    assert cost.time_ratio == quartiles([2.0, 3.0, 0.75])
    assert cost.inference_ratio == quartiles([2.0, 1.0, 0.5])
    assert cost.own.seconds_per_1k_steps.median == 3000.0
    assert cost.softmax.seconds_per_1k_steps.median == 2000.0
    assert cost.own.tokens_per_second.median == 4 * 24 / 0.5


def test_a_long_measurement_does_not_outlast_a_short_schedule(plan):
    spec = plan("softmax", steps=1, warmup=1)
    task = find_task(spec)
    assert measure(spec, task, task.load("train")).own.parameters > 0


def test_what_is_timed_is_a_training_step_and_a_reading_without_gradients(plan, monkeypatch):
    seen = []

    def spy(turns, device):
        for turn in turns:
            turn()
        return [[1.0] for _ in turns]

    real = Trainer.step

    def step(self, number):
        seen.append(("step", self.model.training, torch.is_grad_enabled()))
        return real(self, number)

    monkeypatch.setattr("harness.measure.take_turns", spy)
    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(
        Trainer,
        "scores",
        lambda self, batch: seen.append(
            ("read", self.model.training, torch.is_inference_mode_enabled())
        ),
    )
    spec = plan("softmax")
    task = find_task(spec)
    measure(spec, task, task.load("train"))
    assert seen[:2] == [("step", True, True), ("read", False, True)]
    assert seen[2:] == [("step", True, True)] * 2
