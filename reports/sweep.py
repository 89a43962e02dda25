"""The score of each row against one option, and against the state of decoding."""

import json
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style
from reports.leaderboard import metric_of, results_of, rows_of, selected_of
from reports.markdown import escape, rendered
from reports.shown import questions
from reports.table import ROW, grid
from reports.text import NOTHING, outdated_text, whole, whole_text

COLUMNS = [
    "question", "attention", "row", "field", "value", "seeds", "metric", "mean", "low", "high",
    "state_bytes", "failures",
]  # fmt: skip


def files(
    runs: pd.DataFrame, baselines: pd.DataFrame, field: str, default: object = None
) -> dict[str, bytes]:
    found = sweeps(runs, baselines, field, default)
    if found.empty:
        raise ValueError(f"no two runs of the store differ in {field} alone")
    name = f"sweep_{field.replace('.', '_')}"
    sections = [_section(swept) for _, swept in found.groupby("question")]
    note = outdated_text(found, "results")
    page = rendered("sweep.md.j2", field=field, sections=sections, outdated=note)
    table = style.table_with_images(name, found[COLUMNS], draw, found)
    return {f"{name}.md": page.encode(), **table}


def sweeps(
    runs: pd.DataFrame, baselines: pd.DataFrame, field: str, default: object = None
) -> pd.DataFrame:
    # `baselines` are complete and of one version, `field` is the option, as `task.pairs`, and
    # `default` the value of runs of a variant whose record leaves it out.
    values = values_of(runs, field, default)
    swept = selected_of(
        questions(runs.assign(value=values)[values.notna()], field), "value"
    ).sort_values("started")
    # Of a run in both precisions, the later one.
    swept = swept.drop_duplicates(["question", "row", "value", "seed"], keep="last")
    if len(swept):
        swept = swept[swept.groupby("question")["value"].transform("nunique") > 1]
    if swept.empty:
        return swept
    # Rows are made as in a leaderboard with a question for each value.
    place = swept.groupby(["question", "value"], sort=False).ngroup().map(str)
    found = rows_of(results_of(swept.assign(question=place), baselines)).drop(columns="seeds")
    found = found.rename(columns={"question": "place", "status": "failures", "runs": "seeds"})
    places = swept[["question", "value"]].assign(place=place).drop_duplicates("place")
    found = found.merge(places, on="place")
    rules = baselines.rename(columns={"name": "rule", "score": "rule_score"})
    higher = (found["better"] == "higher").all()
    rules = rules.sort_values("rule_score", ascending=not higher).drop_duplicates("data")
    found = found.merge(rules[["data", "rule", "rule_score"]], on="data", how="left")
    found = found.assign(field=field, order=found["value"].map(_order))
    return found.sort_values(["question", "row", "order"], ignore_index=True)


def values_of(runs: pd.DataFrame, field: str, default: object = None) -> pd.Series:
    owner, _, option = field.partition(".")

    def value(run: Mapping[Hashable, Any]) -> object:
        is_task = owner in ("task", run["task.name"])
        found = whole(run.get(f"task.{option}" if is_task else field))
        if found is not None and found == found:
            return found
        return default if owner in json.loads(run["options"]) else None

    return pd.Series([value(run) for run in runs.to_dict("records")], runs.index, dtype=object)


def draw(found: pd.DataFrame) -> Figure:
    return style.draw_panels([
        (str(title), partial(_panel, swept=swept, plot=plot), swept["row"].nunique())
        for title, swept in found.groupby("question")
        for plot in (_values, *([_states] if swept["state_bytes"].gt(0).any() else []))
    ])  # fmt: skip


def _panel(axes: Axes, swept: pd.DataFrame, plot: Callable[..., None]) -> None:
    ascending = [False, swept["better"].iloc[0] != "higher"]
    last = swept.sort_values(["order", "mean"], ascending=ascending)
    plot(axes, swept, [*last["row"].unique()])
    axes.set_ylabel(f"test {metric_of(swept).title}")


def _values(axes: Axes, swept: pd.DataFrame, order: list[str]) -> None:
    values = _in_order(swept)
    # Rows are shifted by a part of a tick, so that their intervals do not overlap.
    shifts = 0.04 * (swept["row"].map(order.index) - (len(order) - 1) / 2)
    points = swept.assign(x=swept["value"].map(values.index) + shifts)
    style.draw_rows(axes, points, "x", "mean", order, bars=True)
    strongest = swept.drop_duplicates("value").set_index("value")["rule_score"].reindex(values)
    axes.plot(range(len(values)), strongest, color=style.GREY, linestyle="--",
              label="strongest baseline")  # fmt: skip
    axes.set_xticks(range(len(values)), [style.label(str(value)) for value in values])
    axes.set(xlabel=style.label(swept["field"].iloc[0]), xlim=(-0.4, len(values) - 0.6))
    missing = swept.loc[swept["text"] == "", ["row", "value", "failures"]]
    reasons = [f"{row} at {value}: {failures}" for row, value, failures in missing.to_numpy()]
    style.not_shown(axes, reasons)


def _states(axes: Axes, swept: pd.DataFrame, order: list[str]) -> None:
    swept = swept[swept["state_bytes"] > 0].sort_values("state_bytes")
    style.draw_rows(axes, swept, "state_bytes", "mean", order, bars=True)
    axes.set(xscale="log", xlabel="state of decoding, bytes (log)")
    # Powers of two that include both ends, about six of them.
    first = int(math.log2(swept["state_bytes"].min()))
    last = math.ceil(math.log2(swept["state_bytes"].max()))
    ticks = [2**power for power in range(first, last + 1, 1 + (last - first) // 6)]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _section(swept: pd.DataFrame) -> dict[str, Any]:
    values, corner = _in_order(swept), replace(ROW, heading=swept["field"].iloc[0])
    across = {value: str(value) for value in values}
    recurrent = swept[swept.groupby("row")["state_bytes"].transform("count") > 0]
    states = grid(recurrent, corner, across, "value", lambda of: whole_text(of["state_bytes"]))
    rules = swept.drop_duplicates("value").set_index("value").reindex(values)
    metric = metric_of(swept)
    strongest = [
        NOTHING if pd.isna(score) else f"*{metric.text(score)} {escape(rule)}*"
        for rule, score in rules[["rule", "rule_score"]].itertuples(index=False)
    ]
    return {
        "title": swept["question"].iloc[0], "setting": swept["setting"].iloc[0],
        "metric": metric.title,
        "scores": grid(swept, corner, across, "value", _text)
        .markdown(["*strongest baseline*", *strongest]),
        "states": states.markdown() if states.lines else "",
    }  # fmt: skip


def _text(line: Mapping[Hashable, Any]) -> str:
    score = f"{line['text']} {line['interval']}".strip()
    seed = "1 seed" if line["text"] and line["seeds"] == 1 else ""
    return "; ".join(filter(None, [score, seed, line["failures"]]))


def _in_order(swept: pd.DataFrame) -> list[object]:
    return [*swept.sort_values("order")["value"].unique()]


def _order(value: object) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)
