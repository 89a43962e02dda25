"""Boards of language models: bits per byte and perplexity, intervals, order and baselines."""

import csv
import io
import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import t as student

from harness.records.answers import ClusterValues
from harness.records.record import Record
from reports.figures import curves
from reports.pages import sweep_files
from reports.pages.leaderboard import leaderboard
from reports.statistics import Sample, mean_interval
from reports.tables import as_csv, boards
from reports.tables.curves import as_csv as curves_csv
from reports.tables.terminal import summary
from tasks import metrics
from tests.reports.conftest import make_record

SIZES = (10, 30, 5, 15) * 10
CLUSTERS = len(SIZES)


def language(attention: str, seed: int, nats: list[float], metric="bits-per-byte", **fields):
    """A record whose clusters have these mean losses."""
    sums = tuple(mean * size for mean, size in zip(nats, SIZES, strict=True))
    sample, shown = ClusterValues(sizes=SIZES, sums=sums), metrics.find(metric).metric
    record = make_record(attention, seed=seed, **fields)
    score = {"sample": sample, "score": shown.value(sample.mean), "dev": shown.value(nats[0])}
    losses = {"unigram": 3.0, "3-grams": 1.4}
    return record.model_copy(
        update={
            "final": record.final.model_copy(update=score), "metric": shown,
            "baselines": {name: shown.value(loss) for name, loss in losses.items()},
        }
    )  # fmt: skip


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    levels = {"softmax": 1.2, "linear": 1.3, "none": 2.2}
    return [
        language(name, seed, [level + shift for shift in rng.normal(0, 0.01, CLUSTERS)])
        for name, level in levels.items()
        for seed in range(3)
    ]


def test_the_row_of_the_lowest_loss_is_first_and_beats_the_baselines(records):
    (board,) = boards(reversed(records))
    assert [row.label for row in board.rows] == ["softmax", "linear", "none"]
    assert [row.standing.beats_baselines for row in board.rows] == [True, True, None]
    assert board.rows[0].standing.tiers == (1,) and board.rows[0].standing.best > 0.99
    assert "strongest: 3-grams, 2.020 bits per byte" in board.verdict
    best = board.rows[0].score
    assert best is not None and best.low < best.mean < best.high
    assert best.mean == pytest.approx(np.mean([run.final.score for run in records[:3]]))


def test_curves_show_the_metric(records):
    point = records[0].curve[0].model_copy(update={"dev": 1.5})
    ended = [record.model_copy(update={"curve": [point]}) for record in records]
    drawn = curves.draw(boards(ended))
    assert [axes.get_ylabel() for axes in drawn.axes] == ["loss"] * 2 + ["dev bits per byte"] * 2
    assert {line.get_ydata()[0] for line in drawn.axes[2].lines} == {1.5}
    assert ",1.5,bits per byte" in curves_csv(boards(ended))


def test_sweeps_show_the_metric_and_the_strongest_baseline(records):
    wide = [
        language("softmax", 0, [1.1] * CLUSTERS, model={"dim": 128}),
        language("softmax", 0, [1.2] * CLUSTERS),
    ]
    files = sweep_files(wide, "model.dim")
    page = files["sweep_model_dim.md"].decode()
    assert "Test bits per byte with its 95 % interval." in page
    assert f"| {1.2 / math.log(2):.3f} [" in page and f"| {1.1 / math.log(2):.3f} [" in page
    assert "*2.020 3-grams*" in page
    lines = [*csv.DictReader(io.StringIO(files["sweep_model_dim.csv"].decode()))]
    assert [line["metric"] for line in lines] == ["bits per byte"] * 2
    assert float(lines[0]["test"]) == pytest.approx(1.2 / math.log(2))


def test_baselines_are_in_order_of_loss(records):
    (board,) = boards(records)
    assert [name for name, _ in board.baselines] == ["3-grams", "unigram"]


def test_a_row_above_the_strongest_baseline_does_not_beat_it(records):
    worse = [language("cosformer", seed, [1.5] * CLUSTERS) for seed in range(3)]
    (board,) = boards([*records, *worse])
    (row,) = [row for row in board.rows if row.label == "cosformer"]
    assert row.standing.beats_baselines is False and row.standing.at_baseline == 3


def test_the_interval_of_a_loss_has_the_variances_of_clusters_and_seeds():
    totals = np.array([[1.0, 2.0], [1.5, 2.5], [0.5, 2.4]])
    sample = Sample(totals, np.array([1.0, 1.0]))
    got = mean_interval(sample)
    # Two clusters have one degree of freedom, three seeds two.
    clusters, seeds = (student.ppf(0.975, freedom) ** 2 for freedom in (1, 2))
    added = max(seeds * sample.between - clusters * sample.interaction, 0)
    half = math.sqrt(clusters * sample.examples + added)
    assert (got.high - got.mean, got.mean - got.low) == pytest.approx((half, half), rel=1e-6)
    assert sample.examples > 0


@pytest.mark.parametrize(("metric", "value"), [("bits-per-byte", 2.0), ("perplexity", 4.0)])
def test_the_metric_of_the_mean_loss_is_in_every_table(metric, value):
    own = [language("softmax", s, [math.log(4)] * CLUSTERS, metric) for s in range(2)]
    text, page, name = summary(own), leaderboard(own, []), metrics.find(metric).metric.name
    (line,) = [line for line in page.splitlines() if line.startswith("| softmax")]
    assert f"{value:.1f}" in line and f"test {name} [95 % interval]" in page and name in text
    assert "unigram" in page and "Rows of language models are ordered" in page
    rows = list(csv.DictReader(io.StringIO(as_csv(boards(own)))))
    assert {row["metric"] for row in rows} == {name}
    assert float(rows[0]["test"]) == pytest.approx(value)
    assert [row["attention"] for row in rows] == ["softmax", "3-grams", "unigram"]


@pytest.mark.parametrize("change", [{"score": 0.9}, {"best_on_test": 4.0}])
def test_scores_that_contradict_the_answers_are_rejected(change):
    tree = language("softmax", 0, [1.0] * CLUSTERS).model_dump()
    Record.model_validate(tree)
    with pytest.raises(ValidationError):
        Record.model_validate({**tree, "final": tree["final"] | change})
