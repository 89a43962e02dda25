"""Errors of approximations: exact for softmax itself, 1 for uniform weights, smaller with more."""

import math

import pytest
import torch

from harness import layer_inputs
from harness.layer_inputs import (
    alike,
    attentions,
    generated_inputs,
    inputs_of_layers,
    projected,
    scale_logits,
    spread_of_logits,
)
from harness.studies import approximation
from harness.studies.approximation import Approximation, distances, generated
from zoo.contract import Unsupported
from zoo.library import create
from zoo.projected import ProjectedAttention
from zoo.variants import variants
from zoo.variants.softmax import Softmax


def errors(name, logits=1.0, kind="random", length=64, **options):
    study = Approximation(variant=name, dim=16, heads=2, samples=2)
    row = generated(study, options, kind, length, logits)
    return {key.removesuffix("_error"): value for key, value in row.items()}


def test_softmax_by_its_formula_has_no_error():
    row = errors("softmax", backend="naive", logits=2.0)
    assert max(row[name] for name in ("output", "weights", "gradient", "log_weights")) < 1e-5
    assert (row["positive_share"], row["samples"], row["length"]) == (1.0, 2, 64)


@pytest.fixture
def uniform(monkeypatch):
    """The variants `uniform`, which averages the values, and `tripled`, three times softmax."""

    class Uniform(ProjectedAttention):
        traits = variants.find("linear").traits

        def attend(self, q, k, v, mask):
            return v.mean(2, keepdim=True).expand_as(q)

    class Tripled(Softmax):
        def attend(self, q, k, v, mask):
            return 3 * super().attend(q, k, v, mask)

    classes = {"uniform": Uniform, "tripled": Tripled}
    monkeypatch.setattr(
        layer_inputs, "create", lambda name, **size: create(classes.get(name, name), **size)
    )


def test_uniform_weights_are_as_far_off_as_uniform_weights(uniform):
    row = errors("uniform")
    assert row["weights"] == pytest.approx(1, abs=1e-5)
    # The best constant output is the mean of softmax's outputs, and not of the values.
    assert 1 <= row["output"] < 1.1
    assert row["log_weights"] == pytest.approx(1, abs=1e-5)


def test_each_error_is_relative_to_softmax(uniform):
    row = errors("tripled")
    assert row["gradient"] == pytest.approx(2, rel=1e-5)
    assert row["log_weights"] < 1e-5
    # 2 |A| / |A - 1/n|; of normal logits with variance 1, |A|^2 is e times |1/n|^2.
    assert row["weights"] == pytest.approx(2 * (math.e / (math.e - 1)) ** 0.5, rel=0.1)


def test_the_layer_is_causal_and_rotary_as_softmax_is():
    torch.manual_seed(0)
    reference = projected(create("softmax", dim=8, heads=2, max_len=6, causal=True, rotary=True))
    layer = alike(reference, "softmax", {"backend": "naive"})
    found, positive = distances(layer, reference, torch.randn(1, 6, 8))
    assert max(error for error, _ in found.values()) < 1e-9
    assert positive == pytest.approx(21 / 36)


def test_the_inputs_of_a_run_are_the_real_tokens_of_dev_at_each_layer(run_with_weights):
    run, model, dev = run_with_weights(approximation, "softmax")
    rows = [*approximation.on_run(run, "linear", {}, 3)]
    layers = zip(rows, attentions(model), inputs_of_layers(model, dev, 3), strict=True)
    for number, (row, layer, calls) in enumerate(layers, 1):
        real = [call.x[:, call.mask[0]] for call in calls]
        assert row["length"] == max(x.shape[1] for x in real) < 24 and row["samples"] == 3
        spread = sum(spread_of_logits(layer, x) for x in real) / 3
        assert row["logits"] == pytest.approx(spread, rel=1e-4)
        assert row["inputs"] == f"listops softmax, layer {number}"
    run, *_ = run_with_weights(approximation, "linear")
    with pytest.raises(Unsupported, match="no layer of the run of linear is softmax"):
        [*approximation.on_run(run, "linear", {}, 3)]


def test_the_examples_of_dev_are_evenly_spaced(run_with_weights):
    _, model, dev = run_with_weights(approximation, "softmax")
    for samples, expected in ((1, [0]), (3, [0, 7, 15]), (99, [*range(16)])):
        calls = inputs_of_layers(model, dev, samples)[0]
        lengths = [int(call.mask.sum()) for call in calls]
        assert lengths == [int(dev.example_lengths()[example].sum()) for example in expected]


def test_weights_of_a_window_have_the_ratios_of_softmax_where_they_are_positive():
    row = errors("local", window=4)
    assert row["log_weights"] < 1e-3 and 0 < row["positive_share"] < 0.2


@pytest.mark.parametrize("kind", ["random", "smooth"])
def test_inputs_have_unit_variance_and_the_logits_that_are_requested(kind):
    torch.manual_seed(0)
    x = generated_inputs(kind, 8, 256, 32)
    assert x.mean().abs() < 0.02 and x.std().item() == pytest.approx(1, abs=0.05)
    neighbours = (x[:, 1:] - x[:, :-1]).square().mean()
    assert (neighbours < 0.1) == (kind == "smooth")
    layer = projected(create("softmax", dim=32, heads=2, max_len=256))
    torch.nn.init.normal_(layer.query.bias)
    scale_logits(layer, x, 2.5)
    assert spread_of_logits(layer, x) == pytest.approx(2.5, rel=1e-4)


def test_the_spread_of_logits_is_the_deviation_of_the_scores():
    layer, x = projected(create("softmax", dim=8, heads=2, max_len=5)), torch.randn(3, 5, 8)
    q, k = layer.query(x), layer.context(x)[..., :8]
    scores = [q[..., i : i + 4] @ k[..., i : i + 4].mT / 2 for i in (0, 4)]
    assert spread_of_logits(layer, x) == pytest.approx(torch.stack(scores).std().item())


def test_a_variant_with_projections_of_another_size_is_rejected():
    with pytest.raises(Unsupported, match="taylor has projections of another size than softmax"):
        errors("taylor")
