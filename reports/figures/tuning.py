"""The figure of trials: accuracy on dev against the first field of the grid."""

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
    """The highest accuracy at each value of the first field, over the values of all others."""
    field = next(iter(study.points[0]))
    values = list(dict.fromkeys(place[field] for place in study.points))
    curves = sorted(study.curves, key=_best, reverse=True)
    styles = style.point_styles((curve.attention, curve.label) for curve in curves)
    handles, missing = [], []
    for curve in curves[: style.SLOTS]:
        highest = [_highest(study, curve, field, value) for value in values]
        places = [place for place, accuracy in enumerate(highest) if accuracy is not None]
        accuracies = [100 * accuracy for accuracy in highest if accuracy is not None]
        colour, marker = styles[curve.label]
        handles += axes.plot(places, accuracies, color=colour, marker=marker,
                             label=style.label(curve.label))  # fmt: skip
        missing += [] if places else [curve.label]
    axes.set_xticks(range(len(values)), [style.label(str(value)) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=field_text(field), ylabel="dev accuracy, %", xlim=(-0.3, len(values) - 0.7))
    style.legend(axes, handles)
    style.not_shown(axes, [f"{label}: no trial finished" for label in missing])


def _highest(study: Study, curve: Curve, field: str, value: object) -> float | None:
    places = (place for place in study.points if place[field] == value)
    accuracies = [accuracy for place in places if (accuracy := curve.accuracy(place)) is not None]
    return max(accuracies, default=None)


def _best(curve: Curve) -> float:
    return curve.chosen.final.dev_score if curve.chosen and curve.chosen.final else -inf
