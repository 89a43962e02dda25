"""The figure of KSVD in training: J^2 and the alignment against steps, seeds as bands."""

from collections.abc import Callable, Sequence
from itertools import product

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from harness.records.ksvd import KsvdCurve, KsvdState
from reports.figures import style
from reports.tables.ksvd import Group, alignment, groups, square

WIDTH, HEIGHT = 6.8, 3.5
"""Inches of a panel with its legend."""

SMALLEST = 1e-16
"""The smallest J^2 that is drawn: smaller ones are rounding errors."""


def squared_objective(state: KsvdState) -> float:
    """J^2, at least `SMALLEST`."""
    return max(square(state), SMALLEST)


VALUES: dict[str, Callable[[KsvdState], float]] = {
    "J²": squared_objective, "alignment": alignment,
}  # fmt: skip


def ksvd_figure(curves: Sequence[KsvdCurve], source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(curves), "ksvd", source)


def draw(curves: Sequence[KsvdCurve]) -> Figure:
    """Two panels for each group, up to `MOST_PANELS` in all."""
    panels = [*product(groups(curves), VALUES)][: style.MOST_PANELS]
    figure, axes = style.panels([HEIGHT] * len(panels), WIDTH, 0)
    for panel, (group, name) in zip(axes, panels, strict=True):
        style.heading(panel, group.title)
        _panel(panel, group, name)
    return figure


def _panel(axes: Axes, group: Group, name: str) -> None:
    handles, value = [], VALUES[name]
    for slot, line in enumerate(group.lines):
        colour, marker = style.style_of(slot)
        means, low, high = zip(*(line.at(step, value) for step in line.steps), strict=True)
        axes.fill_between(line.steps, low, high, color=colour, alpha=0.2, linewidth=0)
        handles += axes.plot(
            line.steps, means, color=colour, marker=marker, markersize=4, markevery=4,
            label=style.label(line.loss),
        )  # fmt: skip
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_minor_locator(NullLocator())
    # The default formatter writes powers as formulas, which are not parsed.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set(xlabel="steps", ylabel=name)
    if name == "alignment":
        line = axes.axhline(group.first.random, color=style.GREY, linewidth=1, label="random")
        line.set_linestyle(style.DASHES[0])
        handles.append(line)
        axes.set_ylim(0, 1.02)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{power:.0e}"))
    style.legend(axes, handles)
