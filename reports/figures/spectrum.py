"""The figure of spectra: explained variance against rank, and effective rank through training."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from reports.figures import style
from reports.tables.spectrum import Group, Line

WIDTH, HEIGHT, LINE_HEIGHT = 6.8, 3.5, 0.165
"""Inches of a panel with its legend, and of a line of the legend."""

DASHES: tuple[Any, ...] = ("-", *style.DASHES)
"""Line styles of the layers, first to last; they repeat where there are more layers."""


def spectrum_figure(groups: Sequence[Group], source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(groups), "spectrum", source)


def draw(groups: Sequence[Group]) -> Figure:
    """Two panels for each group, up to `MOST_PANELS` in all."""
    panels = [*product(groups, (_explained, _effective_rank))][: style.MOST_PANELS]
    heights = [max(HEIGHT, 1 + LINE_HEIGHT * len(group.lines)) for group, _ in panels]
    figure, axes = style.panels(heights, WIDTH, 0)
    for panel, (group, fill) in zip(axes, panels, strict=True):
        style.heading(panel, group.title)
        shown = [line for line in group.lines if line.last.explained][: style.SLOTS]
        runs = [(line.record.spec.attention, _run(line)) for line in shown]
        styles = style.point_styles(dict.fromkeys(runs))
        handles = []
        for line in shown:
            colour, marker = styles[_run(line)]
            look = {"color": colour, "linestyle": DASHES[(line.number - 1) % len(DASHES)]}
            handles += fill(panel, line, {**look, "label": style.label(group.label(line))}, marker)
        style.legend(panel, handles)
    return figure


def _run(line: Line) -> str:
    return f"{line.record.spec.attention} {line.record.spec.id} {line.record.spec.seed}"


def _explained(axes: Axes, line: Line, look: dict[str, Any], marker: str) -> list[Any]:
    ranks, last = line.record.ranks, line.last
    pairs = [*zip(last.explained, last.explained_deviation, strict=True)]
    low, high = [m - d for m, d in pairs], [min(m + d, 1.0) for m, d in pairs]
    axes.fill_between(ranks, low, high, color=look["color"], alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    # The default formatter writes powers as formulas, which are not parsed.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rank, _: f"{rank:,.0f}"))
    axes.set(xlabel="rank", ylabel="explained variance", ylim=(0, 1.02))
    return axes.plot(ranks, last.explained, **look)


def _effective_rank(axes: Axes, line: Line, look: dict[str, Any], marker: str) -> list[Any]:
    values = [layer.effective_rank for layer in line.layers]
    axes.set(xlabel="steps", ylabel="effective rank")
    return axes.plot(line.steps, values, marker=marker, markersize=4, **look)  # type: ignore[arg-type]
