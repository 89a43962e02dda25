"""A run of a language model, from its text to the record and the leaderboard."""

import numpy as np
import pytest

from harness.baselines import fit
from harness.cli.report import summary
from harness.plan import resolve
from harness.records.store import BaselineStore, Store
from harness.runner import run
from tasks.data import cache
from zoo.registry import UserError


def article(number: int) -> str:
    return f" \n = A{number} = \n \n" + f" the cat number {number} and the dog \n" * 40


@pytest.fixture
def text(tmp_path, monkeypatch) -> bytes:
    """Puts a small text in an empty cache; returns its test part."""
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    texts = {"train": "", "valid": "".join(map(article, range(9))), "test": article(10) * 3}
    arrays = {f"{n}_text": np.frombuffer(t.encode(), np.uint8) for n, t in texts.items()}
    cache.write("wikitext@1", arrays)
    return texts["test"].encode()


@pytest.mark.slow
def test_the_record_has_the_cross_entropy_of_every_test_byte(
    text, request_of, store, callback, unmeasured
):
    options = {"max_len": 16, "train": 0, "dev": 0, "test": 0}
    plan = resolve(request_of("linear", "wikitext", wikitext=options))
    record = run(plan, store, callback)
    assert record.status == "ok", record.reason
    final = record.final
    assert final is not None and final.sample is not None
    assert final.sample.count == len(text) and len(final.sample.sizes) == 3
    # Four steps of training: a little better than equal probabilities of all bytes.
    assert 3 < final.sample.mean < np.log(256) and record.metric.chance == pytest.approx(8)
    assert final.score == pytest.approx(final.sample.mean / np.log(2))
    on_dev = [point.dev for point in record.curve if point.evaluated]
    assert final.dev == min(on_dev) and len(on_dev) == 2
    assert [*Store(store.folder).read()[0]] == [record]
    kept = BaselineStore.within(store.folder)
    found = fit(plan.spec.task, lambda _: plan.data, kept, lambda *_: None)
    assert sorted(found.scores.values())[1:] == [found.scores["unigram"], found.scores["chance"]]
    _, shown = summary([record], store.folder)
    assert "Kneser-Ney" in shown and "bits per byte" in shown
    kept.write(found.model_copy(update={"version": found.version + 1}))
    assert "Kneser-Ney" not in summary([record], store.folder)[1]


def test_a_variant_that_is_not_causal_is_one_clear_line(text, call):
    code, _, error = call(
        "run", "--task", "wikitext", "--attention", "nystrom", "--budget", "smoke"
    )
    (line,) = error.strip().splitlines()
    assert code == 2 and "nystrom is not causal; causal variants: " in line and "linear" in line


def test_blocks_of_a_text_cannot_be_shuffled(text, request_of):
    with pytest.raises(UserError, match=r"wikitext@1.* has target positions; shuffle another task"):
        resolve(request_of("softmax", "wikitext", block=4))
