"""Spectra of known matrices, kept weights, and the inputs of layers."""

import math

import pandas as pd
import pytest
import torch

import zoo
from harness import checkpoint
from harness.data import restore
from harness.layer_inputs import Inputs, inputs_of_layers, scale_logits
from harness.model import build_model
from harness.studies import spectrum
from harness.studies.spectrum import Spectrum, explained_variance, ranks_up_to, spectrum_of
from tests.harness.specs import axes_of
from zoo.registry import UserError


def spectra(run, samples):
    rows = spectrum.spectra(run.record.spec, run.files, samples, "a setting")
    return pd.DataFrame(rows)


def test_the_spectrum_of_a_matrix_with_known_singular_values():
    left, right = (torch.linalg.qr(torch.randn(6, 6).double())[0] for _ in range(2))
    values = torch.tensor([4.0, 2.0, 2.0, 1.0, 0.0, 0.0]).double()
    explained, effective = explained_variance(left @ values.diag() @ right, [1, 3, 4, 9])
    assert explained.tolist() == pytest.approx([16 / 25, 24 / 25, 1.0, 1.0])
    shares = [4 / 9, 2 / 9, 2 / 9, 1 / 9]
    assert effective.item() == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)))
    for limit in (1, 32, 33, 1024):
        ranks = ranks_up_to(limit)
        assert ranks[-1] == limit and ranks == sorted({*ranks})
        assert ranks[:32] == [*range(1, min(limit, 32) + 1)]
    # Any direction explains a matrix of zeros.
    explained, effective = explained_variance(torch.zeros(3, 3), [1, 2])
    assert explained.tolist() == [1.0, 1.0] and effective.item() == 1.0


def test_kept_weights_are_those_before_training_and_of_each_evaluation_of_a_continued_run(
    tiny, store, run_here, prepare, interrupted
):
    short = interrupted(tiny("linear", steps=4, evaluations=2), keep_checkpoints=True)
    record = run_here(short, keep_checkpoints=True)
    files = checkpoint.find_weights(store.weights(short))
    assert [*files] == [0, 2, 4]
    trainer = prepare(short)
    for step in range(5):
        if step in files:
            weights = torch.load(files[step], weights_only=True)
            assert all(torch.equal(weights[name], value)
                       for name, value in trainer.model.state_dict().items())  # fmt: skip
        trainer.step(step)
    store.path(short).unlink()
    assert [point.loss for point in run_here(short).curve] == [p.loss for p in record.curve]


def test_a_spectrum_is_the_mean_over_heads_with_its_deviation_over_examples():
    uniform, distinct = torch.full((4, 4), 0.25), torch.eye(4)
    layer = zoo.create("softmax", dim=4, heads=2, max_len=4)
    matrices = [[[uniform, distinct], [uniform, uniform]], [[uniform, uniform]] * 2]
    by_call = iter([torch.stack([*map(torch.stack, matrix)]) for matrix in matrices])
    layer.matrix = lambda x, context, mask: next(by_call)
    rows = spectrum_of(layer, [Inputs(torch.zeros(2, 4, 4), None)] * 2, [1, 2])
    found = pd.DataFrame(rows)
    first, second = (3 + 1 / 4) / 4, (3 + 1 / 2) / 4
    assert found["explained_variance"].tolist() == pytest.approx(
        [(first + 1) / 2, (second + 1) / 2]
    )
    assert found["explained_variance_deviation"].tolist() == pytest.approx(
        [(1 - first) / 2, (1 - second) / 2]
    )
    assert found["effective_rank"].tolist() == pytest.approx([((3 + 4) / 4 + 1) / 2] * 2)
    assert found["effective_rank_deviation"].tolist() == pytest.approx([3 / 8] * 2)


def test_the_figure_has_a_line_for_each_layer():
    rows = [
        {"setting": "a task", "attention": attention, "seed": seed, "layer": 1, "step": step,
         "variant": attention, "rank": rank, "explained_variance": share,
         "explained_variance_deviation": 0.1, "effective_rank": 1.5 + step,
         "effective_rank_deviation": 0.2, "reason": ""}
        for attention, seed in (("primal[rank=20]", 0), ("softmax", 1))
        for step in (0, 3) for rank, share in ((1, 0.5), (2, 0.9), (4, 1.0))
    ]  # fmt: skip
    explained, effective = map(axes_of, Spectrum.panels(pd.DataFrame(rows)))
    assert [*explained.lines[0].get_ydata()] == [0.5, 0.9, 1.0] and len(explained.collections) == 2
    assert [*effective.lines[0].get_xdata()] == [0, 3]
    assert [*effective.lines[0].get_ydata()] == [1.5, 4.5]


def test_a_damaged_file_of_weights_is_an_error(tiny, store, run_here):
    short = tiny("none", steps=2, evaluations=1)
    run_here(short, keep_checkpoints=True)
    files = checkpoint.find_weights(store.weights(short))
    whole = files[2].read_bytes()
    # In the data of a tensor: PyTorch alone would load it.
    files[2].write_bytes(bytes(byte ^ (at == len(whole) // 2) for at, byte in enumerate(whole)))
    with pytest.raises(UserError, match=r"is damaged: .*; make them again with: harness run"):
        [*spectrum.spectra(short, files, 2, "")]


def test_the_examples_of_dev_are_evenly_spaced(tiny, dev):
    model = build_model(tiny(), restore(tiny()).task).eval()
    for samples, expected in ((1, [0]), (3, [0, 7, 15]), (99, [*range(16)])):
        calls = inputs_of_layers(model, dev, samples)[0]
        lengths = [int(call.mask.sum()) for call in calls]
        assert lengths == [int(dev.example_lengths()[example].sum()) for example in expected]


def test_logits_have_the_deviation_that_is_requested():
    torch.manual_seed(0)
    layer, x = zoo.create("softmax", dim=8, heads=2, max_len=5), torch.randn(3, 5, 8)
    torch.nn.init.normal_(layer.query.bias)
    scale_logits(layer, x, 2.5)
    q, k = layer.query(x), layer.context(x)[..., :8]
    scores = torch.stack([q[..., i : i + 4] @ k[..., i : i + 4].mT / 2 for i in (0, 4)])
    assert scores.std().item() == pytest.approx(2.5, rel=1e-4)
