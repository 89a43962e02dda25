"""Costs are those computed by hand: bytes, operations, ratios; and the order of the calls."""

from types import SimpleNamespace

import pytest
import torch

from harness import reference
from harness.data import data_of, restore
from harness.layer_inputs import attentions
from harness.measure import measure
from harness.questions import question_of
from harness.records.fields import Quartiles
from harness.records.record import Implementation
from harness.reference import (
    formula_fits,
    trainer_of,
    training_call,
    trial_of,
    with_fastest_backend,
)
from harness.train import Trainer
from tests.harness.conftest import requested
from tests.harness.specs import raising
from tests.harness.test_every_variant import RandomData
from zoo.cost import flops, peak_bytes

CPU = torch.device("cpu")
SDPA, NAIVE = (Implementation(backend=name, precision="fp32") for name in ("sdpa", "naive"))


@pytest.fixture(autouse=True)
def trial(monkeypatch):
    """Seconds of softmax in the trial, by implementation; 1 for those that are not in it."""
    seconds = {}

    def short_trial(makers, timer):
        return {name: (make(), seconds.get(name, 1.0))[1] for name, make in makers.items()}

    monkeypatch.setattr("harness.reference.short_trial", short_trial)
    reference.TRIALS.clear()
    return seconds


def test_a_step_has_the_operations_of_its_formula(plan, prepare):
    b, n, d, ff, head, classes, depth = 4, 24, 64, 128, 128, 10, 2
    linear = depth * n * (4 * d * d + 2 * d * ff) + d * head + head * classes
    attention = depth * n * n * d
    expected = b * (3 * 2 * linear + 7 * 2 * attention)
    assert flops(lambda: prepare(plan("softmax", batch=b)).step(0)) == expected


def test_quartiles_are_those_of_the_values_and_ratios_are_pairwise():
    found = Quartiles.of([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (found.q1, found.median, found.q3) == (2.0, 3.0, 4.0)
    assert Quartiles.of_ratio([2.0, 6.0, 3.0], [1.0, 2.0, 4.0]) == Quartiles.of([2.0, 3.0, 0.75])


@pytest.fixture
def seconds(monkeypatch):
    """The samples of the timer: first of training steps, then of inference."""
    results = []

    def sample(calls, timer, *, rounds):
        assert rounds == 9
        return results.pop(0)

    monkeypatch.setattr("harness.measure.sample", sample)
    return results


def test_the_reference_has_ratio_exactly_one(plan):
    cost = measure(plan("softmax", steps=1, warmup=1))
    assert {*cost.time_ratio.model_dump().values()} == {1.0}
    assert {*cost.inference_ratio.model_dump().values()} == {1.0}
    assert cost.memory_ratio == 1.0
    assert cost.own == cost.softmax


def test_the_reference_is_the_fastest_softmax_and_sdpa_for_memory(plan, trial, monkeypatch):
    def labelled(trainer):
        """A call that names the backend of its model; empty for one without softmax."""
        call = training_call(trainer)
        call.backend = getattr(attentions(trainer.model)[0], "backend", "")
        return call

    sizes = {"sdpa": 2, "naive": 3}
    monkeypatch.setattr("harness.measure.training_call", labelled)
    monkeypatch.setattr("harness.measure.peak_bytes", lambda call, _: sizes.get(call.backend, 1))
    trial[NAIVE] = 0.7
    cost = measure(plan("primal"))
    assert (cost.reference, cost.inference_reference) == (NAIVE, NAIVE)
    assert (cost.softmax.backend, cost.softmax.peak_bytes) == ("sdpa", 2)
    assert cost.over_softmax == cost.time_ratio


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("seconds", "backend"), [({NAIVE: 0.9}, "naive"), ({NAIVE: 0.97}, "sdpa")])
def test_auto_is_the_fastest_backend(plan, trial, seconds, backend):
    trial |= seconds
    for attention in ("softmax", "softmax+primal"):
        planned = plan(attention)
        resolved = with_fastest_backend(planned)
        assert resolved.options["softmax"]["backend"] == backend
        assert "backend" not in planned.options["softmax"]
    assert backend in measure(planned).own.backend.split("+")
    named = plan("softmax", settings={"softmax": {"backend": "sdpa"}})
    assert with_fastest_backend(named) is named


def test_a_run_of_a_suite_has_sdpa_without_a_trial(plan, monkeypatch):
    monkeypatch.setattr("harness.reference.trial_of", raising(AssertionError("a trial")))
    planned = plan("softmax+primal")
    question = planned.question.model_copy(update={"suite": "laptop@1"})
    planned = planned.model_copy(update={"question": question})
    built = with_fastest_backend(planned, "naive")
    assert built.options == {"softmax": {"backend": "sdpa"}, "primal": {}}


def test_a_run_of_sdpa_has_its_times_and_not_the_fastest_softmax_ones(plan, trial, seconds):
    trial[NAIVE] = 0.5
    seconds += [[[3.0], [2.0]], [[0.5], [0.25]]]
    cost = measure(plan("softmax", settings={"softmax": {"backend": "sdpa"}}))
    assert cost.own.seconds_per_1k_steps.median == 3000.0
    assert (cost.softmax.seconds_per_1k_steps.median, cost.time_ratio.median) == (2000.0, 1.5)


def test_the_fastest_in_inference_may_not_be_the_fastest_in_training():
    found = reference.Trial({SDPA: 1.0, NAIVE: 2.0}, {SDPA: 2.0, NAIVE: 1.0})
    assert (found.fastest, found.fastest_inference) == (SDPA, NAIVE)


def test_a_trial_is_made_once_for_a_shape(plan, monkeypatch):
    trials, real = [], reference.short_trial
    monkeypatch.setattr("harness.reference.short_trial", lambda *a: trials.append(1) or real(*a))
    for planned in (plan("softmax"), plan("primal", seed=1), plan("softmax", lr=0.5)):
        trial_of(planned)
    assert len(trials) == 2  # training and inference
    trial_of(plan("softmax", batch=2))
    assert len(trials) == 4


def test_a_compiled_model_is_compared_with_sdpa_alone(plan, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: model)
    planned = plan("softmax", compiled=True)
    assert with_fastest_backend(planned) is planned
    assert {*trial_of(planned).training} == {SDPA}


def test_the_formula_is_tried_where_its_weights_take_a_quarter_of_the_memory(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=4 * 3 * 4 * 100))
    assert [formula_fits(count, "fp32", "cpu") for count in (100, 101)] == [True, False]
    assert [formula_fits(count, "bf16", "cpu") for count in (200, 201)] == [True, False]


def test_operations_are_counted_on_an_uncompiled_model(plan, monkeypatch):
    compiled, counted = [], []
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: compiled.append(model) or model)
    monkeypatch.setattr("harness.measure.flops", lambda call: counted.append(len(compiled)) or 1)
    planned = plan("primal", compiled=True)
    measure(planned)
    assert counted == [2, 2]


def test_the_tokens_of_a_training_sequence_are_counted(seconds):
    options = {"train_len": 8, "max_len": 32, "train": 64, "dev": 16, "test": 16}
    planned = requested("softmax", "parity", parity=options)
    seconds += [[[1.0]], [[0.5]]]
    cost = measure(planned)
    assert cost.own.tokens_per_second.median == planned.train.batch * 8 / 0.5


def test_the_tokens_of_both_sequences_of_a_pair_are_counted(seconds, give, unread):
    settings = {"retrieval": {"max_len": 128}}
    task = data_of(question_of("retrieval", "smoke", settings).task).task
    give(RandomData(task))
    planned = requested("softmax", "retrieval", **settings)
    seconds += [[[1.0]], [[0.5]]]
    cost = measure(planned)
    assert cost.own.tokens_per_second.median == planned.train.batch * 2 * task.max_len / 0.5


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("attention", "causal", "has_state"),
    [("linear", True, True), ("linear", False, False), ("softmax", True, False)],
)
def test_a_cost_has_the_state_of_causal_recurrent_models(seconds, attention, causal, has_state):
    plan = requested(attention, "mqar", mqar={"causal": causal, "train": 64})
    seconds += [[[1.0], [1.0]], [[0.5], [0.5]]]
    model, size = plan.model, measure(plan).own.state_bytes
    if not has_state:
        assert size is None
        return
    # An fp32 matrix and a sum for each head, and a few numbers more.
    width = model.dim // model.heads
    least = 4 * model.depth * model.heads * width * (width + 1)
    assert size is not None and least <= size < 1.2 * least


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["softmax", "primal"])
def test_a_cost_is_of_the_model_and_of_softmax_at_its_defaults(plan, prepare, attention):
    settings = {"softmax": {"backend": "naive"}} if attention == "softmax" else {}
    plans = plan(attention, settings=settings), plan("softmax")
    cost = measure(plans[0])
    for usage, planned in zip((cost.own, cost.softmax), plans, strict=True):
        assert usage.flops == flops(lambda planned=planned: prepare(planned).step(0))
        assert usage.parameters == sum(p.numel() for p in prepare(planned).model.parameters())
        trainer = prepare(planned)
        trainer.step(0)
        assert usage.peak_bytes == pytest.approx(
            peak_bytes(lambda trainer=trainer: trainer.step(0), CPU), rel=0.02
        )
    assert cost.own.flops != cost.softmax.flops


def test_ratios_are_pairwise_and_units_are_those_of_the_record(plan, seconds):
    seconds += [[[2.0, 6.0, 3.0], [1.0, 2.0, 4.0]], [[0.5, 0.5, 0.5], [0.25, 0.5, 1.0]]]
    planned = plan("primal", batch=4)
    cost = measure(planned)
    # Pairwise 2, 3 and 3/4; the ratio of the medians would be 3/2.
    assert cost.time_ratio == Quartiles.of([2.0, 3.0, 0.75])
    assert cost.inference_ratio == Quartiles.of([2.0, 1.0, 0.5])
    assert cost.own.seconds_per_1k_steps.median == 3000.0
    assert cost.softmax.seconds_per_1k_steps.median == 2000.0
    assert cost.own.tokens_per_second.median == 4 * 24 / 0.5


@pytest.fixture
def failing(monkeypatch):
    """Makes step `number` of one of the two models fail; only primal returns the loss `ksvd`."""
    step, calls = Trainer.step, [0]

    def install(primal: bool, error: Exception, number: int = 1) -> None:
        def fail(self, at):
            losses = step(self, at)
            selected = ("ksvd" in losses) == primal
            calls[0] += selected
            if selected and calls[0] == number:
                raise error
            return losses

        monkeypatch.setattr(Trainer, "step", fail)

    return install


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (1, MemoryError("x")),
        (2, torch.OutOfMemoryError("x")),
        (3, RuntimeError("DefaultCPUAllocator: x")),
    ],
)
def test_a_reference_that_does_not_fit_in_memory_is_left_out(plan, seconds, failing, error, number):
    seconds += [[[2.0]], [[0.5]]]
    planned = plan("primal")
    failing(False, error, number)
    line = r"softmax does not fit in memory on listops@1\[.*\]: costs have no ratio to it; lower"
    with pytest.warns(UserWarning, match=line):
        cost = measure(planned)
    assert cost.own.seconds_per_1k_steps.median == 2000.0
    assert (cost.softmax, cost.time_ratio, cost.inference_ratio) == (None, None, None)
    assert cost.memory_ratio is None


@pytest.mark.parametrize(
    ("measured", "failing_one", "error"),
    [
        ("primal", "primal", MemoryError("3 TiB")), ("primal", "primal", RuntimeError("a bug")),
        ("primal", "softmax", RuntimeError("a bug")), ("softmax", "softmax", MemoryError("3 TiB")),
    ],
)  # fmt: skip
def test_any_other_failure_ends_the_measurement(plan, failing, measured, failing_one, error):
    failing(failing_one == "primal", error)
    with pytest.raises(type(error), match=str(error)):
        measure(plan(measured))


def test_a_timed_model_has_batches_of_the_tasks_length(plan):
    planned = plan(bucket_by_length=True)
    assert not trainer_of(planned, restore(planned).splits["train"]).spec.bucket_by_length


def test_training_steps_and_inference_without_gradients_are_timed(plan, monkeypatch):
    calls = []

    def spy(functions, timer, rounds):
        for function in functions:
            function()
        return [[1.0] for _ in functions]

    real = Trainer.step

    def step(self, number):
        calls.append(("step", self.model.training, torch.is_grad_enabled()))
        return real(self, number)

    def scores(self, batch):
        calls.append(("scores", self.model.training, torch.is_inference_mode_enabled()))

    monkeypatch.setattr("harness.measure.sample", spy)
    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr(Trainer, "scores", scores)
    planned = plan("softmax")
    measure(planned)
    step = ("step", True, True)
    assert calls == [step, step, ("scores", False, True), step, step]
