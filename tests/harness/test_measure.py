"""Costs against hand counts: bytes, operations, and whose turn it is."""

import pytest
import torch

from harness import budgets
from harness.budgets import Request
from harness.measure import WARMUP, is_reference, measure, quartiles, take_turns
from harness.model import build
from harness.train import Trainer
from tasks.contract import Split
from zoo.cost import flops, peak_bytes

CPU = torch.device("cpu")


def test_a_whole_step_counts_its_formula(plan, prepare):
    b, n, d, ff, head, classes, depth = 4, 24, 64, 128, 128, 10, 2
    linear = depth * n * (4 * d * d + 2 * d * ff) + d * head + head * classes
    attention = depth * n * n * d
    expected = b * (3 * 2 * linear + 7 * 2 * attention)
    assert flops(lambda: prepare(plan("softmax", batch=b)).step(0)) == expected


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


def test_the_device_is_waited_for_before_each_turn_and_behind_it(monkeypatch):
    order = []
    monkeypatch.setattr("harness.measure.synchronise", order.append)
    monkeypatch.setattr("harness.measure.time.perf_counter", lambda: order.append("clock") or 0.0)
    take_turns([lambda: order.append("turn")], CPU, rounds=1)
    assert order[-5:] == [CPU, "clock", "turn", CPU, "clock"]


def test_two_turns_warm_up_and_nine_are_counted():
    order = []
    ((*seconds,),) = take_turns([lambda: order.append("turn")], CPU)
    assert (len(order), len(seconds)) == (11, 9)


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
    cost = measure(spec)
    assert {*cost.time_ratio.model_dump().values()} == {1.0}
    assert {*cost.inference_ratio.model_dump().values()} == {1.0}
    assert cost.memory_ratio == 1.0
    assert cost.own == cost.softmax


def test_the_reference_is_sdpa_whatever_softmax_comes_to_by_itself(plan, monkeypatch):
    built = []

    def spy(spec, task):
        built.append(spec)
        return build(spec, task)

    monkeypatch.setattr("harness.measure.build", spy)
    spec = plan("softmax+primal")
    measure(spec)
    of = {one.attention: one.options for one in built}
    assert of == {spec.attention: spec.options, "softmax": {"softmax": {"backend": "sdpa"}}}


def test_softmax_is_its_own_reference_where_it_comes_to_sdpa(plan):
    spec = plan("softmax")
    naive = plan("softmax", settings={"softmax": {"backend": "naive"}})
    sdpa = plan("softmax", settings={"softmax": {"backend": "sdpa"}})
    on_cuda = [one.model_copy(update={"device": "cuda"}) for one in (spec, sdpa)]
    found = [is_reference(one) for one in (spec, sdpa, *on_cuda, naive, plan("primal"))]
    assert found == [True, True, False, True, False, False]


def test_operations_are_counted_on_a_model_that_is_not_compiled(plan, monkeypatch):
    compiled, counted = [], []
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: compiled.append(model) or model)
    monkeypatch.setattr("harness.measure.flops", lambda turn: counted.append(len(compiled)) or 0)
    spec = plan("primal", compiled=True)
    measure(spec)
    assert counted == [2, 2]


def test_the_tokens_of_both_documents_of_a_pair_are_read(told):
    spec = budgets.plan(
        Request(
            attention="softmax", task="retrieval", budget="smoke", seed=0, device="cpu",
            precision="fp32", compiled=False,
        )
    )  # fmt: skip
    task = find_task(spec)
    pairs = Split(
        torch.randint(task.vocabulary, (8, task.max_len)).short(),
        torch.full((8,), task.max_len).int(),
        torch.randint(8, (16, 2)).int(),
        torch.randint(2, (16,)),
        padded=True,
    )
    told += [[[1.0]], [[0.5]]]
    cost = measure(spec, task, pairs)
    assert cost.own.tokens_per_second.median == spec.train.batch * 2 * task.max_len / 0.5


@pytest.mark.parametrize("attention", ["softmax", "primal"])
def test_a_cost_is_that_of_the_model_beside_softmax_at_its_defaults(plan, prepare, attention):
    settings = {"softmax": {"backend": "naive"}} if attention == "softmax" else {}
    spec, usual = plan(attention, settings=settings), plan("softmax")
    cost = measure(spec)
    for usage, one in ((cost.own, spec), (cost.softmax, usual)):
        assert usage.flops == flops(lambda one=one: prepare(one).step(0))
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
    cost = measure(spec)
    # Turn by turn 2, 3 and 3/4; the ratio of the medians would be 3/2.
    assert cost.time_ratio == quartiles([2.0, 3.0, 0.75])
    assert cost.inference_ratio == quartiles([2.0, 1.0, 0.5])
    assert cost.own.seconds_per_1k_steps.median == 3000.0
    assert cost.softmax.seconds_per_1k_steps.median == 2000.0
    assert cost.own.tokens_per_second.median == 4 * 24 / 0.5


@pytest.fixture
def failing(monkeypatch):
    """Lets a step of one of the two models fail: of primal, which alone has `ksvd`, or not."""
    step, left = Trainer.step, [0]

    def arrange(primal: bool, error: Exception, number: int = 1) -> None:
        def fail(self, at):
            losses = step(self, at)
            meant = ("ksvd" in losses) == primal
            left[0] += meant
            if meant and left[0] == number:
                raise error
            return losses

        monkeypatch.setattr(Trainer, "step", fail)

    return arrange


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (1, MemoryError("x")),
        (2, torch.OutOfMemoryError("x")),
        (3, RuntimeError("DefaultCPUAllocator: x")),
    ],
)
def test_a_reference_that_the_memory_does_not_hold_is_left_out(plan, told, failing, error, number):
    told += [[[2.0]], [[0.5]]]
    spec = plan("primal")
    task = find_task(spec)
    failing(False, error, number)
    line = r"the memory does not hold softmax on listops@1\[.*\]: no cost beside it; lower"
    with pytest.warns(UserWarning, match=line):
        cost = measure(spec, task, task.load("train"))
    assert cost.own.seconds_per_1k_steps.median == 2000.0
    assert (cost.softmax, cost.time_ratio, cost.inference_ratio) == (None, None, None)
    assert cost.memory_ratio is None


@pytest.mark.parametrize(
    ("primal", "error"),
    [(True, MemoryError("3 TiB")), (True, RuntimeError("a bug")), (False, RuntimeError("a bug"))],
)
def test_any_other_failure_ends_the_measurement(plan, failing, primal, error):
    spec = plan("primal")
    _ends(spec, failing, primal, error)


def test_a_reference_that_does_not_fit_by_itself_is_out_of_memory(plan, failing):
    _ends(plan("softmax"), failing, False, MemoryError("3 TiB"))


def _ends(spec, failing, primal, error):
    task = find_task(spec)
    failing(primal, error)
    with pytest.raises(type(error), match=str(error)):
        measure(spec, task, task.load("train"))


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
    measure(spec)
    step = ("step", True, True)
    assert seen == [step, step, ("read", False, True), step, step]
