"""The figure of training: loss and score on dev against steps and seconds, seeds as bands."""

from collections.abc import Sequence
from itertools import product

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.tables.boards import Board
from reports.tables.curves import curve, dev, loss

WIDTH, HEIGHT, LINE_HEIGHT = 6.8, 3.5, 0.165
"""Inches of a panel with its legend, and of a line of the legend."""

MARKS = 8
"""Markers of a line, about."""

VALUES = {"loss": loss, "dev": dev}
AXES = {"steps": "step", "seconds of training": "seconds"}
"""What panels show, and against what: a field of `Place`."""


def curves_figure(boards: Sequence[Board], source: str) -> dict[str, bytes]:
    """The curves as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(boards), "curves", source)


def draw(boards: Sequence[Board]) -> Figure:
    """Four panels for each board, up to `MOST_PANELS` in all."""
    panels = [panel for board in boards for panel in product([board], VALUES, AXES)][
        : style.MOST_PANELS
    ]
    heights = [max(HEIGHT, 1 + LINE_HEIGHT * len(board.rows)) for board, _, _ in panels]
    figure, axes = style.panels(heights, WIDTH, 0)
    for panel, (board, value, against) in zip(axes, panels, strict=True):
        style.heading(panel, board.title)
        _panel(panel, board, value, against)
    return figure


def _panel(axes: Axes, board: Board, value: str, against: str) -> None:
    rows, handles = board.rows[: style.SLOTS], []
    styles = style.point_styles((row.spec.attention, row.label) for row in rows)
    for row in rows:
        places = curve(row, VALUES[value])
        x = [getattr(place, AXES[against]) for place in places]
        colour, marker = styles[row.label]
        handles += axes.plot(
            x, [place.mean for place in places], color=colour, marker=marker, markersize=4,
            markevery=max(1, len(x) // MARKS), label=style.label(row.label),
        )  # fmt: skip
        low, high = [place.low for place in places], [place.high for place in places]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    title = board.rows[0].runs[0].selection.title
    axes.set(xlabel=against, ylabel=f"dev {title}" if value == "dev" else value)
    style.legend(axes, handles)
