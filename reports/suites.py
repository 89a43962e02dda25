"""The results of a suite: what each row reached on each question, and the matrix of all.

A row is a variant with its options, a column is a question. Frames of `harness.records.frame` go
in, and frames come out, from which pages, tables and figures are made.
"""

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from harness.records.interval import Interval, Sample, in_unit, interval, interval_of
from harness.records.record import FINAL, Metric
from harness.records.suites import Suite
from reports.layer_costs import by_row_of
from reports.statistics import LEVEL, is_comparable, joined, probability_of_best, rank_groups
from reports.statistics import pairs as pairs_of
from reports.text import best_first

if TYPE_CHECKING:
    from reports.leaderboard import Implicit

NOT_RUN: Mapping[str, Any] = {
    "metric": "", "mean": math.nan, "low": math.nan, "high": math.nan, "text": "", "interval": "",
    "seeds": 0, "status": "", "rank_group": "", "not_compared": "", "baseline": "",
    "baseline_value": math.nan, "at_baseline": False, "answered": False, "known_failures": math.nan,
}  # fmt: skip
"""The columns of answers, with their values where a row was not run."""

LINE = [name for name in NOT_RUN if name not in ("status", "rank_group", "known_failures")]


def results(runs: pd.DataFrame, suite: "Suite | Implicit") -> pd.DataFrame:
    """The runs at the rates that trials chose; of a row without such a run its trials.

    Of these only the chosen one, where all have ended and one has finished: a single seed. A run
    without tuning is a result only where the question has no rates.
    """
    found = runs[runs["suite"] == suite.key]
    if found.empty:
        return found
    untuned = found["question"].isin([one.name for one in suite.questions if not one.rates])
    final = (found["role"] == "final") | (untuned & (found["role"] == ""))
    has_final = final.groupby([found["question"], found["row"]]).transform("any")
    trials = found[(found["role"] == "trial") & ~has_final]
    rates = {one.name: len(one.rates) for one in suite.questions}
    shown = [
        name
        for (question, _), same in trials.groupby(["question", "row"], sort=False)
        for name in _chosen(same, rates.get(str(question), 0))
    ]
    return found[final | found.index.isin(shown)]


def _chosen(trials: pd.DataFrame, rates: int) -> pd.Index:
    """The best trial of a row on dev; none before all have ended, all if none has finished."""
    finished = trials[trials["status"] == "ok"]
    if finished.empty:
        return trials.index
    if trials[trials["status"].isin(FINAL)]["train.lr"].nunique() < rates:
        return trials.index[:0]
    order = finished.assign(order=best_first(finished["dev"], finished["dev_better"]))
    return order.sort_values(["order", "distance", "train.lr"]).index[:1]


def answers(
    runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame, rank_all: bool = False
) -> pd.DataFrame:
    """What each row reached on each question of a suite.

    Args:
        runs: of a store; see `harness.records.frame.of_records`.
        suite: its rows come first, in its order; rows that it has not follow.
        baselines: see `harness.records.frame.baselines`: of one version, complete.
        rank_all: whether rows at a baseline are ranked, too.

    Returns:
        A line for each row and question. Columns: `row`, `attention`, `question`, `metric`;
        `mean`, `low`, `high` (in the unit of the metric, accuracies in percent; NaN without a
        finished run), as texts `text` and `interval`; `seeds`, the finished ones; `status` (`ok`,
        how runs ended, or empty without runs: a question that cannot be asked, or was not);
        `rank_group` (letters: rows that share one are not separable; empty where not ranked) and
        `not_compared` (why not); `baseline` and `baseline_value`, the strongest of the rules that
        do not do what is asked and of the other models without attention; `at_baseline`, whether
        the row is a model without attention, or its interval is not above it; `answered`, whether
        it is; `known_failures` of its checks.
    """
    finals = results(runs, suite)
    attention = {row.label: row.attention for row in suite.rows}
    attention |= dict(zip(finals["row"], finals["attention"], strict=True))
    index = pd.Index(attention, name="row")
    parts = {
        name: _answers(column, finals[finals["question"] == name], rank_all).reindex(index)
        for name, column in _columns(finals, suite, baselines)
    }
    found = pd.concat(parts, names=["question"]).reset_index()
    found["attention"] = found["row"].map(attention)
    columns = {
        name: found[name].where(found[name].notna(), value).astype(type(value))
        for name, value in NOT_RUN.items()
    }
    return found.assign(**columns)[["row", "attention", "question", *columns]]


def pairs(runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame) -> pd.DataFrame:
    """The differences between the rows that are compared on each question, with p-values.

    Columns: `table` (the suite), `question`, `metric`, and as `reports.statistics.pairs`.
    """
    columns = _columns(results(runs, suite), suite, baselines)
    return joined(
        pairs_of(column.compared, column.metric).assign(table=suite.key, question=name)
        for name, column in columns
        if column
    )


def probabilities_of_best(
    runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame
) -> pd.Series:
    """The probability that a row has the best score of those compared, by question and row."""
    found = {}
    for name, column in _columns(results(runs, suite), suite, baselines):
        compared = column.compared if column else {}
        if len(compared) > 1:
            values = probability_of_best([*compared.values()])
            found |= {(name, row): float(v) for row, v in zip(compared, values, strict=True)}
    index = pd.MultiIndex.from_tuples([*found], names=["question", "row"])
    return pd.Series([*found.values()], index, dtype=float, name="best")


def matrix(answers: pd.DataFrame, costs: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    """The matrix of a suite, by row, in order of questions answered, then of time.

    Columns: `attention`; `answered`, the number of questions; for each question its name (the
    mean), `NAME.low`, `NAME.high`, `NAME.rank_group`; `time.LENGTH` and `memory.LENGTH`, of
    training a layer relative to softmax; `decode_seconds` and `state_bytes`, of a token at the
    longest length; `computed_by`, what computes the layer in training; `known_failures` of
    its checks.
    """
    by_row = answers.groupby("row", sort=False)
    table = by_row.agg(attention=("attention", "first"), answered=("answered", "sum"))
    for name in (question.name for question in suite.questions):
        of_question = answers[answers["question"] == name].set_index("row")
        parts = {part: f"{name}.{part}" for part in ("low", "high", "rank_group")}
        columns = {"mean": name} | parts
        table = table.join(of_question[[*columns]].rename(columns=columns))
    table = table.join(by_row_of(costs, suite.cost)).join(by_row["known_failures"].max())
    return table.sort_values(["answered", f"time.{middle_length(suite)}"], ascending=[False, True])


def middle_length(suite: Suite) -> int:
    """The length in tokens by whose time the rows of the matrix are ordered."""
    lengths = sorted(suite.cost.lengths)
    return lengths[len(lengths) // 2]


class _Column(NamedTuple):
    """The results of a question: what is needed to compare its rows.

    Attributes:
        scores: of each row, with its interval.
        seeds: the number of finished runs of each row.
        samples: the stored answers of the finished seeds by row; higher is better.
        models: the rows without attention.
        rules: the scores of the baselines of the task that rows are compared with, by name.
        has_rules: whether it is known what rows must exceed.
    """

    metric: Metric
    scores: Mapping[str, Interval]
    seeds: Mapping[str, int]
    samples: Mapping[str, Sample]
    models: frozenset[str]
    rules: Mapping[str, float]
    has_rules: bool

    def baselines(self, row: str) -> dict[str, float]:
        """The scores that a row is compared with: rules and, if it has attention, models."""
        models = {name: self.scores[name].mean for name in self.models}
        return {**self.rules, **({} if row in self.models else models)}

    def obstacle(self, row: str) -> str:
        """What keeps a row from being compared; empty where nothing does."""
        if row not in self.samples:
            return "no stored test answers"
        if not self.has_rules:
            return "no baseline"
        sample, first = self.samples[row], next(iter(self.samples.values()))
        if sample.seeds == 1:
            return "one seed"
        if not np.array_equal(sample.sizes, first.sizes):
            return "answers to other test examples"
        scores = self.baselines(row).values()
        levels = [self.metric.sign * self.metric.mean(score) for score in scores]
        return "" if is_comparable(sample, levels) else "seeds at a baseline"

    @property
    def compared(self) -> dict[str, Sample]:
        """The samples of the rows that are compared, the best first."""
        rows = sorted(self.scores, key=lambda row: -self.metric.sign * self.scores[row].mean)
        return {row: self.samples[row] for row in rows if not self.obstacle(row)}


def _columns(
    runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame
) -> Iterator[tuple[str, _Column | None]]:
    """Each question of a suite with its results; None without a finished run."""
    for question in suite.questions:
        finished = runs[(runs["question"] == question.name) & (runs["status"] == "ok")]
        rules = baselines if question.rules == "all" else None
        yield question.name, _column(finished, rules) if len(finished) else None


def _column(finished: pd.DataFrame, baselines: pd.DataFrame | None) -> _Column:
    """The results of a question; of several versions of the data the latest."""
    latest = finished.sort_values("started").iloc[-1]
    finished = finished[finished["data"] == latest["data"]]
    fields = {name: latest[name] for name in ("unit", "better", "digits", "scale", "exponential")}
    metric = Metric(name=latest["metric"], **fields)
    scores, samples = {}, {}
    for row, seeds in finished.sort_values("started").groupby("row"):
        stored = None if seeds["sample"].isna().any() else Sample.of([*seeds["sample"]])
        if stored:
            samples[row] = replace(stored, totals=metric.sign * stored.totals)
        score = interval_of(stored, metric) if stored else _interval_of_scores(seeds, metric)
        scores |= {row: score} if score else {}
    models = frozenset(finished.loc[finished["baseline"], "row"]) & scores.keys()
    rules = {}
    if baselines is not None:
        same = baselines[baselines["data"] == latest["data"]]
        rules = dict(zip(same["name"], same["score"], strict=True))
    has_rules = bool(models if baselines is None else rules)
    return _Column(metric, scores, Counter(finished["row"]), samples, models, rules, has_rules)


def _interval_of_scores(runs: pd.DataFrame, metric: Metric) -> Interval | None:
    """The interval of accuracies without stored answers; None for scores of other kinds."""
    means = [metric.mean(score) for score in runs["score"]]
    if not all(0 <= mean <= 1 for mean in means):
        return None
    return in_unit(interval(means, int(runs["test_examples"].iloc[0])), metric)


def _answers(column: _Column | None, runs: pd.DataFrame, rank_all: bool) -> pd.DataFrame:
    """The answers to one question, by row; see `answers`."""
    groups = runs.groupby("row")
    found = groups.agg(status=("status", _status), known_failures=("known_failures", "max"))
    lines = {row: _line(column, row) for row in column.scores} if column else {}
    ranked = [row for row in lines if rank_all or lines[row]["answered"]]
    found = found.join(pd.DataFrame([*lines.values()], index=[*lines], columns=LINE))
    return found.assign(rank_group=found.index.map(_rank_groups(column, ranked) if column else {}))


def _line(column: _Column, row: str) -> dict[str, Any]:
    metric, rules, score = column.metric, column.baselines(row), column.scores[row]
    strongest = max(rules, key=lambda name: metric.sign * rules[name], default="")
    worst_end = min(metric.sign * score.low, metric.sign * score.high)
    above = column.has_rules and row not in column.models
    above = above and worst_end > metric.sign * rules[strongest]
    text, low, high = map(metric.text, score[:3])
    return {
        "metric": metric.name, "mean": score.mean, "low": score.low, "high": score.high,
        "text": text, "interval": f"[{low}, {high}]", "seeds": column.seeds[row],
        "not_compared": column.obstacle(row), "baseline": strongest,
        "baseline_value": rules[strongest] if strongest else math.nan,
        "at_baseline": column.has_rules and not above, "answered": above,
    }  # fmt: skip


def _status(statuses: pd.Series) -> str:
    """`ok`, or how many runs ended in which other way."""
    failed = statuses[statuses != "ok"].str.replace("_", " ").value_counts(sort=False)
    return ", ".join(f"{name} ({n} of {len(statuses)})" for name, n in failed.items()) or "ok"


def _rank_groups(column: _Column, rows: Container[str]) -> dict[str, str]:
    """The rank groups of rows that are compared; Holm's method counts all pairs, as `pairs`."""
    compared = column.compared
    found = pairs_of(compared, column.metric)
    found = found[found["p_holm"] <= LEVEL]
    different = {frozenset(pair) for pair in zip(found["first"], found["second"], strict=True)}
    ranked = [row for row in compared if row in rows]
    separable = np.array([[{a, b} in different for b in ranked] for a in ranked], dtype=bool)
    return dict(zip(ranked, rank_groups(separable), strict=True))
