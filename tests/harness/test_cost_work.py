"""Timed calls: counts of their operations, their state, and their reference."""

import pytest
import torch

from harness.batches import ShuffledBatches
from harness.costs.measurement import counts, measure, prepare, trainer_of
from harness.costs.plan import batch_of, of_run
from harness.data import restore
from harness.model import build_model, trainable
from harness.records.cost import step_of
from harness.runner import state_bytes_of
from tasks import create
from tests.harness.conftest import requested
from tests.harness.specs import COST, LIMITS, encoder
from zoo.composition import Composition
from zoo.contract import Attention
from zoo.cost import flops
from zoo.registry import UserError

N, D, B = 96, 32, 3
# FLOPs of the projections of query, key, value and output.
PROJECTIONS = 8 * B * N * D**2
MODEL = encoder(dim=D, feed_forward=64, head=64, dropout=0.1)


def specified(attention, operation="forward", *, length=N, level="layer", causal=False, **settings):
    options = Composition.parse(attention).resolve({attention: settings} if settings else {})
    return COST.model_copy(update={
        "attention": attention, "options": options, "level": level, "operation": operation,
        "length": length, "batch": B, "batching": str(B), "dim": D,
        "causal": causal or operation in ("prefill", "decode"),
        "model": MODEL if level == "step" else None,
    })  # fmt: skip


def test_decoding_attends_to_every_token_of_the_prompt_and_prefill_returns_its_state(recorded):
    short, long = (flops(prepare(specified("softmax", "decode", length=n)).call) for n in (99, 199))
    # Each cached token costs a product with its key and one with its value.
    assert long - short == 4 * B * D * 100
    prompts = recorded(Attention, "prefill", lambda layer, x, *_: x.shape)
    prepare(specified("gated-linear", "prefill")).call()
    assert prompts == [(B, N, D)]
    old = COST.model_copy(update={"operation": "prefill"})
    assert old.superseded and not COST.superseded
    assert not old.model_copy(update={"revision": 2}).superseded


def test_packed_rows_are_sequences_of_half_the_tokens_then_of_half_the_rest(recorded):
    rows = recorded(Attention, "packed", lambda layer, x, mask, segments: segments)
    timed = prepare(specified("softmax", "packed", length=64))
    timed.call()
    lengths = [32, 16, 8, 4, 2, 1, 1]
    assert [row.bincount().tolist() for row in rows[0]] == [lengths] * B
    # The sum of the sequences.
    alone = (prepare(specified("softmax", "train", length=n)).call for n in lengths)
    assert flops(timed.call) == sum(map(flops, alone))


def step_of_run(run, operation="train"):
    return {spec.operation: spec for spec in of_run(run, "here", 1)}[operation]


def test_a_training_step_is_of_the_model_and_data_of_its_run_and_has_its_operations(tiny):
    b, n, d, ff, head, classes, depth = 4, 24, 64, 128, 128, 10, 2
    linear = depth * n * (4 * d * d + 2 * d * ff) + d * head + head * classes
    attention = depth * n * n * d
    step = step_of_run(tiny("softmax", batch=b))
    counted, backend = counts(step, prepare(step))
    assert backend == "sdpa" and counted == b * (3 * 2 * linear + 7 * 2 * attention)
    run = tiny("primal", batch=b, bucket_by_length=True, precision="bf16", clip=0.5)
    data, trainer = restore(run), trainer_of(step_of_run(run))
    assert trainable(trainer.model) == trainable(build_model(run, data.task))
    examples = ShuffledBatches(64, b, 0, torch.device("cpu")).batch(0)
    # A timed batch has the length of the task.
    assert torch.equal(trainer.read(0)[0].tokens, data.splits["train"].gather(examples).tokens)
    assert (trainer.spec.precision, trainer.spec.clip) == ("bf16", 0.5)


@pytest.mark.parametrize(("task", "options", "batch", "length"), [
    ("parity", {"train_len": 8, "max_len": 32, "train": 64, "dev": 16, "test": 16}, 1, 8),
    # Both sequences of a pair pass through the model.
    ("retrieval", {"max_len": 128}, 2, 128),
])  # fmt: skip
def test_the_tokens_of_a_training_batch_are_counted(task, options, batch, length):
    run, of_task = requested("softmax", "parity"), create(task, **options)
    named = run.question.task.model_copy(
        update={"name": task, "options": of_task.options, "key": of_task.key}
    )
    question = run.question.model_copy(update={"task": named})
    (cost, _) = of_run(run.model_copy(update={"question": question}), "here", 1)
    assert (cost.batch, cost.length) == (batch * run.train.batch, length)


def test_runs_of_one_shape_share_a_cost_and_runs_of_another_do_not(tiny):
    first = tiny("primal")
    same = [tiny("primal", seed=1, lr=0.5, steps=9, weight_decay=0.1, stop_at=9.0),
            tiny("primal", bucket_by_length=True)]  # fmt: skip
    runs = [first, tiny("primal", batch=2), tiny("primal", precision="bf16"), tiny("softmax"),
            tiny("primal", parts_by_length=True), tiny("primal", clip=1.0),
            *(tiny("primal", settings=of) for of in (
                {"primal": {"rank": 3}}, {"model": {"dropout": 0.3}}, {"listops": {"max_len": 32}},
            ))]  # fmt: skip
    (train, forward), key = of_run(first, "here", 1), step_of(first)
    assert key == step_of(train) == step_of(forward) and train.id != forward.id
    assert {(step_of(run), step_of_run(run).id) for run in same} == {(key, train.id)}
    assert len({step_of(run) for run in runs}) == len(runs)
    assert len({step_of_run(run).id for run in runs}) == len(runs)
    assert step_of(specified("softmax", "train", level="step")) == ""


def test_causal_recurrent_models_have_a_state():
    def built(attention, causal):
        run = requested(attention, "mqar", mqar={"causal": causal, "train": 64})
        return run.model, state_bytes_of(build_model(run, restore(run).task))

    assert built("linear", False)[1] is built("softmax", True)[1] is None
    model, size = built("linear", True)
    # An fp32 matrix and a sum for each head, and a few numbers more.
    width = model.dim // model.heads
    least = 4 * model.depth * model.heads * width * (width + 1)
    assert size is not None and least <= size < 1.2 * least


def test_a_compiled_step_is_compared_with_compiled_sdpa_and_counted_uncompiled(tiny, monkeypatch):
    compiled, counted = [], []
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: compiled.append(model) or model)
    monkeypatch.setattr(
        "harness.costs.measurement.flops", lambda call: counted.append(len(compiled)) or 1
    )
    spec = step_of_run(tiny("primal", compiled=True))
    measured = measure(spec, LIMITS, 0.0, 60.0)
    assert (measured.backend, measured.reference) == ("compiled", "sdpa")
    # What is measured, and SDPA.
    assert len(compiled) == 2 and counted == [2]


@pytest.mark.parametrize("level", ["layer", "step"])
@pytest.mark.parametrize("training", [False, True])
def test_a_call_has_the_mode_the_precision_and_the_gradients_of_its_pass(training, level):
    spec = specified("primal", "train" if training else "forward", level=level, causal=True)
    timed = prepare(spec.model_copy(update={"precision": "bf16"}))
    modes, inputs, pulled, module = [], [], set(), timed.module
    module.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    module.register_forward_hook(lambda *_: modes.append(
        (module.training, torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"))
    ))  # fmt: skip
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: pulled.add(name))
    timed.call()
    assert modes == [(training, not training, True)]
    # Gradients of the auxiliary loss, too; nothing is kept for the next call.
    assert pulled == {name for name, _ in module.named_parameters() if training}
    assert all(parameter.grad is None for parameter in module.parameters())
    if level == "layer":
        assert inputs[0].requires_grad is training and inputs[0].grad is None
    assert all(of.size.causal for of in module.modules() if isinstance(of, Attention))


def test_a_batch_is_a_number_or_follows_from_the_tokens():
    assert [batch_of(text, 100) for text in ("8", "tokens=1099", "tokens=100")] == [8, 10, 1]
    for text in ("0", "x", "tokens=", "tokens=99", "size=3", "1.5"):
        with pytest.raises(UserError, match="give"):
            batch_of(text, 100)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("attention", "operation", "level", "settings", "backend"), [
    ("softmax", "prefill", "layer", {}, "sdpa"), ("softmax", "train", "layer", {}, "sdpa"),
    ("softmax", "decode", "layer", {"backend": "naive"}, "naive"),
    ("softmax+linear", "train", "step", {}, "sdpa"),
    ("performer-lib", "forward", "layer", {}, "library"),
])  # fmt: skip
def test_a_measurement_has_its_ratio_its_backend_and_the_operations_of_its_formula(
    attention, operation, level, settings, backend
):
    spec = specified(attention, operation, level=level, **settings)
    measured = measure(spec, LIMITS, 0.0, 60.0)
    assert measured.ratio and measured.memory_ratio and not measured.no_ratio
    assert measured.peak_bytes > 0 and measured.flops > 0
    decodes = operation == "decode"
    assert (measured.state_bytes is not None) == decodes and measured.backend == backend
    assert not decodes or measured.analytic_flops is None
    if attention != "softmax" or decodes:
        return
    pairs = 4 * B * N**2 * D * {"train": 3, "prefill": 0.5}[operation]
    formula = PROJECTIONS * (3 if operation == "train" else 1) + pairs
    assert measured.analytic_flops == pytest.approx(formula, rel=0.01)
    # The limit leaves out what an implementation computes again.
    assert measured.flops > measured.analytic_flops or operation != "train"
    expected = measured.seconds.median / (measured.analytic_flops / LIMITS.flops_per_second)
    assert measured.over_limit == pytest.approx(expected)
