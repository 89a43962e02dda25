"""The results of a suite: what each row reached on each question, and the matrix of all.

A row is a variant with its options, a column is a question. Frames of `harness.records.frame` go
in, and frames come out, from which pages, tables and figures are made.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from harness.records.interval import Interval, in_unit, interval, interval_of
from harness.records.record import Metric
from reports.pairs import joined
from reports.pairs import pairs as pairs_of
from reports.statistics import LEVEL, Sample, is_comparable, probability_of_best, tiers

if TYPE_CHECKING:
    from harness.records.suites import CostPlan, Suite, SuiteRow


class Asked(NamedTuple):
    """A question of runs of no suite; see `harness.records.suites.Question`."""

    name: str
    rules: Literal["all"] = "all"
    rates: tuple[float, ...] = ()


class Implicit(NamedTuple):
    """Runs of no suite as a suite; see `reports.questions`.

    Rows at a baseline are ranked, too, and rows need no stored answers.
    """

    questions: tuple[Asked, ...]
    key: str = "leaderboard"
    rows: tuple["SuiteRow", ...] = ()


NOT_RUN: Mapping[str, Any] = {
    "metric": "", "mean": math.nan, "low": math.nan, "high": math.nan, "text": "",
    "interval": "", "seeds": 0,
    "status": "", "tier": "", "not_compared": "", "baseline": "", "baseline_value": math.nan,
    "at_baseline": False, "answered": False, "known_failures": math.nan,
}  # fmt: skip
"""The columns of answers, with their values where a row was not run."""

LINE = [name for name in NOT_RUN if name not in ("status", "tier", "known_failures")]

OF_COSTS = [
    "row", "level", "pass", "length", "batching", "dim", "heads", "causal", "precision", "device",
    "machine", "threads", "status", "seconds", "ratio", "memory_ratio", "state_bytes", "backend",
]  # fmt: skip
"""The columns of costs that the matrix is made from."""


def results(runs: pd.DataFrame, suite: "Suite | Implicit") -> pd.DataFrame:
    """The runs at the rates that trials chose; of a row without such a run its trials.

    Of these only the chosen one, where all have ended and one has finished: a single seed. A run
    without tuning is a result only where the question has no rates.
    """
    own = runs[runs["suite"] == suite.key]
    if own.empty:
        return own
    untuned = own["question"].isin([one.name for one in suite.questions if not one.rates])
    final = (own["role"] == "final") | (untuned & (own["role"] == ""))
    row = [own["question"], own["row"]]
    finished = (final & own["status"].eq("ok")).groupby(row).transform("any")
    trials = own[(own["role"] == "trial") & ~finished]
    rates = {one.name: len(one.rates) for one in suite.questions}
    shown = [
        name
        for (question, _), same in trials.groupby(["question", "row"], sort=False)
        for name in _chosen(same, rates.get(question, 0))
    ]
    return own[final | own.index.isin(shown)]


def _chosen(trials: pd.DataFrame, rates: int) -> pd.Index:
    """The trial of a row that is the best on dev, as `harness.records.tuning.best` chooses it.

    None of them before all have ended; all of them if none has finished.
    """
    finished = trials[trials["status"] == "ok"]
    if finished.empty:
        return trials.index
    if trials["train.lr"].nunique() < rates:
        return trials.index[:0]
    sign = finished["dev_better"].map({"higher": -1, "lower": 1})
    order = finished.assign(order=sign * finished["dev"]).sort_values(["order", "distance"])
    return order.index[:1]


def answers(runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame) -> pd.DataFrame:
    """What each row reached on each question of a suite.

    Args:
        runs: of a store; see `harness.records.frame.of_records`.
        suite: its rows come first, in its order; rows that it has not follow.
        baselines: see `harness.records.frame.baselines`: those of one version, complete.

    Returns:
        A line for each row and question. Columns: `row`, `attention`, `question`, `metric`;
        `mean`, `low`, `high` (in the unit of the metric, accuracies in percent; NaN without a
        finished run), as texts `text` and `interval`; `seeds`, the finished ones; `status` (`ok`,
        how runs ended, or empty without runs: a question that cannot be asked, or was not);
        `tier` (letters: rows that share one are not separable; empty where not ranked) and
        `not_compared` (why not); `baseline` and `baseline_value`, the strongest of the rules that
        do not do what is asked and of the other models without attention; `at_baseline`, whether
        the row is a model without attention, or its interval is not above it; `answered`, whether
        it is; `known_failures` of its checks.
    """
    finals = results(runs, suite)
    attention = {row.label: row.attention for row in suite.rows}
    attention |= dict(zip(finals["row"], finals["attention"], strict=True))
    parts = [
        _answers(column, finals[finals["question"] == name])
        .reindex(pd.Index(attention, name="row"))
        .assign(question=name)
        for name, column in _columns(finals, suite, baselines)
    ]
    found = pd.concat(parts).reset_index()
    found["attention"] = found["row"].map(attention)
    columns = {
        name: found[name].where(found[name].notna(), value).astype(type(value))
        for name, value in NOT_RUN.items()
    }
    return found.assign(**columns)[["row", "attention", "question", *columns]]


def pairs(runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame) -> pd.DataFrame:
    """The differences between the rows that are compared on each question, with p-values.

    Columns: `table` (the suite), `question`, `metric`, and those of `reports.pairs.pairs`.
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


def matrix(answers: pd.DataFrame, costs: pd.DataFrame, suite: "Suite") -> pd.DataFrame:
    """The matrix of a suite, by row, in order of questions answered, then of time.

    Columns: `attention`; `answered`, the number of questions; for each question its name (the
    mean), `NAME.low`, `NAME.high`, `NAME.tier`; `time.LENGTH` and `memory.LENGTH`, those of
    training a layer over those of softmax; `decode_seconds` and `state_bytes`, those of a token
    at the longest length; `backend`, what computes the layer in training; `known_failures` of its
    checks. Rows are ordered by the time at the middle length.
    """
    names = [question.name for question in suite.questions]
    by_row = answers.groupby("row", sort=False)
    table = by_row.agg(attention=("attention", "first"), answered=("answered", "sum"))
    for name in names:
        own = answers[answers["question"] == name].set_index("row")
        columns = {"mean": name, **{part: f"{name}.{part}" for part in ("low", "high", "tier")}}
        table = table.join(own[[*columns]].rename(columns=columns))
    table = table.join(_costs(costs, suite.cost)).join(by_row["known_failures"].max())
    return table.sort_values(["answered", time_column(suite)], ascending=[False, True])


def time_column(suite: "Suite") -> str:
    """The column of the matrix that orders rows which answer as many questions."""
    lengths = sorted(suite.cost.lengths)
    return f"time.{lengths[len(lengths) // 2]}"


def of_plan(costs: pd.DataFrame, plan: "CostPlan") -> pd.DataFrame:
    """The costs of layers as the plan says, at any length, of the machine with most of them."""
    setting = {"level": "layer"} | plan.model_dump(include={"precision", "dim", "heads"})
    costs = costs.reindex(columns=[*costs] or OF_COSTS)
    own = costs[(costs[[*setting]] == pd.Series(setting)).all(axis=1)]
    own = own[own["batching"] == own["pass"].map(plan.batch)]
    machines = own.groupby(["device", "machine", "threads"]).ngroup()
    return own[machines == machines.mode().max()]


def measured(costs: pd.DataFrame, plan: "CostPlan") -> pd.DataFrame:
    """The costs of `of_plan` that were measured, at the lengths of the plan.

    Of several measurements of a row the one with a ratio to the fastest softmax is used, then that
    of the form that is not causal, then the fastest: the column `backend` names what computed it.
    """
    own = of_plan(costs, plan)
    own = own[own["length"].isin(plan.lengths) & (own["status"] == "ok")]
    own = own.assign(unrelated=own["ratio"].isna())
    own = own.sort_values(["unrelated", "causal", "seconds"])
    return own.drop_duplicates(["row", "pass", "length"]).drop(columns="unrelated")


class _Column(NamedTuple):
    """The results of a question: what is needed to compare its rows.

    Attributes:
        metric: of its scores.
        scores: of each row, with its interval.
        seeds: the number of finished runs of each row.
        samples: the answers of the finished seeds, by row; none of a row that has not stored them.
        models: the rows without attention.
        rules: the scores of the baselines of the task that rows are compared with, by name.
        of_task: whether there must be such rules.
        rank_all: whether rows at a baseline are ranked.
    """

    metric: Metric
    scores: Mapping[str, Interval]
    seeds: Mapping[str, int]
    samples: Mapping[str, Sample]
    models: frozenset[str]
    rules: Mapping[str, float]
    of_task: bool
    rank_all: bool

    @property
    def has_rules(self) -> bool:
        """Whether it is known what rows must exceed."""
        return bool(self.rules) if self.of_task else bool(self.models)

    def baselines(self, row: str) -> dict[str, float]:
        """The scores that a row is compared with: rules and, if it has attention, models."""
        models = {name: self.scores[name].mean for name in self.models}
        return {**self.rules, **({} if row in self.models else models)}

    def oriented(self, row: str) -> Sample:
        """The sample of a row, of which higher is better."""
        sample = self.samples[row]
        return sample if self.metric.sign == 1 else replace(sample, totals=-sample.totals)

    def obstacle(self, row: str) -> str:
        """What keeps a row from being compared; empty where nothing does."""
        if row not in self.samples:
            return "no stored test answers"
        if not self.has_rules:
            return "no baseline"
        if self.samples[row].seeds == 1:
            return "one seed"
        first = next(iter(self.samples.values()))
        if not np.array_equal(self.samples[row].sizes, first.sizes):
            return "answers to other test examples"
        scores = self.baselines(row).values()
        levels = [self.metric.sign * self.metric.mean(score) for score in scores]
        return "" if is_comparable(self.oriented(row), levels) else "seeds at a baseline"

    @property
    def compared(self) -> dict[str, Sample]:
        """The oriented samples of the rows that are compared, the best first."""
        rows = sorted(self.scores, key=lambda row: -self.metric.sign * self.scores[row].mean)
        return {row: self.oriented(row) for row in rows if not self.obstacle(row)}


def _columns(
    runs: pd.DataFrame, suite: "Suite | Implicit", baselines: pd.DataFrame
) -> Iterator[tuple[str, _Column | None]]:
    """Each question of a suite with its results; see `_column`."""
    for question in suite.questions:
        asked = runs[(runs["question"] == question.name) & (runs["status"] == "ok")]
        of_task, rank_all = question.rules == "all", isinstance(suite, Implicit)
        yield question.name, _column(asked, baselines, of_task=of_task, rank_all=rank_all)


def _column(
    finished: pd.DataFrame, baselines: pd.DataFrame, *, of_task: bool, rank_all: bool
) -> _Column | None:
    """None without a finished run. Of several versions of the data that of the latest is used."""
    if finished.empty:
        return None
    latest = finished.sort_values("started").iloc[-1]
    finished = finished[finished["data"] == latest["data"]]
    fields = {name: latest[name] for name in ("unit", "better", "digits", "scale", "exponential")}
    metric = Metric(name=latest["metric"], **fields)
    scores, samples = {}, {}
    for row, own in finished.sort_values("started").groupby("row"):
        stored = None if own["sample"].isna().any() else Sample.of([*own["sample"]])
        samples |= {row: stored} if stored else {}
        score = interval_of(stored, metric) if stored else _interval_of_scores(own, metric)
        scores |= {row: score} if score else {}
    rules = baselines[baselines["data"] == latest["data"]].set_index("name")["score"].to_dict()
    models = frozenset(finished.loc[finished["baseline"], "row"]) & scores.keys()
    return _Column(
        metric=metric, scores=scores, seeds=Counter(finished["row"]),
        samples=samples, models=models, rules=rules if of_task else {}, of_task=of_task,
        rank_all=rank_all,
    )  # fmt: skip


def _interval_of_scores(runs: pd.DataFrame, metric: Metric) -> Interval | None:
    """That of accuracies whose single answers are not known; None for scores of other kinds."""
    means = [metric.mean(score) for score in runs["score"]]
    if not all(0 <= mean <= 1 for mean in means):
        return None
    return in_unit(interval(means, int(runs["test_examples"].iloc[0])), metric)


def _answers(column: _Column | None, runs: pd.DataFrame) -> pd.DataFrame:
    """The answers to one question, by row; see `answers`."""
    groups = runs.groupby("row")
    found = pd.DataFrame({
        "status": groups["status"].agg(_status),
        "known_failures": groups["known_failures"].max(),
    })  # fmt: skip
    lines = {row: _line(column, row) for row in column.scores} if column else {}
    found = found.join(pd.DataFrame([*lines.values()], index=[*lines], columns=LINE))
    return found.assign(tier=found.index.map(_tiers(column, lines) if column else {}))


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


def _tiers(column: _Column, lines: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The tiers of the rows that are ranked: compared with others, and above the baselines.

    Holm's method counts all pairs that are compared, as `pairs` does.
    """
    compared = column.compared
    found = pairs_of(compared, column.metric)
    found = found[found["p_holm"] <= LEVEL]
    different = {frozenset(pair) for pair in zip(found["first"], found["second"], strict=True)}
    ranked = [row for row in compared if column.rank_all or lines[row]["answered"]]
    separable = np.array([[{a, b} in different for b in ranked] for a in ranked], dtype=bool)
    return dict(zip(ranked, tiers(separable), strict=True))


def _costs(costs: pd.DataFrame, plan: "CostPlan") -> pd.DataFrame:
    """The columns of costs of the matrix, by row."""
    own, lengths = measured(costs, plan), sorted(plan.lengths)
    train, decode = own[own["pass"] == "train"], own[own["pass"] == "decode"]
    parts = [
        train.pivot(index="row", columns="length", values=value)
        .reindex(columns=lengths)
        .add_prefix(f"{name}.")
        for name, value in (("time", "ratio"), ("memory", "memory_ratio"))
    ]
    token = decode[decode["length"] == lengths[-1]].set_index("row")[["seconds", "state_bytes"]]
    parts += [token.rename(columns={"seconds": "decode_seconds"})]
    return pd.concat(parts, axis=1).join(
        train.sort_values("length").groupby("row")["backend"].last(), how="outer"
    )
