"""The figure of cost sweeps: time and memory of one sample against its tokens, both logarithmic."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
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
    """Two panels for each sweep with a measured cell, up to `MOST_PANELS` in all."""
    measured = [sweep for sweep in sweeps if any(row.measured for row in sweep.rows)]
    shown = measured[: style.MOST_PANELS // 2]
    figure, axes = style.panels([HEIGHT] * 2 * len(shown), WIDTH, 0)
    for number, panel in enumerate(axes):
        sweep, (name, values) = shown[number // 2], COSTS[number % 2]
        style.heading(panel, sweep.title.replace(": ", ", ", 1))
        _panel(panel, sweep, name, values)
    return figure


def _panel(axes: Axes, sweep: Sweep, name: str, values: Values) -> None:
    styles = style.point_styles(
        (next(iter(row.cells.values())).spec.attention, row.label) for row in sweep.rows
    )
    handles, missing = [], []
    for row in sweep.rows:
        points = values(row)
        missing += row.remarks
        colour, marker = styles[row.label]
        (line,) = axes.plot([*points], [*points.values()], color=colour, marker=marker,
                            label=style.label(row.label))  # fmt: skip
        handles.append(line)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    # The default formatter writes powers as formulas, which are not parsed.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="tokens", ylabel=name)
    style.legend(axes, handles)
    style.not_shown(axes, missing)
