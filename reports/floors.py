"""Floors of one panel: a line each, and its name beside it where that covers nothing."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.text import Text

from reports.labels import Box, Scene, choose
from reports.texts import put

QUIET = "#6f6f6f"
"""Colour of what stands behind the figures: axes, floors, small print."""

Floors = Sequence[tuple[str, float]]
"""Accuracies in [0, 1] by name, the highest first."""


def draw(axes: Axes, baselines: Floors) -> None:
    """Draw a line across the panel for each."""
    for _, floor in baselines:
        axes.axhline(100 * floor, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)


def lines(axes: Axes, baselines: Floors) -> list[Box]:
    """What the lines cover, in pixels."""
    frame, point = axes.get_window_extent(), axes.figure.dpi / 72
    heights = [axes.transData.transform((1, 100 * floor))[1] for _, floor in baselines]
    return [Box(frame.x0, y - point, frame.x1, y + point) for y in heights]


def label(axes: Axes, baselines: Floors, scene: Scene) -> list[Box]:
    """Write every name, once the panel has its final size; return what they cover, in pixels."""
    taken: list[Box] = []
    for name, floor in _merged(baselines):
        text = axes.text(0, 0, name, color=QUIET, fontsize=7.5)
        now = scene._replace(boxes=[*scene.boxes, *taken])
        taken.append(put(axes, text, choose(_along(axes, text, floor), now)))
    return taken


def _merged(baselines: Floors) -> list[tuple[str, float]]:
    """Floors with their value written out; those that read the same are named together."""
    by_text = groupby(baselines, key=lambda floor: f"{100 * floor[1]:.1f} %")
    groups = [(text, list(group)) for text, group in by_text]
    return [(f"{', '.join(n for n, _ in group)} {text}", group[0][1]) for text, group in groups]


def _along(axes: Axes, text: Text, floor: float) -> list[Box]:
    """Places for a floor's name: at either end of its line or between, above or below it."""
    frame, size, point = axes.get_window_extent(), text.get_window_extent(), axes.figure.dpi / 72
    _, y = axes.transData.transform((1, 100 * floor))
    free = frame.width - size.width - 8 * point
    lefts = [frame.x0 + 4 * point + free * part for part in (1, 0, 0.5, 0.75, 0.25)]
    bottoms = (y + 3 * point, y - 3 * point - size.height)
    return [
        Box(left, bottom, left + size.width, bottom + size.height)
        for bottom in bottoms
        for left in lefts
    ]
