"""The leaderboard: the results of runs of no suite, with a question for each task and recipe."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any, NamedTuple

import pandas as pd

from harness.records.frame import TIMES, best_first
from harness.records.record import Metric
from harness.records.store import Broken
from reports import shown
from reports.markdown import escape, rendered
from reports.progress import NO_PROGRESS
from reports.statistics import LEVEL
from reports.suite_results import SuiteResults, question_results
from reports.table import Column, Line, Table, values
from reports.table import shown as columns_of
from reports.text import (
    NOTHING,
    WIDTH,
    commits_in,
    frame_csv,
    left_out_text,
    number,
    outdated_text,
    plain,
    whole_text,
)

# Percentage of intervals, by the number of seeds, that contain the mean over all seeds where a seed
# fails with probability 0.3: the smallest of four kinds of scores, simulated.
FAILING_COVERAGE = {2: 42, 3: 62, 5: 82}

# The number of parameters of a row is compared with softmax's where it differs by more.
MOST_DIFFERENCE = 0.1

MIB, GIGA = 2**20, 10**9

PAGE, BOTH = ("page",), ("page", "terminal")

SHARED = "max"  # How a row has the costs of its runs, which share one measurement

# In place of a ratio to a softmax that had too little memory or time.
WITHOUT_SOFTMAX = "no softmax"


def _score(line: Line) -> str:
    if not line["text"]:
        return line["status"]
    text = f"({line['text']})" if line["at_baseline"] else line["text"]
    return "; ".join(filter(None, [f"{text} {line['interval']}", line["status"]]))


def _on(name: str, digits: str) -> Callable[[Line], str]:
    return lambda line: NOTHING if pd.isna(line[name]) else f"{line[name]:z,.{int(line[digits])}f}"


def metric_of(rows: pd.DataFrame) -> Metric:
    fields = rows[["unit", "better", "digits"]].assign(name=rows["metric"])
    return Metric.model_validate(fields.to_dict("records")[0])


def _of(name: str, whole: str) -> Callable[[Line], str]:
    return lambda line: NOTHING if pd.isna(line[name]) else f"{line[name]:.0f} of {line[whole]}"


def _size(line: Line) -> str:
    text = whole_text(line["parameters"])
    ratio = line["parameters"] / line["softmax_parameters"]
    # Softmax of a matched row has the width of the row, and not of the recipe.
    differs = not line["match"] and abs(ratio - 1) > MOST_DIFFERENCE
    return f"{text} ({ratio:.2f} × softmax)" if differs else text


def _cost(name: str, heading: str, unit: str, scale: float = 1.0, short: str = "") -> Column:
    def text(line: Line) -> str:
        if pd.isna(line["step_seconds"]):
            return "not measured"
        if pd.notna(line[name]):
            return number(scale * line[name])
        return WITHOUT_SOFTMAX if pd.isna(line["memory_ratio"]) else "not measured"

    return Column(name=name, of=SHARED, heading=heading, unit=unit, text=text, short=short,
                  outputs=BOTH if short else PAGE)  # fmt: skip


# The columns of a row. Others are of `SuiteResults.answers`, or see `rows_of`.
COLUMNS = (
    *values("setting", "task", "recipe", "data", "device", "machine", "match", "overrides",
            "options", "chosen", "train.precision", "metric", "unit", "better", "digits",
            "baseline", "dev_metric", "dev_digits", of="first"),
    Column(name="row", heading="attention", outputs=BOTH,
           text=lambda line: f"{line['row']}{' (outdated)' * bool(line['outdated'])}"),
    Column(name="mean", heading="test {metric} [95 % interval]", short="test", text=_score,
           outputs=BOTH),
    Column(name="rank_group", heading="group", outputs=BOTH, only_if_any=True),
    Column(name="best", heading="best", unit="%", short="best %", outputs=BOTH, only_if_any=True,
           write=whole_text),
    Column(name="seeds_at_baseline", heading="seeds at a baseline", outputs=PAGE, only_if_any=True,
           text=_of("seeds_at_baseline", "seeds")),
    Column(name="dev", of="mean", heading="dev {dev_metric}", short="dev", outputs=BOTH,
           text=_on("dev", "dev_digits")),
    Column(name="best_on_test", of="mean", heading="best on test, chosen on test", outputs=PAGE,
           text=_on("best_on_test", "digits"), only_if_any=True),
    Column(name="seeds", heading="seeds", outputs=BOTH, text=lambda line: (
        str(line["runs"]) if line["seeds"] == line["runs"] else _of("seeds", "runs")(line))),
    Column(name="known_failures", of="first", heading="known check failures", outputs=PAGE,
           write=whole_text, only_if_any=True),
    _cost("step_seconds", "time", "s / 1K steps", 1000, short="s/1K steps"),
    _cost("time_ratio", "time", "× fastest softmax", short="time ×"),
    Column(name="reference", of=SHARED, heading="fastest softmax", outputs=PAGE, only_if_any=True),
    _cost("peak_bytes", "peak memory", "MiB", 1 / MIB),
    _cost("memory_ratio", "peak memory", "× SDPA softmax", short="peak memory ×"),
    _cost("tokens_per_second", "inference", "tokens / s"),
    _cost("inference_ratio", "inference time", "× fastest softmax"),
    Column(name="parameters", of="median", heading="parameters", text=_size, outputs=PAGE),
    Column(name="flops", of="median", heading="GFLOPs / step", outputs=PAGE,
           write=lambda flops: number(flops / GIGA)),
    *values("outdated", of="any"), *values("commit", of="first"),
    *values("test_examples", of="max"),
    *values(*(f"{name}.{end}" for name in TIMES for end in ("q1", "q3")), of=SHARED),
    *values("softmax_parameters", "inference_reference", of=SHARED),
    *values("state_bytes", of="median"),
)  # fmt: skip


class Leaderboard(NamedTuple):
    """Frames of the runs of no suite.

    Attributes:
        every: the runs with their questions and rows; see `reports.shown.questions`.
        runs: those that are shown.
    """

    every: pd.DataFrame
    runs: pd.DataFrame
    rows: pd.DataFrame
    pairs: pd.DataFrame
    rules: pd.DataFrame
    older: str
    outdated: str


def leaderboard(runs: pd.DataFrame, baselines: pd.DataFrame) -> Leaderboard:
    every = shown.questions(runs)
    selected = selected_of(every)
    found = results_of(selected, baselines)
    rows = rows_of(found) if len(selected) else selected
    notes = left_out_text(every["left_out"]), outdated_text(selected)
    return Leaderboard(every, selected, rows, found.pairs(), baselines, *notes)


def selected_of(found: pd.DataFrame, *more: str) -> pd.DataFrame:
    keys = ["question", "attention", "options", *more]
    return shown.final_runs(found[found["left_out"] == ""], keys)


def results_of(runs: pd.DataFrame, baselines: pd.DataFrame) -> SuiteResults:
    groups = runs.groupby("question", sort=False)
    questions = {str(name): question_results(same, baselines) for name, same in groups}
    return SuiteResults("leaderboard", {}, runs, questions)


def rows_of(found: SuiteResults) -> pd.DataFrame:
    # Columns: as `SuiteResults.answers`, where `status` is how the runs ended that did not finish,
    # and `best`, the probability that the row is the best of those compared, in percent;
    # `seeds_at_baseline`, the finished seeds that are not better than the strongest baseline;
    # `runs` and `run_seeds`; the columns of costs as a run has them.
    key, runs = ["question", "row"], found.seeds
    groups = runs.groupby(key)
    rows = found.answers(rank_all=True).set_index(key)
    of_suites = ["known_failures", "metric", "better", "state_bytes", "best", *NO_PROGRESS]
    rows = rows[rows["status"] != ""].drop(columns=of_suites)
    groups_of = {column.name: column.of for column in COLUMNS if column.of}
    of_runs = groups.agg(groups_of).rename(columns={"baseline": "without_attention"})
    rows = rows.join(of_runs).join(100 * found.probabilities_of_best()).join(groups.agg(
        runs=("seed", "size"), run_seeds=("seed", lambda seeds: " ".join(map(str, seeds))),
    ))  # fmt: skip
    rows["status"] = groups[[*runs]].apply(shown.failures)
    finished = runs[runs["score"].notna() & ~runs["baseline"]].set_index(key)
    strongest = rows["baseline_value"].reindex(finished.index)
    behind = best_first(finished["score"] - strongest, finished["better"]) >= 0
    behind = behind.where(strongest.notna()).astype(float)
    rows["seeds_at_baseline"] = behind.groupby(level=[0, 1]).sum(min_count=1)
    rows = rows.assign(order=best_first(rows["mean"], rows["better"])).reset_index()
    return rows.sort_values(["question", "order", "row"], ignore_index=True).drop(columns="order")


def files(found: Leaderboard, broken: Sequence[Broken]) -> dict[str, bytes]:
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
    # New columns: `kind`, `measured` or `baseline`; `commits`; and each field of the recipe.
    if found.rows.empty:
        return found.rows
    key = ["question", "row"]
    fields = [name for name in map(str, found.runs) if name.startswith(("model.", "train."))]
    groups = found.runs.groupby(key)
    rows = found.rows.drop(columns=["train.precision", "setting", "text", "interval"])
    rows = rows.assign(kind="measured").join(groups[fields].first(), on=key)
    commits = groups["commit"].agg(lambda texts: " ".join(commits_in(texts)))
    rows = rows.join(commits.rename("commits"), on=key)
    shared = ["question", "task", "data", "metric", "unit", "better"]
    first = rows.drop_duplicates("question")[shared]
    rules = found.rules[["data", "name", "score"]].rename(columns={"name": "row", "score": "mean"})
    rules = first.merge(rules, on="data").assign(kind="baseline")
    rules = rules.assign(order=best_first(rules["mean"], rules["better"]))
    every = pd.concat([rows.assign(order=range(len(rows))), rules])
    order = ["question", "kind", "order"]
    return every.sort_values(order, ascending=[True, False, True]).drop(columns="order")


def terminal(found: Leaderboard) -> str:
    tables = []
    for section in sections(found):
        rules = ", ".join(f"{name} {text}" for name, text in section["baselines"])
        tables.append("\n".join([
            *_wrapped(section["title"]),
            *_wrapped(section["verdict"]),
            section["terminal"].terminal(),
            *_wrapped(f"test, baselines: {section['metric']}; in brackets: not above a baseline"),
            *(_wrapped(f"baselines: {rules}") if rules else []),
        ]))  # fmt: skip
    return "\n\n".join(filter(None, [*tables, found.outdated, found.older])) or "no records"


def sections(found: Leaderboard) -> list[dict[str, Any]]:
    groups = found.rows.groupby("question") if len(found.rows) else ()
    return [_section(found, rows) for _, rows in groups]


def _section(found: Leaderboard, rows: pd.DataFrame) -> dict[str, Any]:
    lines, metric = rows.to_dict("records"), metric_of(rows)
    first = lines[0]
    names = {"metric": metric.title, "dev_metric": first["dev_metric"]}
    every = [replace(column, heading=column.heading.format(**names)) for column in COLUMNS]
    page, screen = (Table(columns_of(every, output, rows), lines) for output in BOTH)
    rules = found.rules[found.rules["data"] == first["data"]]
    rules = rules.sort_values(["score", "name"], ascending=[metric.sign < 0, True])
    baselines = [*zip(rules["name"], map(metric.text, rules["score"]), strict=True)]
    more = [[f"*{escape(name)}*", f"*{text}*", *[""] * (len(page.columns) - 2)]
            for name, text in baselines]  # fmt: skip
    pairs = found.pairs[found.pairs["question"] == first["question"]]
    return {
        "title": first["question"], "setting": first["setting"], "metric": metric.title,
        "test_examples": rows["test_examples"].max(),
        "verdict": _verdict(rows, pairs, metric, has_rules=bool(baselines)),
        "terminal": screen, "baselines": baselines, "table": page.markdown(*more),
    }  # fmt: skip


def _verdict(rows: pd.DataFrame, pairs: pd.DataFrame, metric: Metric, *, has_rules: bool) -> str:
    finished = rows[rows["text"] != ""]
    attention = finished[~finished["without_attention"]]
    strongest = attention.sort_values("baseline_value", ascending=metric.sign < 0)[-1:]
    obstacles = finished[finished["not_compared"] != ""].groupby("not_compared")["row"]
    text = rendered(
        "verdict.txt.j2", pairs=len(pairs), separable=int((pairs["p_holm"] <= LEVEL).sum()),
        finished=len(finished), not_compared=obstacles.agg(", ".join).to_dict(),
        data=rows["data"].iloc[0], has_rules=has_rules, answered=int(attention["answered"].sum()),
        attention=len(attention), strongest=[
            f"{name}, {metric.sentence(value)}"
            for name, value in zip(strongest["baseline"], strongest["baseline_value"], strict=True)
        ],
    )  # fmt: skip
    return " ".join(text.split())


def environments(runs: pd.DataFrame) -> list[str]:
    packages = sorted(name for name in map(str, runs) if name.startswith("versions."))
    machines = [
        f"{run['machine']}, {run['memory_gib']:.1f} GiB, {run['threads']} threads; "
        f"{run['system']}; "
        + ", ".join(f"{name[9:]} {run[name]}" for name in packages if pd.notna(run[name]))
        for run in runs.to_dict("records")
    ]
    groups = runs["commit"].groupby(machines) if machines else ()
    return [f"{machine}; commit {', '.join(commits_in(texts))}" for machine, texts in groups]


def _wrapped(text: str) -> list[str]:
    return wrap(plain(text), WIDTH, subsequent_indent="  ")
