"""The figure of sweeps: accuracy against an option, and against the bytes of the state."""

import math
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style
from reports.tables.rows import Row
from reports.tables.scores import axis_label, shown, shown_ends
from reports.tables.sweep import Curve, Sweep, state_bytes

WIDTH, HEIGHT, LINE_HEIGHT = 6.8, 3.9, 0.165
"""Inches of a panel with its legend, and of a line of the legend."""

MOST_TICKS = 6
"""Ticks of the axis of bytes, about."""

SHIFT = 0.04
"""Horizontal shift between two curves, in ticks, so that their intervals do not overlap."""


def sweep_figure(sweeps: Sequence[Sweep], name: str, source: str) -> dict[str, bytes]:
    """The curves as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(sweeps), name, source)


def draw(sweeps: Sequence[Sweep]) -> Figure:
    """A panel for each sweep, and one of the state where models have one; up to `MOST_PANELS`."""
    panels = [
        (sweep, panel)
        for sweep in sweeps
        for panel in (_values, *([_states] if any(map(_recurrent, sweep.curves)) else []))
    ][: style.MOST_PANELS]
    heights = [max(HEIGHT, 1 + LINE_HEIGHT * len(sweep.curves)) for sweep, _ in panels]
    figure, axes = style.panels(heights, WIDTH, 0)
    for own, (sweep, panel) in zip(axes, panels, strict=True):
        style.heading(own, sweep.title)
        panel(own, sweep)
        own.set_ylabel(axis_label(sweep.metric))
    return figure


def _values(axes: Axes, sweep: Sweep) -> None:
    curves, missing = _ordered(sweep)[: style.SLOTS], []
    for number, curve in enumerate(curves):
        shift = SHIFT * (number - (len(curves) - 1) / 2)
        rows = [(sweep.values.index(value) + shift, row) for value, row in curve.rows.items()]
        _draw(axes, sweep, curve, rows)
        missing += [
            f"{curve.label} at {value}: {row.failures}"
            for value, row in curve.rows.items()
            if not row.score
        ]
    strongest = [
        shown(own[0][1], sweep.metric) if own else math.nan for own in sweep.baselines.values()
    ]
    axes.plot(range(len(strongest)), strongest, color=style.GREY, linestyle="--",
              label="strongest baseline")  # fmt: skip
    axes.set_xticks(range(len(sweep.values)), [style.label(str(v)) for v in sweep.values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=style.label(sweep.field), xlim=(-0.4, len(sweep.values) - 0.6))
    style.legend(axes, axes.get_legend_handles_labels()[0])
    style.not_shown(axes, missing)


def _states(axes: Axes, sweep: Sweep) -> None:
    all_sizes = []
    for curve in filter(_recurrent, _ordered(sweep)[: style.SLOTS]):
        sizes = [(state_bytes(row), row) for row in curve.rows.values()]
        rows = sorted(((size, row) for size, row in sizes if size), key=lambda pair: pair[0])
        _draw(axes, sweep, curve, rows)
        all_sizes += [size for size, _ in rows]
    axes.set(xscale="log", xlabel="state of decoding, bytes (log)")
    ticks = _powers(min(all_sizes), max(all_sizes))
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    style.legend(axes, axes.get_legend_handles_labels()[0])


def _draw(axes: Axes, sweep: Sweep, curve: Curve, rows: Sequence[tuple[float, Row]]) -> None:
    """Draw the values of a curve with their intervals; `rows` are its rows with their x."""
    styles = style.point_styles((own.attention, own.label) for own in _ordered(sweep))
    points = [(x, *shown_ends(row.score, row.metric)) for x, row in rows if row.score]
    x, means, low, high = zip(*points, strict=True) if points else ((), (), (), ())
    below = [mean - end for mean, end in zip(means, low, strict=True)]
    above = [end - mean for mean, end in zip(means, high, strict=True)]
    colour, marker = styles[curve.label]
    axes.errorbar(x, means, (below, above), capsize=3, color=colour, marker=marker,
                  label=style.label(curve.label))  # fmt: skip


def _powers(low: float, high: float) -> list[int]:
    """Powers of two that include both ends, few enough to be read."""
    first, last = int(math.log2(low)), math.ceil(math.log2(high))
    return [2**power for power in range(first, last + 1, 1 + (last - first) // MOST_TICKS)]


def _recurrent(curve: Curve) -> bool:
    return any(state_bytes(row) for row in curve.rows.values())


def _ordered(sweep: Sweep) -> list[Curve]:
    """The curves in order of their score at the last value, the best first."""
    last = [(curve, curve.rows.get(sweep.values[-1])) for curve in sweep.curves]
    scores = {curve.label: row.score.mean for curve, row in last if row and row.score}
    return sorted(sweep.curves, key=lambda curve: -scores.get(curve.label, -math.inf))
