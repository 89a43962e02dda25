"""Language models, from the text to the table."""

import numpy as np
import pytest

from harness.baselines import fit
from harness.records.store import BaselineStore
from reports.pages.suite import terminal
from reports.store import summary
from tasks.data import cache
from tests.harness.conftest import requested


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
