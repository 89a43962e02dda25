"""The figure of a reproduced table of accuracies: each interval beside the published number."""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import style
from reports.tables.reproduced_accuracy import Result, Results

WIDTH, HEIGHT, LINE = 5.0, 1.4, 0.25
"""Inches: the width of a panel, its height without rows, and the height of a row."""


def accuracy_figure(results: Results, name: str, source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(results), name, source)


def draw(results: Results) -> Figure:
    """A panel for each task whose data are here, a line for each variant."""
    tasks = list(results.tasks)[: style.MOST_PANELS]
    height = HEIGHT + LINE * len(results.attentions)
    figure, axes = style.panels([height] * len(tasks), WIDTH, 0)
    for panel, task in zip(axes, tasks, strict=True):
        style.heading(panel, results.tasks[task])
        _panel(panel, [one for one in results.all if one.task == task])
    return figure


def _panel(axes: Axes, shown: list[Result]) -> None:
    missing = []
    for place, one in enumerate(shown):
        if one.row and one.row.accuracy:
            mean, low, high = (100 * value for value in one.row.accuracy[:3])
            axes.errorbar(mean, place, xerr=[[mean - low], [high - mean]], capsize=3,
                          color=style.COLOURS[0], marker="o")  # fmt: skip
        elif one.row:
            missing.append(f"{one.attention}: {one.text}")
        if one.value is not None:
            axes.plot(one.value, place, color=style.GREY, marker="D", linestyle="none")
    axes.set_yticks(range(len(shown)), [style.label(one.attention) for one in shown])
    axes.set(xlabel="test accuracy, %", ylim=(len(shown) - 0.5, -0.5))
    entries = [
        Line2D([], [], color=style.COLOURS[0], marker="o", label="here"),
        Line2D([], [], color=style.GREY, marker="D", linestyle="none", label="published"),
    ]
    style.legend(axes, entries)
    style.not_shown(axes, missing)
