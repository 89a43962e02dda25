"""The figure of a reproduced table of results: each interval beside the published number."""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import style
from reports.tables.reproduced_results import Result, Results

WIDTH, HEIGHT, LINE = 5.0, 1.4, 0.25
"""Inches: the width of a panel, its height without rows, and the height of a row."""


def results_figure(results: Results, name: str, source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(results), name, source)


def draw(results: Results) -> Figure:
    """A panel for each data set that is present, a line for each variant."""
    names = list(results.present)[: style.MOST_PANELS]
    height = HEIGHT + LINE * len(results.attentions)
    figure, axes = style.panels([height] * len(names), WIDTH, 0)
    for panel, name in zip(axes, names, strict=True):
        style.heading(panel, name)
        _panel(panel, [one for one in results.all if one.data_set == name])
    return figure


def _panel(axes: Axes, shown: list[Result]) -> None:
    missing = []
    for position, one in enumerate(shown):
        if one.ends:
            mean, low, high = one.ends
            axes.errorbar(mean, position, xerr=[[mean - low], [high - mean]], capsize=3,
                          color=style.COLOURS[0], marker="o")  # fmt: skip
        elif one.row:
            missing.append(f"{one.attention}: {one.text}")
        if one.value is not None:
            axes.plot(one.value, position, color=style.GREY, marker="D", linestyle="none")
    axes.set_yticks(range(len(shown)), [style.label(one.attention) for one in shown])
    label = next((f"test {one.row.metric.title}" for one in shown if one.row), "")
    axes.set(xlabel=label, ylim=(len(shown) - 0.5, -0.5))
    entries = [
        Line2D([], [], color=style.COLOURS[0], marker="o", label="here"),
        Line2D([], [], color=style.GREY, marker="D", linestyle="none", label="published"),
    ]
    style.legend(axes, entries)
    style.not_shown(axes, missing)
