"""Recall against the state, and recall, time and memory against tokens, of causal variants."""

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from harness.records.families import is_control
from reports.figures import plane, style
from reports.layer_costs import CAUSAL
from reports.pages.sentences import few_rows

if TYPE_CHECKING:
    from reports.pages.suite import Tables

COLUMNS = ("panel", "title", "attention", "row", "x", "y", "low", "high")
LENGTHS = 3  # Lengths of one number of pairs that a question needs

# Of the axes of each panel
LABELS = {
    "state": ("state after the last token of a sequence, bytes (log)", "{}, accuracy, %"),
    "recall": ("tokens (log)", "{}, accuracy, %"),
    "time": ("tokens (log)", "time of training a layer, softmax = 1 (log)"),
    "memory": ("tokens (log)", "memory of training a layer, softmax = 1 (log)"),
}


def lines(of: "Tables") -> pd.DataFrame:
    """The points of the figure of the first causal question with probes of one size at lengths.

    Returns:
        A line for each point: `panel` (`state`, `recall`, `time` or `memory`), `title`,
        `attention`, `row`, `x` (bytes, or tokens), `y` (percent, or softmax = 1) and its interval,
        `low` and `high`. Empty where no question has such probes.
    """
    for question in of.suite.questions:
        probes = of.probes[of.probes["question"] == question.name]
        sizes = probes["probe"].str.extract(r"^(?P<pairs>\d+) pairs in (?P<x>\d+)").dropna()
        counts = sizes.drop_duplicates().groupby("pairs").size()
        chosen = counts[counts >= LENGTHS].index
        if of.forms[question.name] == CAUSAL and len(chosen):
            at = sizes.loc[sizes["pairs"].isin(chosen[:1]), "x"].astype(float)
            recall = probes.loc[at.index].assign(panel="recall", x=at, y=probes["mean"])
            # The most pairs are the ones that the state limits.
            most = sizes.iloc[int(sizes["pairs"].astype(int).argmax())]
            state = probes[probes["probe"] == f"{most['pairs']} pairs in {most['x']}"]
            titled = {f"{question.title}, {chosen[0]} pairs": recall,
                      f"{question.title}, {most['pairs']} pairs in {most['x']}": state}  # fmt: skip
            return _joined(of, *(part.assign(title=name) for name, part in titled.items()))
    return pd.DataFrame(columns=[*COLUMNS])


def _joined(of: "Tables", recall: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    table, ran = of.matrix[CAUSAL], {*recall["row"]}
    controls = {*table.index[table["attention"].map(is_control).astype(bool)]}
    rows = [row for row in few_rows(of, CAUSAL) if row in ran - controls]
    parts = [
        answers.assign(
            panel="state", x=answers["row"].map(table["state_bytes"].astype(float)),
            y=answers["mean"],
        ),
        recall[recall["row"].isin(rows)],
    ]  # fmt: skip
    for panel in ("time", "memory"):
        for length in sorted(of.suite.cost.lengths):
            values = table[f"{panel}.{length}"].astype(float).reindex(rows)
            parts.append(pd.DataFrame({
                "panel": panel, "title": panel, "row": values.index, "x": float(length),
                **dict.fromkeys(("y", "low", "high"), values.to_numpy()),
            }))  # fmt: skip
    found = pd.concat(parts).dropna(subset=["x", "y"])
    found = found[found["x"] > 0]  # A log axis has no place for a model without a state
    found["attention"] = found["row"].map(table["attention"])
    order = found["row"].map({row: place for place, row in enumerate(of.rows(CAUSAL))})
    found = found.assign(order=order).dropna(subset="order")
    found = found.sort_values(["order", "x"], kind="stable")
    return found[[*COLUMNS]].reset_index(drop=True)


def draw(found: pd.DataFrame) -> Figure:
    titles = found.drop_duplicates("panel").set_index("panel")["title"]
    order = [*found["row"].unique()]
    # Without costs there are neither states nor times.
    shown = [panel for panel in LABELS if panel in titles]
    figure, every = style.panels([4.2] * len(shown), 6.2)
    for axes, panel in zip(every, shown, strict=True):
        part = found[found["panel"] == panel]
        xlabel, ylabel = LABELS[panel]
        axes.set(xlabel=xlabel, ylabel=ylabel.format(titles[panel]))
        if panel == "state":
            plane.points(
                axes, part.set_index("row").rename(columns={"y": "mean"}), "x", beside=True
            )
            continue
        style.draw_rows(axes, part, "x", "y", order)
        axes.set(xscale="log")
        style.token_ticks(axes, sorted(part["x"].unique()), log=panel != "recall")
    return figure
