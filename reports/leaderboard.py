"""The leaderboard: the results of runs of no suite, with a question for each task and recipe."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import pandas as pd

from harness.records.frame import best_first
from harness.records.record import Metric
from harness.records.store import Broken
from reports import outdated
from reports.columns import COLUMNS, metric_of
from reports.markdown import escape, rendered
from reports.questions import failures, left_out, lines, newest, questions
from reports.statistics import LEVEL
from reports.suite_results import SuiteResults, question_results
from reports.text import WIDTH, frame_csv, plain, text_table

FAILING_COVERAGE = {2: 42, 3: 62, 5: 82}
"""Percentage of intervals, by the number of seeds, that contain the mean over all seeds where a
seed fails with probability 0.3: the smallest of all kinds of scores in `docs/performance.md`."""

OF_COSTS = [
    *(f"{name}{end}" for name in ("step_seconds", "time_ratio", "tokens_per_second",
                                  "inference_ratio") for end in (".q1", "", ".q3")),
    "peak_bytes", "softmax_peak_bytes", "memory_ratio", "softmax_parameters", "state_bytes",
]  # fmt: skip
"""Columns that are medians over the measured runs of a row."""

OF_RUNS = {
    **dict.fromkeys(
        ("setting", "task", "recipe", "data", "device", "machine", "match", "overrides", "options",
         "chosen", "train.precision", "metric", "unit", "better", "digits", "baseline",
         "dev_metric", "dev_digits", "known_failures"), "first",
    ),
    "outdated": "any", "commit": "first", "test_examples": "max", "dev": "mean",
    "best_on_test": "mean", "parameters": "median", "flops": "median",
}  # fmt: skip
"""How a row has the other columns from its runs."""


class Leaderboard(NamedTuple):
    """Frames of the runs of no suite.

    Attributes:
        every: the runs of the newest version of each task, with the trials.
        runs: those that are shown; see `reports.questions`.
        pairs: the differences between `rows`; see `reports.statistics`.
        rules: the baselines of the tasks; see `harness.records.frame.baselines`.
        older: the runs that are left out, in one line.
        outdated: the shown runs that are outdated, in one sentence.
    """

    every: pd.DataFrame
    runs: pd.DataFrame
    rows: pd.DataFrame
    pairs: pd.DataFrame
    rules: pd.DataFrame
    older: str
    outdated: str


def leaderboard(runs: pd.DataFrame, baselines: pd.DataFrame) -> Leaderboard:
    """The leaderboard of runs of no suite."""
    selected = questions(runs)
    found = results_of(selected, baselines)
    rows = rows_of(found) if len(selected) else selected
    notes = left_out(runs), outdated.sentence(selected)
    return Leaderboard(newest(runs), selected, rows, found.pairs(), baselines, *notes)


def results_of(runs: pd.DataFrame, baselines: pd.DataFrame) -> SuiteResults:
    """The results of runs with the columns of `reports.questions`."""
    groups = runs.groupby("question", sort=False)
    questions = {str(name): question_results(same, baselines) for name, same in groups}
    return SuiteResults("leaderboard", {}, runs, questions)


def rows_of(found: SuiteResults) -> pd.DataFrame:
    """A line for each question and row, the best first, those without a score last.

    Columns: as `SuiteResults.answers`, where `status` is how the runs ended that did not finish,
    and `best`, the probability that the row is the best of those compared, in percent;
    `seeds_at_baseline`, the finished seeds that are not better than the strongest baseline; `runs`
    and `run_seeds`; of the costs the medians over the measured runs, without those that softmax
    had no memory for if there are others.
    """
    key, runs = ["question", "row"], found.seeds
    groups = runs.groupby(key)
    rows = found.answers(rank_all=True).set_index(key)
    rows = rows[rows["status"] != ""].drop(columns=["known_failures", "metric", "better"])
    of_runs = groups.agg(OF_RUNS).rename(columns={"baseline": "without_attention"})
    rows = rows.join(of_runs).join(_costs(runs)).join(100 * found.probabilities_of_best())
    rows = rows.join(groups.agg(
        runs=("seed", "size"), run_seeds=("seed", lambda seeds: " ".join(map(str, seeds))),
    ))  # fmt: skip
    names = ["reference", "inference_reference"]
    rows[names] = rows[names].fillna("")
    rows["status"] = groups[[*runs]].apply(failures)
    rows["seeds_at_baseline"] = _seeds_at_baseline(runs, rows)
    rows = rows.assign(order=best_first(rows["mean"], rows["better"])).reset_index()
    return rows.sort_values(["question", "order", "row"], ignore_index=True).drop(columns="order")


def _costs(runs: pd.DataFrame) -> pd.DataFrame:
    """The medians of the measured runs, and the softmax that times are compared with."""
    key = ["question", "row"]
    measured = runs[runs["step_seconds"].notna()]
    related = measured["memory_ratio"].notna()
    some = related.groupby([measured[name] for name in key]).transform("any")
    measured = measured[related | ~some]
    names = measured.groupby(key)[["reference", "inference_reference"]].agg(
        lambda names: " or ".join(sorted({*names} - {""}))
    )
    numbers = measured[OF_COSTS].apply(pd.to_numeric)
    return numbers.groupby([measured[name] for name in key]).median().join(names)


def _seeds_at_baseline(runs: pd.DataFrame, rows: pd.DataFrame) -> pd.Series:
    """The finished seeds not better than the strongest baseline; NaN of a row that is one."""
    finished = runs[runs["score"].notna() & ~runs["baseline"]].set_index(["question", "row"])
    strongest = rows["baseline_value"].reindex(finished.index)
    behind = best_first(finished["score"] - strongest, finished["better"]) >= 0
    behind = behind.where(strongest.notna())
    return behind.astype(float).groupby(level=[0, 1]).sum(min_count=1)


def files(found: Leaderboard, broken: Sequence[Broken]) -> dict[str, bytes]:
    """The content of `leaderboard.md` and `leaderboard.csv`, by name."""
    every = found.every
    page = rendered(
        "leaderboard.md.j2", sections=sections(found), older=found.older, outdated=found.outdated,
        coverage=FAILING_COVERAGE, runs=every, environments=environments(every),
        known_failures=sorted({failure for failures in every.get("expected_failures", ())
                               for failure in failures.items()}),
        broken=sorted((file.path.name, file.reason) for file in broken),
    )  # fmt: skip
    return {"leaderboard.md": page.encode(), "leaderboard.csv": frame_csv(table(found))}


def table(found: Leaderboard) -> pd.DataFrame:
    """The rows of each question, then its baselines, a line each: what the CSV file holds.

    New columns: `kind`, `measured` or `baseline`; `commits`; and each field of the recipe.
    """
    if found.rows.empty:
        return found.rows
    key = ["question", "row"]
    fields = [name for name in map(str, found.runs) if name.startswith(("model.", "train."))]
    groups = found.runs.groupby(key)
    rows = found.rows.drop(columns=["train.precision", "setting", "text", "interval"])
    rows = rows.assign(kind="measured").join(groups[fields].first(), on=key)
    rows = rows.join(groups["commit"].agg(_commits).rename("commits"), on=key)
    shared = ["question", "task", "data", "metric", "unit", "better"]
    first = rows.drop_duplicates("question")[shared]
    rules = found.rules[["data", "name", "score"]].rename(columns={"name": "row", "score": "mean"})
    rules = first.merge(rules, on="data").assign(kind="baseline")
    rules = rules.assign(order=best_first(rules["mean"], rules["better"]))
    every = pd.concat([rows.assign(order=range(len(rows))), rules])
    order = ["question", "kind", "order"]
    return every.sort_values(order, ascending=[True, False, True]).drop(columns="order")


def terminal(found: Leaderboard) -> str:
    """Every question with its main columns: a line for each row, with means over its seeds."""
    tables = []
    for section in sections(found):
        columns = [column for column in section["columns"] if column.short]
        rows = [[plain(column.text(line)) for column in columns] for line in section["rows"]]
        rules = ", ".join(f"{name} {text}" for name, text in section["baselines"])
        tables.append("\n".join([
            *_wrapped(section["title"]),
            *_wrapped(section["verdict"]),
            text_table([column.short for column in columns], rows),
            *_wrapped(f"test, baselines: {section['metric']}; in brackets: not above a baseline"),
            *(_wrapped(f"baselines: {rules}") if rules else []),
        ]))  # fmt: skip
    return "\n\n".join(filter(None, [*tables, found.outdated, found.older])) or "no records"


def sections(found: Leaderboard) -> list[dict[str, Any]]:
    """The section of each question on the page and the terminal."""
    groups = found.rows.groupby("question") if len(found.rows) else ()
    return [_section(found, rows) for _, rows in groups]


def _section(found: Leaderboard, rows: pd.DataFrame) -> dict[str, Any]:
    row_lines, question = lines(rows), rows["question"].iloc[0]
    first = row_lines[0]
    metric = metric_of(first)
    names = {"metric": metric.title, "dev_metric": first["dev_metric"]}
    columns = [
        column._replace(heading=column.heading.format(**names))
        for column in COLUMNS
        if not column.optional or rows[column.optional].replace("", 0).fillna(0).ne(0).any()
    ]
    rules = found.rules[found.rules["data"] == first["data"]]
    rules = rules.sort_values(["score", "name"], ascending=[metric.sign < 0, True])
    baselines = [(rule["name"], metric.text(rule["score"])) for rule in lines(rules)]
    page_lines = [[escape(column.text(line)) for column in columns] for line in row_lines]
    page_lines += [
        [f"*{escape(name)}*", f"*{text}*", *[""] * (len(columns) - 2)] for name, text in baselines
    ]
    pairs = found.pairs[found.pairs["question"] == question]
    return {
        "title": question, "setting": first["setting"], "metric": metric.title,
        "test_examples": rows["test_examples"].max(),
        "verdict": _verdict(rows, pairs, metric, has_rules=bool(baselines)),
        "columns": columns, "rows": row_lines, "baselines": baselines,
        "head": [column.heading for column in columns], "lines": page_lines,
    }  # fmt: skip


def _verdict(rows: pd.DataFrame, pairs: pd.DataFrame, metric: Metric, *, has_rules: bool) -> str:
    """The verdict on a question: separable pairs, and the rows that beat every baseline."""
    finished = rows[rows["text"] != ""]
    attention = finished[~finished["without_attention"]]
    strongest = attention.sort_values("baseline_value", ascending=metric.sign < 0)[-1:]
    obstacles = finished[finished["not_compared"] != ""].groupby("not_compared")["row"]
    text = rendered(
        "verdict.txt.j2", pairs=len(pairs), separable=int((pairs["p_holm"] <= LEVEL).sum()),
        finished=len(finished), not_compared=obstacles.agg(", ".join).to_dict(),
        data=rows["data"].iloc[0], has_rules=has_rules, answered=int(attention["answered"].sum()),
        attention=len(attention), strongest=[
            f"{row['baseline']}, {metric.sentence(row['baseline_value'])}"
            for row in lines(strongest)
        ],
    )  # fmt: skip
    return " ".join(text.split())


def environments(runs: pd.DataFrame) -> list[str]:
    """Each machine with the versions of its packages, and the commits of its runs."""
    packages = sorted(name for name in map(str, runs) if name.startswith("versions."))
    machines = [
        f"{run['machine']}, {run['memory_gib']:.1f} GiB, {run['threads']} threads; "
        f"{run['system']}; "
        + ", ".join(f"{name[9:]} {run[name]}" for name in packages if pd.notna(run[name]))
        for run in lines(runs)
    ]
    commits = runs["commit"].groupby(machines).agg(_commits) if machines else pd.Series()
    return [f"{machine}; commit {names.replace(' ', ', ')}" for machine, names in commits.items()]


def _commits(texts: pd.Series) -> str:
    """Each commit once, in order; `unknown` where there is none."""
    return " ".join(sorted({name for text in texts for name in (text or "unknown").split(", ")}))


def _wrapped(text: str) -> list[str]:
    return wrap(plain(text), WIDTH, subsequent_indent="  ")
