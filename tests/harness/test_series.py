"""Time series and text: post-norm layers, a flattened head, and runs with them."""

from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F

from harness import data as datas
from harness.baselines import fit
from harness.data import Data, data_of
from harness.model import LAYERS, Classifier, FlattenedHead
from harness.questions import question_of
from harness.records.store import BaselineStore
from reports.pages.suite import terminal
from reports.store import summary
from tasks.contract import SPLITS, Batch, Split
from tasks.data import cache
from tests.conftest import one_line
from tests.harness.conftest import requested
from tests.harness.specs import encoder
from tests.zoo.oracle import decode
from zoo import create
from zoo.post_norm import MaskedBatchNorm, PostNormLayer

LENGTH, CHANNELS, CLASSES = 12, 3, 4


def layer(name: str = "primal"):
    return create(name, dim=16, heads=2, max_len=LENGTH)


def classifier(norm: str, pooling: str = "flatten", name: str = "primal", **options) -> Classifier:
    torch.manual_seed(0)
    sizes = {"sequences": 1, "vocabulary": 0, "channels": CHANNELS} | options
    return Classifier(
        [layer(name), layer(name)], encoder(norm=norm, pooling=pooling), classes=CLASSES, **sizes
    )


def draw() -> Batch:
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [3], [1], [7]])[..., None]
    signals = torch.randn(4, 1, LENGTH, CHANNELS, generator=torch.Generator().manual_seed(1))
    return Batch(signals, mask, torch.tensor([0, 1, 2, 3]))


@pytest.mark.parametrize(("name", "pooling", "training"), [
    ("primal", "flatten", True), ("softmax", "mean", True), ("softmax", "flatten", False),
])  # fmt: skip
@pytest.mark.parametrize("norm", LAYERS)
def test_padded_time_points_never_change_the_model(norm, name, pooling, training):
    batch = draw()
    noisy = replace(batch, tokens=batch.tokens.masked_fill(~batch.mask[..., None], 7.0))
    short = Batch(batch.tokens[1:, :, :7], batch.mask[1:, :, :7], batch.targets[1:])
    results = []
    for examples in (batch, noisy):
        model = classifier(norm, pooling, name).train(training)
        logits, losses = model(examples)
        (logits.square().sum() + sum(losses.values())).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append([logits, *gradients, *model.buffers()])
    assert (results[0][0] - results[0][0].mean(0)).abs().max() > 1e-2
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    if name == "softmax":  # primal samples other tokens
        model = classifier(norm, pooling, name).eval()
        torch.testing.assert_close(model(short)[0], model(batch)[0][1:])


def test_a_batch_norm_is_that_of_pytorch_of_the_real_tokens():
    torch.manual_seed(0)
    ours, theirs = MaskedBatchNorm(5), nn.BatchNorm1d(5)
    for norm in (ours, theirs):
        nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(3))
    for x in torch.randn(3, 4, 6, 5) * 3 + 1:
        torch.testing.assert_close(ours(x), theirs(x.mT).mT)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    for norm in (ours, theirs):
        norm.eval()
    torch.testing.assert_close(ours(x), theirs(x.mT).mT)
    # With padding it is that of the real tokens alone.
    ours, alone = MaskedBatchNorm(16), MaskedBatchNorm(16)
    x, mask = torch.randn(4, LENGTH, 16) * 3 + 5, draw().mask[:, 0]
    torch.testing.assert_close(ours(x, mask)[mask], alone(x[mask][None])[0])
    torch.testing.assert_close(ours.running_var, alone.running_var)


def test_a_post_norm_layer_is_that_of_pytorch():
    torch.manual_seed(0)
    ours = PostNormLayer(create("softmax", dim=16, heads=2, max_len=LENGTH), feed_forward=24)
    x = torch.randn(2, LENGTH, 16)
    for norm in (ours.attention_norm, ours.feed_forward_norm):
        norm.weight.data.normal_()
    attended = F.layer_norm(x + ours.attention(x).tokens, (16,), ours.attention_norm.weight)
    expand, _, _, contract, _ = ours.feed_forward
    hidden = contract(F.gelu(expand(attended)))
    expected = F.layer_norm(attended + hidden, (16,), ours.feed_forward_norm.weight)
    torch.testing.assert_close(ours(x).tokens, expected)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_a_post_norm_layer_decodes_token_by_token(norm):
    torch.manual_seed(0)
    attention = create("linear", dim=16, heads=2, max_len=LENGTH, causal=True)
    ours = PostNormLayer(attention, feed_forward=24, norm=norm)
    x = torch.randn(2, LENGTH, 16)
    ours(x)
    ours.eval()
    for actual, _ in (decode(ours, x), ours.prefill(x)):
        torch.testing.assert_close(actual, ours(x).tokens, rtol=1e-4, atol=1e-5)


def test_the_flattened_head_reads_gelu_of_every_real_token_at_its_position():
    head = FlattenedHead(5, 4, 3, 0.0)
    tokens, mask = torch.randn(2, 3, 5), torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    tokens[0, 2] = torch.nan
    weight = head.weight.view(3, 4, 5)
    first = torch.einsum("nd,knd->k", F.gelu(tokens[0, :2]), weight[:, :2]) + head.bias
    torch.testing.assert_close(head(tokens, mask)[0], first)
    assert not torch.equal(head(tokens.flip(1), None)[1], head(tokens, None)[1])


def test_a_flattened_head_needs_one_sequence_and_one_target_and_a_batch_norm_each_batch_once():
    with one_line("pooling=flatten reads one sequence of an example"):
        classifier("post", sequences=2)
    batch = replace(draw(), target_positions=torch.zeros(4, 1).long())
    with one_line("pooling=flatten has no outputs at target positions"):
        classifier("post")(batch)
    with pytest.raises(ValidationError, match="counts each batch twice"):
        encoder(norm="batch", recompute="layer")
    with one_line("recompute='layer' is not possible with a batch norm"):
        PostNormLayer(layer(), feed_forward=8, recompute="layer", norm="batch")


class RandomSeries(Data):
    digests = MappingProxyType({})

    @cached_property
    def splits(self):
        task = self.task
        split = Split(
            torch.randn(16, task.max_len, task.channels),
            torch.randint(1, task.max_len + 1, (16,)).int(), torch.arange(16)[:, None].int(),
            torch.randint(task.classes, (16,)), padded=True,
        )  # fmt: skip
        return dict.fromkeys(SPLITS, split)


def test_a_run_of_a_time_series_gives_a_record(run_here, monkeypatch):
    name, settings = "uea-japanese-vowels", {"model": {"norm": "batch"}}
    task = data_of(question_of(name, "smoke", settings).task).task
    monkeypatch.setitem(datas._READ, (type(task), task.key), RandomSeries(task))
    record = run_here(requested("softmax+primal", name, **settings))
    assert (record.status, record.reason, record.spec.model.norm) == ("ok", "", "batch")
    assert record.curve[-1].losses.keys() == {"ksvd"} and record.final is not None
    assert record.spec.question.name.endswith("model.norm=batch")


def article(number: int) -> str:
    return f" \n = A{number} = \n \n" + f" the cat number {number} and the dog \n" * 40


@pytest.fixture
def text(tmp_path, monkeypatch) -> bytes:
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    texts = {"train": "", "valid": "".join(map(article, range(9))), "test": article(10) * 3}
    arrays = {f"{n}_text": np.frombuffer(t.encode(), np.uint8) for n, t in texts.items()}
    cache.write("wikitext@1", arrays)
    return texts["test"].encode()


@pytest.mark.slow
def test_the_record_has_the_cross_entropy_of_every_test_byte(text, store, run_here):
    options = {"max_len": 16, "train": 0, "dev": 0, "test": 0}
    spec = requested("linear", "wikitext", wikitext=options)
    record = run_here(spec)
    assert record.status == "ok", record.reason
    final = record.final
    assert final.sample.count == len(text) and len(final.sample.sizes) == 3
    # Four steps of training: a little better than equal probabilities of all bytes.
    assert 3 < final.sample.mean < np.log(256) and record.metric.chance == pytest.approx(8)
    assert final.score == pytest.approx(final.sample.mean / np.log(2))
    assert final.dev == min(point.dev for point in record.curve if point.dev is not None)
    baselines = BaselineStore.within(store.folder)
    found = fit(spec.task, baselines)
    assert sorted(found.scores.values())[1:] == [found.scores["unigram"], found.scores["chance"]]
    text = terminal(summary([(record, True)], store.folder)[0])
    assert "Kneser-Ney" in text and "bits per byte" in text
    baselines.write(found.model_copy(update={"version": found.version + 1}))
    assert "Kneser-Ney" not in terminal(summary([(record, True)], store.folder)[0])
