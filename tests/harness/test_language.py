"""Language models: no output depends on what it predicts; from the text to the table."""

import numpy as np
import pytest
import torch

from harness.baselines import fit
from harness.model import Classifier
from harness.records.store import BaselineStore, Store
from reports.pages.suite import terminal
from reports.store import summary
from tasks.data import cache
from tasks.language.wikitext import windows
from tests.harness.conftest import requested
from tests.harness.specs import encoder
from zoo.composition import Composition, build
from zoo.contract import Size

# Of a window, and the first token that differs: the sixth of the second window.
LENGTH, CHANGED = 12, 17


def model(attention: str) -> Classifier:
    torch.manual_seed(0)
    size = Size(dim=16, heads=2, max_len=LENGTH, causal=True, dropout=0.0)
    composition = Composition.parse(attention)
    layers = build(composition.layers(2), size, {})
    around = encoder(feed_forward=16, head=16)
    return Classifier(layers, around, vocabulary=10, classes=9, sequences=1).eval()


@pytest.mark.parametrize("attention", ["softmax", "linear", "softmax+primal"])
def test_no_score_depends_on_its_target_or_on_later_tokens(attention):
    tokens = np.random.default_rng(0).integers(0, 9, 30)
    changed = tokens.copy()
    changed[CHANGED:] = (tokens[CHANGED:] + 1) % 9
    built = model(attention)
    with torch.no_grad():
        scores = []
        for classes in (tokens, changed):
            split = windows(classes, np.array([0]), LENGTH, 10, "perplexity")
            scores.append(built(split.gather(torch.arange(len(split))))[0].flatten(0, 1)[:30])
    expected = [i > CHANGED for i in range(2 * LENGTH)] + [True] * (30 - 2 * LENGTH)
    assert ((scores[0] - scores[1]).abs().amax(-1) > 1e-6).tolist() == expected


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
    assert final is not None and final.sample is not None
    assert final.sample.count == len(text) and len(final.sample.sizes) == 3
    # Four steps of training: a little better than equal probabilities of all bytes.
    assert 3 < final.sample.mean < np.log(256) and record.metric.chance == pytest.approx(8)
    assert final.score == pytest.approx(final.sample.mean / np.log(2))
    on_dev = [point.dev for point in record.curve if point.dev is not None]
    assert final.dev == min(on_dev) and len(on_dev) == 2
    assert [*Store(store.folder).read()[0]] == [record]
    baselines = BaselineStore.within(store.folder)
    found = fit(spec.task, baselines)
    assert sorted(found.scores.values())[1:] == [found.scores["unigram"], found.scores["chance"]]
    text = terminal(summary([(record, True)], store.folder)[0])
    assert "Kneser-Ney" in text and "bits per byte" in text
    baselines.write(found.model_copy(update={"version": found.version + 1}))
    assert "Kneser-Ney" not in terminal(summary([(record, True)], store.folder)[0])
