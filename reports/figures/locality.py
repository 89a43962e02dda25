"""The figure of locality studies: accuracy against the tokens that attention reaches."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style
from reports.tables.boards import Row
from reports.tables.locality import Curve, Study

WIDTH, HEIGHT = 6.8, 3.9
"""Inches of a panel with its legend."""

SHIFT = 0.06
"""Ticks between two curves at one number of tokens, so that neither covers the other."""


def locality_figure(found: Sequence[Study]) -> dict[str, bytes]:
    """The curves as PNG and SVG, by file name."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(found), "locality")


def draw(found: Sequence[Study]) -> Figure:
    """A panel for each study."""
    figure, axes = style.panels([HEIGHT] * len(found), WIDTH, 0)
    for panel, study in zip(axes, found, strict=True):
        style.heading(panel, study.title)
        _panel(panel, study)
    return figure


def _panel(axes: Axes, study: Study) -> None:
    handles, missing = [], {}
    for number, curve in enumerate(study.curves):
        shift = SHIFT * (number - (len(study.curves) - 1) / 2)
        points = _points(study, curve)
        drawn = {x + shift: row.accuracy for x, row in points.items() if row.accuracy}
        means = [100 * of.mean for of in drawn.values()]
        below = [100 * (of.mean - of.low) for of in drawn.values()]
        above = [100 * (of.high - of.mean) for of in drawn.values()]
        handles.append(
            axes.errorbar(
                list(drawn), means, (below, above), capsize=3, label=style.label(curve.name),
                color=style.COLOURS[1 + number % 7], marker=style.MARKERS[number % 8],
            )
        )  # fmt: skip
        missing |= {f"{curve.name}, {_ticks(study)[x]}: {row.failures}": None
                    for x, row in points.items() if not row.accuracy}  # fmt: skip
    ticks = _ticks(study)
    axes.set_xticks(range(len(ticks)), ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="tokens", ylabel="test accuracy, %", xlim=(-0.3, len(ticks) - 0.7))
    style.legend(axes, [*handles, *style.draw_baselines(axes, study.baselines)])
    if missing:
        style.note(axes, f"Not shown: {'; '.join(missing)}")


def _ticks(study: Study) -> list[str]:
    return [*map(str, study.tokens), "all"]


def _points(study: Study, curve: Curve) -> dict[int, Row]:
    """The rows of a curve by the index of their tick."""
    points = {i: curve.rows[n] for i, n in enumerate(study.tokens) if n in curve.rows}
    return points | ({len(study.tokens): curve.full} if curve.full else {})
