"""`model.recompute`: the same results in less memory, and the identity of a run."""

from dataclasses import replace

import pytest
import torch

from harness.classifier import Classifier
from harness.costs.plan import CostRequest, measurements
from harness.costs.work import prepare
from tasks.contract import Batch
from tests.harness.specs import encoder
from zoo import EncoderLayer, create
from zoo.cost import peak_bytes
from zoo.registry import UserError
from zoo.variants import variants

REQUEST = CostRequest(
    attentions=["nystrom"], lengths=[256], operations=["train"], level="step", batching="2",
    dim=64, heads=2, causal=False, precision="fp32", device="cpu", settings={},
)  # fmt: skip


def trained(name: str, recompute, lengths) -> list[torch.Tensor]:
    """Logits, losses and gradients of a model with dropout in all places, from one seed."""
    torch.manual_seed(3)
    rate = 0.2 * variants.find(name).drops_weights
    size = {"dim": 16, "heads": 2, "max_len": 40, "causal": variants.find(name).traits.forms[0]}
    layers = [create(name, **size, dropout=rate) for _ in range(2)]
    model = Classifier(
        layers, encoder(head=12, dropout=0.3, recompute=recompute), vocabulary=11, classes=3,
        sequences=1,
    )  # fmt: skip
    mask = None if lengths is None else torch.arange(40) < torch.tensor(lengths)[:, None, None]
    logits, losses = model(Batch(torch.randint(11, (3, 1, 40)), mask, torch.tensor([0, 1, 2])))
    total = logits.square().sum() + sum(losses.values())
    gradients = torch.autograd.grad(total, list(model.parameters()), materialize_grads=True)
    return [logits, *losses.values(), *gradients, torch.rand(1)]


FULL, PADDED = None, [40, 7, 23]

CHECKED = [name for name, variant in variants.items() if not variant.unchecked]
QUICK = ("primal", "performer")
"""All variants, and the ones that fast tests use."""


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        *((name, FULL) for name in QUICK),
        *(
            pytest.param(name, PADDED, marks=[] if name in QUICK else pytest.mark.slow)
            for name in CHECKED
        ),
    ],
)
def test_recomputation_changes_no_bit_of_outputs_losses_gradients_and_later_draws(name, lengths):
    expected = trained(name, "none", lengths)
    for recompute in ("attention", "layer"):
        actual = trained(name, recompute, lengths)
        assert all(map(torch.equal, actual, expected)), recompute


def peak(recompute) -> int:
    """Of a training step of a model of six layers."""
    request = replace(REQUEST, settings={"model": {"recompute": recompute, "depth": 6}})
    work = prepare(measurements(request)[0])
    work.call()
    return peak_bytes(work.call, torch.device("cpu"))


@pytest.mark.slow
def test_each_form_stores_less_than_the_one_before():
    none, attention, layer = (peak(recompute) for recompute in ("none", "attention", "layer"))
    assert attention < 0.8 * none
    assert layer < 0.8 * attention


def test_evaluation_stores_nothing_and_recomputes_nothing():
    layer = EncoderLayer.create(
        "linear", dim=16, heads=2, max_len=40, feed_forward=24, recompute="layer"
    )
    calls = []
    layer.attention.register_forward_hook(lambda *_: calls.append(1))
    layer.eval()(torch.randn(2, 40, 16)).tokens.sum().backward()
    assert len(calls) == 1
    layer.train()(torch.randn(2, 40, 16)).tokens.sum().backward()
    assert len(calls) == 3


def test_a_cost_sweep_of_models_takes_settings_of_the_model_for_every_row():
    request = replace(REQUEST, settings={"model": {"recompute": "attention", "depth": 3}})
    for spec in measurements(request):
        assert (spec.model.recompute, spec.model.depth) == ("attention", 3)


@pytest.mark.parametrize(
    ("level", "setting", "message"),
    [
        ("layer", {"recompute": "layer"}, "no row uses 'model'"),
        ("step", {"recompute": "all"}, r"model\.recompute=all"),
        ("step", {"dim": 3}, "dim"),
    ],
)
def test_a_setting_that_a_sweep_cannot_have_is_rejected(level, setting, message):
    with pytest.raises(UserError, match=message):
        measurements(replace(REQUEST, level=level, settings={"model": setting}))


def test_an_unknown_form_is_rejected():
    with pytest.raises(UserError, match="attention"):
        EncoderLayer.create("none", dim=8, heads=2, max_len=4, feed_forward=8, recompute="attn")
