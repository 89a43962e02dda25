"""The figure of trials: the score on dev against the first field of the grid."""

from collections.abc import Sequence
from math import inf

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style
from reports.tables.settings import field_text
from reports.tables.tuning import Curve, Study

WIDTH, HEIGHT, LINE_HEIGHT = 6.8, 3.7, 0.165
"""Inches of a panel with its legend, and of a line of the legend."""


def tuning_figure(studies: Sequence[Study]) -> dict[str, bytes]:
    """The curves as PNG and SVG, by file name."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(studies), "tuning")


def draw(studies: Sequence[Study]) -> Figure:
    """A panel for each study, up to `MOST_PANELS`."""
    panels = studies[: style.MOST_PANELS]
    heights = [max(HEIGHT, 1 + LINE_HEIGHT * len(study.curves)) for study in panels]
    figure, axes = style.panels(heights, WIDTH, 0)
    for panel, study in zip(axes, panels, strict=True):
        style.heading(panel, study.title)
        _panel(panel, study)
    return figure


def _panel(axes: Axes, study: Study) -> None:
    """The best score at each value of the first field, over the values of all others."""
    field = next(iter(study.points[0]))
    values = list(dict.fromkeys(place[field] for place in study.points))
    curves = sorted(study.curves, key=_chosen, reverse=True)
    styles = style.point_styles((curve.attention, curve.label) for curve in curves)
    handles, missing = [], []
    for curve in curves[: style.SLOTS]:
        best = [_best(study, curve, field, value) for value in values]
        places = [place for place, score in enumerate(best) if score is not None]
        scores = [score for score in best if score is not None]
        colour, marker = styles[curve.label]
        handles += axes.plot(places, scores, color=colour, marker=marker,
                             label=style.label(curve.label))  # fmt: skip
        missing += [] if places else [curve.label]
    axes.set_xticks(range(len(values)), [style.label(str(value)) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    label = f"dev {study.curves[0].metric.title}"
    axes.set(xlabel=field_text(field), ylabel=label, xlim=(-0.3, len(values) - 0.7))
    style.legend(axes, handles)
    style.not_shown(axes, [f"{label}: no trial finished" for label in missing])


def _best(study: Study, curve: Curve, field: str, value: object) -> float | None:
    places = (place for place in study.points if place[field] == value)
    scores = [score for place in places if (score := curve.score(place)) is not None]
    return max(scores, key=lambda score: curve.metric.sign * score, default=None)


def _chosen(curve: Curve) -> float:
    final = curve.chosen.final if curve.chosen else None
    return curve.metric.sign * final.dev if final else -inf
