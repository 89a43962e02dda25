"""Texts of a panel, put where a box is."""

from matplotlib.axes import Axes
from matplotlib.text import Text

from reports.labels import Box


def put(axes: Axes, text: Text, box: Box) -> Box:
    """Put the text where the box is, in parts of the panel so that it holds at any resolution."""
    now = text.get_window_extent()
    x, y = text.get_transform().transform(text.get_position())
    moved = (x + box.left - now.x0, y + box.bottom - now.y0)
    text.set_transform(axes.transAxes)
    text.set_position(tuple(axes.transAxes.inverted().transform(moved)))
    return box
