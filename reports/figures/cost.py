"""The figure of cost sweeps: time and memory of one sample against its tokens, both logarithmic."""

import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from reports.figures import style
from reports.tables.cost import CostRow, Sweep
from reports.tables.values import MIB

WIDTH, HEIGHT = 6.8, 4.6
"""Inches of a panel with its legend."""

Values = Callable[[CostRow], Mapping[int, float]]


def _milliseconds(row: CostRow) -> Mapping[int, float]:
    return row.per_sample(lambda cell: 1000 * cell.seconds.median)


def _mebibytes(row: CostRow) -> Mapping[int, float]:
    return {length: memory / MIB for length, memory in row.memory_per_sample.items()}


COSTS: tuple[tuple[str, Values], ...] = (
    ("milliseconds per sample", _milliseconds),
    ("memory per sample, MiB", _mebibytes),
)


def cost_figure(sweeps: Sequence[Sweep], source: str) -> dict[str, bytes]:
    """The curves as PNG and SVG, by file name; both contain `source`."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(sweeps), "cost", source)


def draw(sweeps: Sequence[Sweep]) -> Figure:
    """Two panels for each sweep of three lengths or more, up to `MOST_PANELS` in all."""
    measured = [sweep for sweep in sweeps if len(_lengths(sweep)) > 2]
    shown = measured[: style.MOST_PANELS // 2]
    figure, axes = style.panels([HEIGHT] * 2 * len(shown), WIDTH, 0)
    for number, panel in enumerate(axes):
        sweep, (name, values) = shown[number // 2], COSTS[number % 2]
        style.heading(panel, sweep.title.replace(": ", ", ", 1))
        _panel(panel, sweep, name, values)
    return figure


def _lengths(sweep: Sweep) -> set[int]:
    return {length for row in sweep.rows for length in row.measured}


def _panel(axes: Axes, sweep: Sweep, name: str, values: Values) -> None:
    """The rows in order of their cost at the longest length, the cheapest first."""
    longest = max(_lengths(sweep))
    points = {row.label: values(row) for row in sweep.rows}
    rows = sorted(sweep.rows, key=lambda row: points[row.label].get(longest, math.inf))
    styles = style.point_styles((row.name, row.label) for row in rows)
    handles = []
    for row in rows:
        colour, marker = styles[row.label]
        costs, grey = points[row.label], colour == style.FAINT
        handles += axes.plot([*costs], [*costs.values()], color=colour, marker=marker,
                             zorder=2 - grey, label=style.label(row.label))  # fmt: skip
        crossing = row.time_crossover if values is _milliseconds else row.memory_crossover
        if crossing and not grey and 0 < crossing.low <= crossing.high < math.inf:
            length = (crossing.low * crossing.high) ** 0.5
            cost = math.exp(np.interp(math.log(length), *np.log([[*costs], [*costs.values()]])))
            axes.plot(length, cost, "*", color=colour, markersize=13, markeredgecolor="black")
    handles.append(Line2D([], [], color="white", marker="*", markersize=11, linestyle="",
                          markeredgecolor="black", label="below softmax from here on"))  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=name)
    axes.set_xticks(sorted(_lengths(sweep)))
    axes.set_yticks(style.ticks(*axes.get_ylim()))
    # The default formatter writes powers as formulas, which are not parsed.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    style.legend(axes, handles)
    style.not_shown(axes, [reason for row in rows for reason in row.failures])
