"""The results of a suite: what each row reached on each question, and the matrix of all."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from operator import eq
from typing import Any

import numpy as np
import pandas as pd

from harness.recipes import declared
from harness.records import interval as intervals
from harness.records.families import is_control
from harness.records.interval import Interval, Sample, in_unit
from harness.records.record import Metric
from harness.records.suites import Suite
from reports import shown, statistics
from reports.progress import NO_PROGRESS, horizons, progress

NEAR = 0.02  # The largest distance of a bold entry from the best mean, as a share of it

# The columns of answers, with their values where a row was not run.
NOT_RUN: Mapping[str, Any] = {
    "metric": "", "better": "", "mean": math.nan, "low": math.nan, "high": math.nan, "text": "",
    "interval": "", "seeds": 0, "status": "", "rank_group": "", "not_compared": "", "baseline": "",
    "baseline_value": math.nan, "baseline_interval": "", "at_baseline": False, "answered": False,
    "known_failures": math.nan, "state_bytes": math.nan, "parameters": math.nan, "best": False,
    "horizon": math.nan, **NO_PROGRESS,
    "longest.text": "", "longest.interval": "", "longest.mean": math.nan, "longest.low": math.nan,
    "longest.high": math.nan, "longest.seeds": 0, "longest.rank_group": "", "longest.best": False,
}  # fmt: skip
OF_LONGEST = [name.partition(".")[2] for name in NOT_RUN if name.startswith("longest.")]

LARGEST = ("known_failures", "state_bytes", "parameters")  # Of the runs of an answer

# The columns of results on further splits.
OF_PROBES = (
    "row", "question", "probe", "trained", "better", "mean", "low", "high", "text", "interval",
    "seeds",
)  # fmt: skip

NO_BASELINES = pd.DataFrame(columns=["data", "name", "score"])


@dataclass(frozen=True)
class SuiteResults:
    key: str
    rows: Mapping[str, str]  # The rows that are listed first, each with its variant
    seeds: pd.DataFrame  # The runs that are results
    questions: "Mapping[str, QuestionResults]"
    left_out: str = ""  # A sentence on the other runs; empty if there are none
    progress: pd.DataFrame = field(default_factory=lambda: progress(pd.DataFrame(), {}))
    longest_probes: Mapping[str, str] = field(default_factory=dict)  # By question

    def answers(self) -> pd.DataFrame:
        # A line for each row and question. Columns: `row`, `attention`, `question`, `metric`,
        # `better` (`higher` or `lower`); `mean`, `low`, `high` (in the unit of the metric; NaN
        # without a finished run), as text `text` and `interval`; `seeds` that finished; `status`
        # (`ok`, the ends of failed runs, or empty without runs); `rank_group` (letters: rows that
        # share one are not separable; empty if not ranked), `not_compared` (the reason);
        # `baseline`, `baseline_value`, `baseline_interval` of the strongest baseline, shallow or a
        # model without attention; `at_baseline`: a model without attention, or the interval is not
        # above all of theirs; `answered`: it is above; `known_failures` of its checks;
        # `state_bytes` of decoding and `parameters`, of the whole model;
        # `best`: the row solves the question or, where none does, no row is separably better, and
        # it is near the best mean; the columns of `reports.progress.progress`; and the answers on
        # the probe of the longest sequences, as `longest.mean`.
        names = dict(zip(self.seeds["row"], self.seeds["attention"], strict=True))
        attention = {**self.rows, **names}
        index = pd.Index(attention, name="row")
        seeds = dict(iter(self.seeds.groupby("question")))
        by_question = {
            name: _answers(question, seeds.get(name, self.seeds[:0])).reindex(index)
            for name, question in self.questions.items()
        }
        found = pd.concat(by_question, names=["question"]).reset_index()
        found["attention"] = found["row"].map(attention)
        for more in (self.progress, self._on_longest):
            found = found.merge(more, how="left", on=["question", "row"])
        first, solved = found["rank_group"].astype(str).str.contains("A"), found["solved"].eq(True)
        any_solves = solved.groupby(found["question"]).transform("any")
        found = found.assign(best=solved.where(any_solves, first))
        found = found.reindex(columns=["row", "attention", "question", *NOT_RUN])
        found = found.assign(**{
            name: found[name].where(found[name].notna(), value).astype(type(value))
            for name, value in NOT_RUN.items()
        })  # fmt: skip
        return found.assign(best=_best(found))

    def probes(self) -> pd.DataFrame:
        lines = [
            {**_line(of, row), "question": name, "probe": probe, "trained": trained, "row": row}
            for (name, probe, trained), of in self._of_probes.items()
            for row in of.scores
        ]
        return pd.DataFrame(lines, columns=[*OF_PROBES])

    def probe_pairs(self) -> pd.DataFrame:
        # The column `probe` names the split. A probe has no baselines: no row is left out for them.
        tables = [
            statistics.pairs(of.several, of.metric).assign(
                table=self.key, question=name, probe=probe, outdated=False
            )
            for (name, probe, _), of in self._of_probes.items()
        ]
        return statistics.joined(tables, [*statistics.COLUMNS, "probe"])

    @property
    def _on_longest(self) -> pd.DataFrame:
        lines = []
        for (name, probe, _), of in self._of_probes.items():
            if self.longest_probes.get(name) == probe:
                groups = letters(of.several, of.scores)
                lines += [{**_line(of, row), "row": row, "question": name,
                           "rank_group": groups.get(row, "")} for row in of.scores]  # fmt: skip
        found = pd.DataFrame(lines, columns=["question", "row", "better", *OF_LONGEST])
        names = dict(zip(self.seeds["row"], self.seeds["attention"], strict=True))
        found["attention"] = found["row"].map(names)
        found["best"] = found["rank_group"].astype(str).str.contains("A")
        found["best"] = _best(found)
        named = found[OF_LONGEST].rename(columns="longest.{}".format)
        return found[["question", "row"]].join(named)

    @cached_property
    def _of_probes(self) -> "Mapping[tuple[str, str, bool], QuestionResults]":
        found, read = {}, ["question", "status", "groups", "probes", *READ]
        for name, runs in self.seeds[self.seeds.columns.intersection(read)].groupby("question"):
            parts = {*chain.from_iterable(runs["groups"])}
            for probe in dict.fromkeys(chain.from_iterable(runs["probes"])):
                same = runs[[probe in probes for probes in runs["probes"]]]
                same = same.assign(sample=[probes[probe] for probes in same["probes"]])
                found[str(name), probe, probe in parts] = question_results(same, NO_BASELINES)
        return found

    def pairs(self) -> pd.DataFrame:
        old = self.seeds.loc[self.seeds["outdated"].eq(True), ["question", "row"]]
        old = {*old.itertuples(index=False, name=None)}
        tables = []
        for name, question in self.questions.items():
            pairs = statistics.pairs(question.compared, question.metric)
            rows = pairs[["first", "second"]].itertuples(index=False, name=None)
            is_old = [any((name, row) in old for row in both) for both in rows]
            tables.append(pairs.assign(table=self.key, question=name, outdated=is_old))
        return statistics.joined(tables)


def results(runs: pd.DataFrame, suite: Suite, baselines: pd.DataFrame) -> SuiteResults:
    found = comparable(runs, suite)
    kept = found[found["left_out"] == ""]
    seeds = shown.final_runs(kept, ["question", "row"])
    needed = {question.name: len(question.seeds) for question in suite.questions}
    questions = {
        name: question_results(seeds[seeds["question"] == name], baselines, count)
        for name, count in needed.items()
    }
    rows = {row.label: row.attention for row in suite.rows}
    ceilings = {q.name: q.ceiling for q in suite.questions if q.ceiling is not None}
    reasons = found.loc[found["left_out"] != "", "left_out"].value_counts(sort=False)
    texts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    note = f"Left out of the runs: {texts}." if texts else ""
    of_runs = progress(kept, ceilings, needed)
    firsts = {question.name: question.first_position for question in suite.questions}
    of_runs = of_runs.merge(horizons(seeds, firsts), how="left", on=["question", "row"])
    probes = {of.name: of.longest_probe for of in suite.questions if of.longest_probe}
    return SuiteResults(suite.key, rows, seeds, questions, note, of_runs, probes)


def on_longest(answers: pd.DataFrame) -> pd.DataFrame:
    # `answers` of one question with the results of its longest sequences in place of its own.
    # Baselines and the ceiling are of the trained lengths: they say nothing of these.
    of_probe = {name: answers[f"longest.{name}"] for name in OF_LONGEST}
    return answers.assign(**of_probe, solved=False, at_baseline=False, baseline_value=math.nan)


def _best(answers: pd.DataFrame) -> pd.Series:
    # A test of few seeds misses large differences: the best are `NEAR` the best mean, too. A
    # difference that entries do not print separates nobody for a reader.
    sign = answers["better"].map({"higher": 1.0, "lower": -1.0}).astype(float)
    leading = answers["best"] & ~answers["attention"].map(is_control).astype(bool)
    leaders = answers.assign(order=sign * answers["mean"])[leading].sort_values("order")
    top = answers[["question"]].join(leaders.groupby("question")[["mean", "text"]].last(),
                                     on="question")  # fmt: skip
    is_near = sign * (top["mean"] - answers["mean"]) <= NEAR * top["mean"].abs()
    return (answers["best"] & is_near) | ((answers["text"] == top["text"]) & (answers["seeds"] > 1))


def has_runs(answers: pd.DataFrame) -> pd.Series:
    return (answers["status"] != "") | (answers["part"] != "")


def comparable(runs: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    found = runs[runs["suite"] == suite.key]
    found = found.assign(left_out=found.get("left_out", ""))
    if found.empty:
        return found
    found["chosen"] = found["values"].where(found["role"] == "final", "")
    found.loc[~is_of_suite(found, suite), "left_out"] = "of other settings"
    found.loc[(found["role"] == "") & (found["grid"] != ""), "left_out"] = "without trials"
    return shown.without_others(found, [
        (["question"], "data", "of other data"),
        (["question", "row"], "version", "of other code of the row"),
        (["question", "row"], "device", "on another kind of device"),
        (["question", "row", "role"], "chosen", "at another rate"),
    ])  # fmt: skip


def is_of_suite(runs: pd.DataFrame, suite: Suite) -> pd.Series:
    # False for runs of `--budget SUITE/QUESTION` with other settings, and for runs from before a
    # change of a setting of the suite or of an option of a variant.
    if runs.empty:
        return pd.Series(dtype=bool)
    same = runs["declared"] == runs["question"].map(declared(suite))
    same &= runs["suite"] == suite.key
    for question in suite.questions if same.any() else ():
        # Options of a variant alone: `+V` is another one for the last layer of A+V.
        usual = {f"{name}.{option}": value for name, options in question.variants.items()
                 for option, value in options.items()}  # fmt: skip
        of_question = same & (runs["question"] == question.name)
        usual_positions = runs["attention"].map(question.positions_of)
        found = runs.get("model.positions", usual_positions)
        same &= ~of_question | (found == usual_positions)
        for path in usual.keys() & {*runs}:
            is_alone = of_question & (runs["attention"] == path.partition(".")[0])
            alone = runs.loc[is_alone, ["overrides", path]]
            as_usual = alone["overrides"].str.contains(f'"{path}"')
            as_usual |= alone[path].map(partial(eq, usual[path]))
            same[alone.index[~as_usual]] = False
    return same


SEVERAL = 2  # The fewest seeds of a result that is compared

# The columns of runs that `question_results` reads; the other hundred are not copied
METRIC = ["unit", "better", "digits", "scale", "exponential"]
READ = ["row", "data", "started", "sample", "score", "test_examples", "baseline", "metric", *METRIC]


@dataclass(frozen=True)
class QuestionResults:
    metric: Metric
    scores: Mapping[str, Interval]
    seeds: Mapping[str, int]
    samples: Mapping[str, Sample]  # Answers of the finished seeds by row; higher is better
    models: frozenset[str]  # The rows without attention
    rules: Mapping[str, Interval]  # Baselines of the task, with intervals over test examples
    needed: int = 1  # Seeds of a row; a model without attention is a baseline with `SEVERAL`

    def baselines(self, row: str) -> dict[str, Interval]:
        models = {name: self.scores[name] for name in self.models
                  if self.seeds[name] >= min(self.needed, SEVERAL)}  # fmt: skip
        return {**self.rules, **({} if row in self.models else models)}

    def obstacle(self, row: str) -> str:
        if row not in self.samples:
            return "no stored test answers"
        if not self.rules:
            return "no baseline"
        sample, first = self.samples[row], next(iter(self.samples.values()))
        if sample.seeds == 1:
            return "one seed"
        if not np.array_equal(sample.sizes, first.sizes):
            return "answers to other test examples"
        # A loss near that of a model without attention is a result, not a run that failed.
        scores = (self.baselines(row) if sample.bounded else self.rules).values()
        levels = [self.metric.sign * self.metric.mean(score.mean) for score in scores]
        if self.is_unbeaten:
            levels = [min(levels)]
        return "" if statistics.is_comparable(sample, levels) else "seeds at a baseline"

    @cached_property
    def is_unbeaten(self) -> bool:
        # No seed of a variant is above the strongest baseline of the task: then the order of the
        # variants is the question, and only guesses are failed runs.
        means = [mean for row, of in self.samples.items() if row not in self.models
                 for mean in of.means]  # fmt: skip
        rules = [self.metric.sign * self.metric.mean(rule.mean) for rule in self.rules.values()]
        return bool(means) and max(means) < max(rules, default=-math.inf)

    @cached_property
    def compared(self) -> dict[str, Sample]:
        return {row: self.samples[row] for row in self._best_first if not self.obstacle(row)}

    @property
    def several(self) -> dict[str, Sample]:
        found = {row: of for row in self._best_first if (of := self.samples.get(row))}
        first = next(iter(found.values()), None)
        return {row: of for row, of in found.items()
                if of.seeds > 1 and first and np.array_equal(of.sizes, first.sizes)}  # fmt: skip

    @property
    def _best_first(self) -> list[str]:
        return sorted(self.scores, key=lambda row: -self.metric.sign * self.scores[row].mean)


def letters(samples: Mapping[str, Sample], rows: Collection[str]) -> dict[str, str]:
    # The rank groups of `rows`; all `samples` are compared.
    if not (ranked := [row for row in samples if row in rows]):
        return {}
    separable = statistics.separable_pairs([*samples.values()])
    places = [row in ranked for row in samples]
    groups = statistics.rank_groups(separable[places][:, places])
    return dict(zip(ranked, groups, strict=True))


NO_RESULTS = QuestionResults(
    Metric(name="none", unit="", better="higher", digits=0), {}, {}, {}, frozenset(), {}
)


def question_results(
    runs: pd.DataFrame, baselines: pd.DataFrame, needed: int = 1
) -> QuestionResults:
    finished = runs.loc[runs["status"] == "ok", runs.columns.intersection(READ)]
    if finished.empty:
        return NO_RESULTS
    latest = finished.sort_values("started").iloc[-1]
    finished = finished[finished["data"] == latest["data"]]
    metric = Metric(name=latest["metric"], **latest[METRIC])
    scores, samples = {}, {}
    for row, seeds in finished.sort_values("started").groupby("row"):
        stored = None if seeds["sample"].isna().any() else Sample.of([*seeds["sample"]])
        if stored:
            samples[row] = stored
            scores[row] = intervals.interval_of(stored, metric)
            continue
        # Without stored answers only accuracies have an interval.
        means = [metric.mean(score) for score in seeds["score"]]
        if all(0 <= mean <= 1 for mean in means):
            examples = int(seeds["test_examples"].iloc[0])
            scores[row] = in_unit(intervals.interval(means, examples), metric)
    models = frozenset(finished.loc[finished["baseline"], "row"]) & scores.keys()
    same = baselines[baselines["data"] == latest["data"]]
    rules = {
        rule: in_unit(intervals.interval_like(metric.mean(score), [*samples.values()]), metric)
        if samples
        else Interval(score, score, score)
        for rule, score in zip(same["name"], same["score"], strict=True)
    }
    # From here on more is better.
    samples = {row: replace(of, totals=metric.sign * of.totals) for row, of in samples.items()}
    counts = Counter(finished["row"])
    return QuestionResults(metric, scores, counts, samples, models, rules, needed)


def _answers(question: QuestionResults, runs: pd.DataFrame) -> pd.DataFrame:
    def ends(statuses: pd.Series) -> str:
        failed = statuses[statuses != "ok"].str.replace("_", " ").value_counts(sort=False)
        return ", ".join(f"{name} ({n} of {len(statuses)})" for name, n in failed.items()) or "ok"

    found = runs.groupby("row").agg({"status": ends, **dict.fromkeys(LARGEST, "max")})
    lines = {row: _line(question, row) for row in question.scores}
    # Losses are ranked even below a baseline.
    ranked = [row for row in lines if lines[row]["answered"] or question.is_unbeaten
              or (row in question.samples and not question.samples[row].bounded)]  # fmt: skip
    found = found.join(pd.DataFrame.from_dict(lines, orient="index"))
    return found.assign(rank_group=found.index.map(letters(question.compared, ranked)))


def _line(question: QuestionResults, row: str) -> dict[str, Any]:
    metric, baselines, score = question.metric, question.baselines(row), question.scores[row]

    def ends(interval: Interval) -> list[float]:
        return sorted(metric.sign * end for end in interval[1:])

    def text(interval: Interval) -> str:
        return f"[{metric.text(interval.low)}, {metric.text(interval.high)}]"

    above = bool(question.rules) and row not in question.models
    above = above and all(ends(score)[0] > ends(other)[1] for other in baselines.values())
    by_mean = {name: metric.sign * baseline.mean for name, baseline in baselines.items()}
    strongest = max(by_mean, key=by_mean.__getitem__, default="")
    baseline = baselines.get(strongest)
    return {
        "metric": metric.name, "better": metric.better, "mean": score.mean, "low": score.low,
        "high": score.high, "text": metric.text(score.mean), "interval": text(score),
        "seeds": question.seeds[row], "not_compared": question.obstacle(row),
        "baseline": strongest, "baseline_value": baseline.mean if baseline else math.nan,
        "baseline_interval": text(baseline) if baseline else "",
        "at_baseline": bool(question.rules) and not above, "answered": above,
    }  # fmt: skip
