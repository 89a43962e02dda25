"""Errors of approximations: exact for softmax itself, 1 for uniform weights, smaller with more."""

import json
import math

import pytest
import torch

from harness import weights
from harness.approximation import (
    Setting,
    alike,
    distances,
    generated_inputs,
    on_generated_inputs,
    on_inputs_of_run,
    projected,
    scale_logits,
    spread_of_logits,
)
from harness.layer_inputs import attentions, recorded
from harness.model import build_model
from harness.records.approximation import Approximation
from zoo.contract import Unsupported
from zoo.library import create
from zoo.projected import ProjectedAttention
from zoo.variants import variants
from zoo.variants.softmax import Softmax


def errors(name: str, logits: float = 1.0, kind: str = "random", length: int = 64, **options):
    found = on_generated_inputs(Setting(name, options, 16, 2), [length], [logits], 2)
    return next(one for one in found if one.inputs == kind)


def test_softmax_by_its_formula_has_no_error():
    one = errors("softmax", backend="naive", logits=2.0)
    assert max(one.output, one.weights, one.gradient, one.log_weights) < 1e-5
    assert (one.positive, one.samples, one.length) == (1.0, 2, 64)


def test_uniform_weights_are_as_far_off_as_uniform_weights(monkeypatch):
    class Uniform(ProjectedAttention):
        traits = variants.find("linear").traits

        def attend(self, q, k, v, mask):
            return v.mean(2, keepdim=True).expand_as(q)

    monkeypatch.setattr(
        "harness.approximation.create",
        lambda name, **size: create(Uniform if name == "uniform" else name, **size),
    )
    one = errors("uniform")
    assert one.weights == pytest.approx(1, abs=1e-5)
    # The best constant output is the mean of softmax's, and not that of the values.
    assert 1 <= one.output < 1.1
    assert one.log_weights == pytest.approx(1, abs=1e-5)


def test_each_error_is_relative_to_softmax(monkeypatch):
    class Tripled(Softmax):
        def attend(self, q, k, v, mask):
            return 3 * super().attend(q, k, v, mask)

    monkeypatch.setattr(
        "harness.approximation.create",
        lambda name, **size: create(Tripled if name == "tripled" else name, **size),
    )
    one = errors("tripled")
    assert one.gradient == pytest.approx(2, rel=1e-5)
    assert one.log_weights < 1e-5
    # 2 |A| / |A - 1/n|; of normal logits with variance 1, |A|^2 is e times |1/n|^2.
    assert one.weights == pytest.approx(2 * (math.e / (math.e - 1)) ** 0.5, rel=0.1)


def test_the_layer_is_causal_and_rotary_as_softmax_is():
    torch.manual_seed(0)
    reference = projected(create("softmax", dim=8, heads=2, max_len=6, causal=True, rotary=True))
    layer = alike(reference, Setting("softmax", {"backend": "naive"}, 8, 2))
    found = distances(layer, reference, torch.randn(1, 6, 8))
    assert max(error for error, _ in found[:4]) < 1e-9
    assert found.positive == pytest.approx(21 / 36)


def test_the_inputs_of_a_run_are_the_real_tokens_of_dev_at_each_layer(plan, tmp_path, monkeypatch):
    one = plan("softmax")
    model = build_model(one.spec, one.task).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    file, dev = weights.save(tmp_path, 0, model), one.data.splits["dev"]
    monkeypatch.setitem(one.data.splits, "test", None)
    found = [*on_inputs_of_run(one, file, Setting("linear", {}, 0, 0), 3)]
    with torch.no_grad(), recorded(model) as calls:
        batches = [dev.gather(torch.tensor([example])) for example in (0, 7, 15)]
        for batch in batches:
            model(batch)
    for number, row in enumerate(found):
        real = [call.x[:, call.mask[0]] for call in calls[number::2]]
        layer = attentions(model)[number]
        assert row.length == max(x.shape[1] for x in real) < 24
        spread = sum(spread_of_logits(layer, x) for x in real) / 3
        assert row.logits == pytest.approx(spread, rel=1e-4)
    assert len(found) == 2 and found[0].samples == 3


def test_more_features_and_more_landmarks_are_closer():
    few, many = (errors("performer", logits=0.3, features=count) for count in (16, 2048))
    assert many.output < few.output / 2 and many.weights < few.weights / 3
    few, many = (errors("nystrom", kind="smooth", landmarks=count) for count in (4, 32))
    assert many.output < few.output / 3


def test_weights_of_a_window_have_the_ratios_of_softmax_where_they_are_positive():
    one = errors("local", window=4)
    assert one.log_weights < 1e-3 and 0 < one.positive < 0.2


@pytest.mark.parametrize("kind", ["random", "smooth"])
def test_inputs_have_unit_variance_and_the_logits_that_are_requested(kind):
    torch.manual_seed(0)
    x = generated_inputs(kind, 8, 256, 32)
    assert x.mean().abs() < 0.02 and x.std().item() == pytest.approx(1, abs=0.05)
    neighbours = (x[:, 1:] - x[:, :-1]).square().mean()
    assert (neighbours < 0.1) == (kind == "smooth")
    one = errors("linear", logits=2.5, kind=kind)
    assert one.logits == 2.5
    layer = projected(create("softmax", dim=32, heads=2, max_len=256))
    torch.nn.init.normal_(layer.query.bias)
    scale_logits(layer, x, 2.5)
    assert spread_of_logits(layer, x) == pytest.approx(2.5, rel=1e-4)


def test_the_spread_of_logits_is_that_of_the_scores():
    layer, x = projected(create("softmax", dim=8, heads=2, max_len=5)), torch.randn(3, 5, 8)
    q, k = layer.query(x), layer.context(x)[..., :8]
    scores = [q[..., i : i + 4] @ k[..., i : i + 4].mT / 2 for i in (0, 4)]
    assert spread_of_logits(layer, x) == pytest.approx(torch.stack(scores).std().item())


@pytest.mark.parametrize("name", ["reformer", "primal", "none"])
def test_a_variant_without_projections_of_its_own_is_rejected(name):
    with pytest.raises(Unsupported, match="no separate queries, keys and values"):
        errors(name)


@pytest.mark.slow
def test_the_command_writes_a_table_and_a_figure_for_a_trained_model_too(
    call, store, unmeasured, tmp_path
):
    given = ["--budget", "smoke", "--precision", "fp32", "--keep-checkpoints"]
    for option in ("min_len=2", "max_len=24", "train=64", "dev=16", "test=18"):
        given += ["--set", f"listops.{option}"]
    assert call("run", "-a", "softmax+linear", *given)[0] == 0
    (name,) = [path.stem for path in store.folder.glob("*.json")]
    options = ["--over", "linformer.rank=2,4", "--lengths", "16", "--logits", "1", "--samples", "2"]
    out = ["--out", str(tmp_path / "out"), "--run", name, "--json"]
    code, text, err = call("study", "approximation", "linformer", *options, *out)
    assert code == 0, err
    rows = [Approximation.model_validate(row) for row in json.loads(text)["rows"]]
    inputs = ["listops softmax+linear, layer 1", "random", "smooth"]
    assert [(row.options["rank"], row.inputs) for row in rows] == [
        (rank, kind) for rank in (2, 4) for kind in inputs
    ]
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {f"approximation.{kind}" for kind in ("md", "csv", "png", "svg")}


def test_progress_names_the_option_that_is_varied(call, tmp_path):
    options = ("--over", "linformer.rank=2,4", "--lengths", "16", "--logits", "1", "--samples", "1")
    code, out, err = call("study", "approximation", "linformer", *options, "--out", str(tmp_path))
    assert (code, err) == (0, "")
    lines = [line.rpartition(":")[0] for line in out.splitlines()[:4]]
    assert lines == [
        f"linformer (rank={rank}), {kind}, 16 tokens, logits 1"
        for rank in (2, 4)
        for kind in ("random", "smooth")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["performer", "--set", "linear.chunk=1"], "'linear' is not the variant"),
        (["performer", "--over", "performer.feature=1"], "did you mean 'features'?"),
        (
            ["performer", "--over", "performer.features=64", "--set", "performer.features=32"],
            "--set performer.features=32 gives an option that is varied; leave it out",
        ),
        (["performer", "--logits", "0"], "logits '0' are not positive numbers"),
        (["performer", "--lengths", "1"], "are not all from 2"),
        (["performers"], "did you mean 'performer'?"),
        # A specification leaves this option out at its default.
        (["primal", "--set", "primal.sides=both"], "no separate queries, keys and values"),
    ],
)
def test_bad_input_is_one_line(call, options, message):
    code, _, err = call("study", "approximation", *options)
    assert code == 2 and message in err and err.count("\n") == 1
