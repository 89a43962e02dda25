"""The figure of locality studies: accuracy against the tokens that attention reaches."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style
from reports.tables.locality import Study

WIDTH, HEIGHT = 6.8, 3.9
"""Inches of a panel with its legend."""

SHIFT = 0.06
"""Horizontal shift between two curves, in ticks, so that their points do not overlap."""


def locality_figure(studies: Sequence[Study]) -> dict[str, bytes]:
    """The curves as PNG and SVG, by file name."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(studies), "locality")


def draw(studies: Sequence[Study]) -> Figure:
    """A panel for each study, up to `MOST_PANELS`."""
    panels = studies[: style.MOST_PANELS]
    figure, axes = style.panels([HEIGHT] * len(panels), WIDTH, 0)
    for panel, study in zip(axes, panels, strict=True):
        style.heading(panel, study.title)
        _panel(panel, study)
    return figure


def _panel(axes: Axes, study: Study) -> None:
    handles, missing, positions = [], [], list(study.ticks)
    for number, curve in enumerate(study.curves):
        shift = SHIFT * (number - (len(study.curves) - 1) / 2)
        points = []
        for tokens, row in sorted(curve.rows.items()):
            if row.score:
                mean, low, high = row.score[:3]
                points.append((positions.index(tokens) + shift, mean, mean - low, high - mean))
            else:
                missing.append(f"{curve.name}, {study.ticks[tokens]}: {row.failures}")
        x, means, below, above = zip(*points, strict=True) if points else ((), (), (), ())
        colour, marker = style.style_of(number)
        handles.append(axes.errorbar(x, means, (below, above), capsize=3, color=colour,
                                     marker=marker, label=style.label(curve.name)))  # fmt: skip
    axes.set_xticks(range(len(positions)), list(study.ticks.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(
        xlabel="tokens", ylabel=f"test {study.metric.title}", xlim=(-0.3, len(positions) - 0.7)
    )
    style.legend(axes, [*handles, *style.draw_baselines(axes, study.baselines, study.metric)])
    style.not_shown(axes, missing)
