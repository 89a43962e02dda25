"""The mean of a suite against the time of its middle length: a point for each variant."""

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.records.families import colour_of
from reports.figures import style

if TYPE_CHECKING:
    from reports.pages.suite import Tables


def draw(of: "Tables") -> Figure:
    column = f"time.{of.suite.cost.longest_length}"
    shown = {form: table.loc[of.rows(form)].dropna(subset=["mean", column])
             for form, table in of.matrix.items()}  # fmt: skip
    figure, every = style.panels([4.6] * len(shown), 8.0)
    tasks = of.answers.loc[of.answers["text"] != "", "question"].nunique()
    for axes, rows in zip(every, shown.values(), strict=True):
        points(axes, rows, column)
        axes.set(ylabel=f"mean accuracy of {tasks} tasks, %", xlabel=(
            f"time of a training step at {of.suite.cost.longest_length:,} tokens, softmax = 1 (log)"
        ))  # fmt: skip
    return figure


def points(axes: Axes, rows: pd.DataFrame, column: str, *, beside: bool = False) -> None:
    # The names are beside the points, or `beside` the axes.
    times = rows[column].astype(float)
    low, high = times.min() / 1.4 if len(times) else 0.5, times.max() * 2 if len(times) else 2
    axes.set(xscale="log", xlim=(low, high))
    at = style.ticks(low, high)
    axes.set_xticks(at, [f"{tick:g}" for tick in at])
    axes.xaxis.set_minor_locator(NullLocator())
    last: list[tuple[float, float]] = []
    names = []
    span = max(float(rows["mean"].max() - rows["mean"].min()), 1.0) if len(rows) else 1.0
    for row, line in rows.sort_values("mean").iterrows():
        colour = colour_of(str(line["attention"]))
        axes.plot(line[column], line["mean"], "o", markersize=6, color=colour)
        if "mean.low" in line and line["mean.low"] == line["mean.low"]:
            ends = [line["mean.low"], line["mean.high"]]
            axes.plot([line[column]] * 2, ends, color=colour, linewidth=1, alpha=0.5)
        if beside:
            names.append((line[column], line["mean"], style.label(str(row)), colour))
            continue
        # A label moves up while it would cover one below it.
        y = line["mean"]
        while any(abs(x / line[column] - 1) < 0.45 and abs(of - y) < 0.035 * span
                  for x, of in last):  # fmt: skip
            y += 0.01 * span
        last.append((line[column], y))
        axes.annotate(style.label(str(row)), (line[column], y), (6, 0), va="center",
                      textcoords="offset points", fontsize=8.5, color=colour)  # fmt: skip
    # Labels that moved up are inside the axes.
    axes.set_ylim(top=max([axes.get_ylim()[1], *(y + 0.03 * span for _, y in last)]))
    style.end_labels(axes, names)
