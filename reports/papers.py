"""Numbers that papers published, and the results and costs of suites beside them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.records.suites import Suite
from reports.cost import problem, text_of
from reports.markdown import rendered
from reports.statistics import tau
from reports.table import ROW, Line, grid, headed, records, values
from reports.text import NOTHING, WIDE, frame_csv, number, outdated_text

# Seconds of a pass of a training step on a GPU if none are published: launching the kernels of a
# small model, about a thousand, takes longer than running them.
STEP_SECONDS = 0.01
FEWEST = 6  # Common variants that a correlation with a published table needs
PRINTED = 0.05  # Half a unit of the last printed digit of a result

CSV = values(
    "task", "row", "attention", "options", "length", "batch", "precision", "device", "machine",
    "threads", "status", "reason", "computed_by", "backend", "time.q1", "time", "time.q3",
    "published_time", "memory", "published_memory", "time_over_first", "published_time_over_first",
    "ratio", "reference", "memory_over_first", "published_memory_over_first",
    "memory_ratio", "source", "commit",
    **{"time.q1": "seconds_per_1k_steps_q1", "time": "seconds_per_1k_steps_median",
       "time.q3": "seconds_per_1k_steps_q3", "ratio": "time_over_softmax",
       "published_time": "published_seconds_per_1k_steps", "memory": "peak_memory_gb",
       "published_memory": "published_peak_memory_gb", "reference": "softmax",
       "time_over_first": "time_over_naive_softmax",
       "published_time_over_first": "published_time_over_softmax",
       "memory_over_first": "memory_over_naive_softmax",
       "published_memory_over_first": "published_memory_over_softmax",
       "memory_ratio": "memory_over_sdpa_softmax"},
)  # fmt: skip

# The tables of the page that have published numbers, each with its column.
TABLES = {
    "Seconds per 1,000 steps": "time", "Peak memory in GB": "memory",
    "Time relative to naive softmax": "time_over_first",
    "Peak memory relative to naive softmax": "memory_over_first",
}  # fmt: skip


@cache
def _numbers() -> pd.DataFrame:
    tables = sorted(Path(__file__).with_name("published").glob("*.csv"))
    found = pd.concat([pd.read_csv(file, dtype=str) for file in tables], ignore_index=True)
    reference, value = found["source"] + ", " + found["table"], found["value"]
    return found.assign(reference=reference, printed=value, value=value.astype(float))


def published(**fields: str) -> pd.DataFrame:
    # Columns: `task` (its key), `attention`, `value`, `printed` (the value as text), `unit`,
    # `reference` (source and table). Another option or version is another key, without numbers.
    # Tasks that this project lacks have the name of their data set; `average` is over all tasks.
    found = _numbers()
    for name, text in fields.items():
        found = found[found[name] == text]
    return found


def results(answers: pd.DataFrame, seeds: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    # `published_is` compares an interval with the rounded number in print; empty without a number.
    # A row with options has none: the paper's has its own.
    best = seeds[seeds["status"] == "ok"].groupby(["question", "row"])["best_on_test"].mean()
    keys = answers["question"].map(seeds.groupby("question")["task"].first())
    of_table = _of_suite(suite).set_index(["task", "attention"])
    numbers = of_table.reindex(pd.MultiIndex.from_arrays([keys, answers["row"]]))
    found = answers.join(best, on=["question", "row"]).assign(
        published=numbers["value"].to_numpy(),
        published_text=numbers["printed"].fillna("").to_numpy(),
        published_in=numbers["reference"].fillna("").to_numpy(),
    )
    value, nothing = found["published"], found[["published", "mean"]].isna().any(axis=1)
    where = [nothing, value + PRINTED < found["low"], value - PRINTED > found["high"]]
    return found.assign(published_is=np.select(where, ["", "below", "above"], "within"))


def _of_suite(suite: Suite) -> pd.DataFrame:
    every = [published(reference=reference) for reference in suite.published]
    return pd.concat(every).drop_duplicates(["task", "attention"])


def means(results: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    # The published mean of a whole table is compared with the mean over all of its questions.
    numbers = _of_suite(suite)
    whole = numbers[numbers["task"] == "average"].set_index("attention")["value"]
    lines = {}
    for row, of_row in results[results["mean"].notna()].groupby("row", sort=False):
        both = of_row[of_row["published"].notna()]
        if len(both) > 1:
            lines[row] = len(both), both["mean"].mean(), both["published"].mean()
        elif row in whole and len(of_row) == len(suite.questions):
            lines[row] = len(of_row), of_row["mean"].mean(), whole[row]
    return pd.DataFrame.from_dict(lines, orient="index", columns=["questions", "here", "published"])


def correlation(ours: pd.Series, theirs: pd.DataFrame) -> dict[str, float]:
    # `rows` of both; `tau` (1: the same order) with the ends `low` and `high` of its interval, NaN
    # with fewer than `FEWEST` rows, or if all numbers of one side are equal.
    sides = [ours, theirs.set_index("attention")["value"]]
    both = pd.concat(sides, axis=1, join="inner").astype(float).dropna()
    enough = len(both) >= FEWEST and (both.nunique() > 1).all()
    ends = tau(*both.to_numpy().T) if enough else (math.nan,) * 3
    return {"rows": len(both), **dict(zip(("tau", "low", "high"), ends, strict=True))}


def correlations(answers: pd.DataFrame, suite: Suite) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for question in (question for question in suite.questions if question.published):
        ours = answers[answers["question"] == question.name]
        ours = ours.set_index("row")["mean"].dropna()
        for reference in suite.published:
            theirs = published(task=question.published, reference=reference)
            of_both = correlation(ours, theirs)
            text = "{tau:.2f} [{low:.2f}, {high:.2f}]".format(**of_both)
            line = {"title": question.title, "reference": reference, "text": text}
            found.append(line | of_both)
    return [line for line in found if line["rows"] >= FEWEST]


def gpu_hours(efforts: pd.DataFrame) -> pd.DataFrame:
    # Runs x steps x the seconds of a step: the published ones, else their mean on the question,
    # else `STEP_SECONDS` for each pass.
    times = published(unit="s/1K steps").set_index(["task", "attention"])["value"] / 1000
    of_rows = times.reindex(pd.MultiIndex.from_frame(efforts[[*times.index.names]]))
    found = efforts.assign(seconds=of_rows.to_numpy())
    usual = found.groupby("question")["seconds"].transform("mean")
    seconds = found["seconds"].fillna(usual).fillna(STEP_SECONDS * found["passes"])
    found = found.assign(hours=found["runs"] * found["steps"] * seconds / 3600, usual=usual)
    return found.groupby("question", sort=False).agg(
        rows=("row", "size"), runs=("runs", "sum"), steps=("steps", "first"),
        passes=("passes", "first"), hours=("hours", "sum"),
        assumed=("usual", lambda times: times.isna().all()),
    )  # fmt: skip


def section(results: pd.DataFrame, suite: Suite) -> str:
    run = results.loc[results["text"] != "", "question"].unique()
    missing = [question.title for question in suite.questions if question.name not in run]
    return rendered(
        "published.md.j2", suite=suite,
        rows=results[results["question"].isin(run)].to_dict("records"),
        means=means(results, suite).to_dict("index"), missing=missing,
        several=len(suite.published) > 1,
    )  # fmt: skip


def step_costs(wanted: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    # Published ratios refer to the first row. The machine and precision with most of the wanted
    # steps are used. Columns: those of `wanted` and `costs`; `time` (seconds of 1,000 steps) with
    # its quartiles, `memory` (peak of a step, 10^9 bytes), `time_over_first`, `memory_over_first`
    # (relative to the first row), each also with the prefix `published_`; `source`.
    costs = costs[costs["shape"].isin(wanted["shape"])] if len(costs) else costs
    if costs.empty:
        return pd.DataFrame()
    machine = costs.groupby(["machine", "threads", "precision"]).ngroup()
    shared = ["row", "attention", "memory", "task"]
    chosen = costs[machine == machine.mode().max()].drop(columns=shared)
    found = wanted.merge(
        chosen.sort_values("started").drop_duplicates("shape", keep="last"), "left", "shape"
    )
    # Of several rows of a variant, the first is the published one.
    repeated = found.duplicated(["question", "attention"])
    keys = found[["task"]].assign(attention=found["attention"].mask(repeated, ""))
    time, memory = (
        published(unit=unit).set_index([*keys]).reindex(pd.MultiIndex.from_frame(keys))
        for unit in ("s/1K steps", "GB")
    )
    found = found.assign(
        time=1000 * found["seconds"], memory=found["peak_bytes"] / 1e9,
        published_time=time["value"].to_numpy(), published_memory=memory["value"].to_numpy(),
        source=time["reference"].fillna("").to_numpy(),
        **{f"time.{q}": 1000 * found[f"seconds.{q}"] for q in ("q1", "q3")},
    )  # fmt: skip
    first = found.drop_duplicates("question").set_index("question").loc[found["question"]]
    over = found[["time", "memory", "published_time", "published_memory", "ratio"]]
    over = over.div(first[over.columns].to_numpy()).add_suffix("_over_first")
    # Two ratios to one softmax, which alternates with both, are better than two times.
    ratio = over.pop("ratio_over_first")
    same = found["reference"].fillna("").to_numpy() == first["reference"].fillna("").to_numpy()
    over["time_over_first"] = ratio.where(same | ratio.isna(), over["time_over_first"])
    return found.join(over)


def step_files(found: pd.DataFrame, suite: Suite) -> dict[str, bytes]:
    table = frame_csv(headed(found, CSV))
    return {f"{suite.name}.md": _page(found, suite).encode(), f"{suite.name}.csv": table}


def step_lines(found: pd.DataFrame) -> list[dict[Any, Any]]:
    return records(found, CSV)


def step_text(found: pd.DataFrame) -> str:
    corner = replace(ROW, heading="s/1K steps (published)")
    across = {name: str(name) for name in found["question"].unique()}

    def text(line: Line) -> str:
        published = line["published_time"]
        return _text(line, "time") + f" ({number(published)})" * (not np.isnan(published))

    shown = grid(found, corner, across, "question", text).terminal(WIDE)
    measured = found[found["status"].notna()]
    return "\n\n".join(filter(None, [shown, outdated_text(measured, "measurements")]))


def _page(found: pd.DataFrame, suite: Suite) -> str:
    measured = found[found["status"].notna()]
    failed = [f"{line['row']}, {line['question']}: {text}"
              for line in measured.to_dict("records") if (text := problem(line))]  # fmt: skip
    ratios = {"time": "ratio", "peak memory": "memory_ratio"}
    return rendered(
        "paper_costs.md.j2", suite=suite, of=measured.iloc[0].to_dict(), failed=failed,
        tables={title: _table(found, {"here": name, "published": f"published_{name}"})
                for title, name in TABLES.items()},
        over_softmax=_table(found, ratios), comparisons=[*_comparisons(found)],
        outdated=outdated_text(measured, "measurements"),
    )  # fmt: skip


def _text(line: Mapping[Any, Any], column: str) -> str:
    if column.startswith("published"):
        return number(line[column])
    if not isinstance(line["status"], str):
        return NOTHING
    return text_of(line, lambda of: number(of[column]))


def _table(found: pd.DataFrame, columns: Mapping[str, str]) -> str:
    questions = found["question"].unique()
    each = pd.concat([found.assign(of=name, key=found["question"] + "/" + name)
                      for name in columns.values()])  # fmt: skip
    across = {f"{question}/{name}": f"{question}, {what}"
              for question in questions for what, name in columns.items()}  # fmt: skip
    return grid(each, ROW, across, "key", lambda line: _text(line, line["of"])).markdown()


def _comparisons(found: pd.DataFrame) -> Iterator[tuple[str, str]]:
    for row, lines in found.groupby("row", sort=False):
        comparisons = []
        for name, column in (("time", "time"), ("peak memory", "memory")):
            ratios = (lines[column] / lines[f"published_{column}"]).dropna()
            if len(ratios):
                ends = dict.fromkeys(number(end) for end in (ratios.min(), ratios.max()))
                comparisons.append(f"{name} is {' to '.join(ends)} times")
        yield str(row), f"{' and '.join(comparisons)} the published one. " if comparisons else ""
