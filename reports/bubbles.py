"""Bubbles of one panel, and their labels, which stand beside them and not in a legend."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from reports import baselines
from reports.baselines import QUIET
from reports.labels import Box, Disc, Scene, around, choose
from reports.rows import Board
from reports.texts import put

Colour = tuple[float, float, float]


class Bubble(NamedTuple):
    """One row of a board that has both an accuracy and a cost.

    Attributes:
        attention: name of the variant, which decides the colour.
        label: what is written beside it.
        seconds: for 1,000 training steps.
        accuracy: on test, in per cent, as are the next two.
        low: lower end of its interval.
        high: upper end of its interval.
        memory: peak of a training step, in bytes.
    """

    attention: str
    label: str
    seconds: float
    accuracy: float
    low: float
    high: float
    memory: float


def bubbles(board: Board) -> list[Bubble]:
    """What can be drawn of a board, the largest first so that it hides nothing smaller."""
    shown = [
        Bubble(
            row.attention,
            row.label,
            row.cost.own.seconds_per_1k_steps.median,
            100 * row.accuracy.mean,
            100 * row.accuracy.low,
            100 * row.accuracy.high,
            row.cost.own.peak_bytes,
        )
        for row in board.rows
        if row.accuracy and row.cost
    ]
    return sorted(shown, key=lambda bubble: -bubble.memory)


def draw(axes: Axes, shown: Sequence[Bubble], colours: Mapping[str, Colour], scale: float) -> None:
    """Draw intervals and bubbles; `scale` is square points a byte."""
    for bubble in shown:
        x, y, colour = bubble.seconds, bubble.accuracy, colours[bubble.attention]
        axes.scatter(x, y, bubble.memory * scale, color=[(*colour, 0.45)], edgecolors=[colour],
                     linewidths=1.1, zorder=3)  # fmt: skip
        axes.vlines(x, bubble.low, bubble.high, color=_dark(colour), linewidth=1.2, zorder=4)
        # However small the memory, the place of the number stays visible.
        axes.scatter(x, y, 9, color=[_dark(colour)], linewidths=0, zorder=5)


def label(
    axes: Axes,
    shown: Sequence[Bubble],
    below: baselines.Floors,
    colours: Mapping[str, Colour],
    scale: float,
) -> None:
    """Write every name where it covers nothing, with a line to its bubble if that is far.

    Args:
        axes: the panel, at its final size.
        shown: what was drawn there.
        below: floors that were drawn there, too; they are named first.
        colours: by attention.
        scale: square points a byte.
    """
    frame, point = axes.get_window_extent(), axes.figure.dpi / 72
    discs = [_disc(axes, bubble, scale, point) for bubble in shown]
    bars = [_bar(axes, bubble, point) for bubble in shown]
    taken = bars + baselines.lines(axes, below)
    scene = Scene(Box(*frame.extents), discs, taken)
    taken += baselines.label(axes, below, scene)
    for bubble, disc in sorted(zip(shown, discs, strict=True), key=lambda pair: -pair[1].y):
        text = axes.text(0, 0, bubble.label, color=_dark(colours[bubble.attention]), zorder=6)
        text.set_fontweight("bold")
        size, margin = text.get_window_extent(), 2 * point
        width, height = size.width + 2 * margin, size.height + margin
        box = choose(around(disc, width, height, 2 * point), scene)
        taken.append(box)
        put(axes, text, Box(box.left + margin, box.bottom + margin / 2, box.right, box.top))
        _lead(axes, disc, box, 6 * point)


def _dark(colour: Colour) -> Colour:
    red, green, blue = (0.6 * part for part in colour)
    return red, green, blue


def _disc(axes: Axes, bubble: Bubble, scale: float, point: float) -> Disc:
    x, y = axes.transData.transform((bubble.seconds, bubble.accuracy))
    return Disc(x, y, (bubble.memory * scale) ** 0.5 / 2 * point + point)


def _bar(axes: Axes, bubble: Bubble, point: float) -> Box:
    x, low = axes.transData.transform((bubble.seconds, bubble.low))
    _, high = axes.transData.transform((bubble.seconds, bubble.high))
    return Box(x - 2 * point, low, x + 2 * point, high)


def _lead(axes: Axes, disc: Disc, box: Box, far: float) -> None:
    end = box.nearest(disc.x, disc.y)
    reach = ((end[0] - disc.x) ** 2 + (end[1] - disc.y) ** 2) ** 0.5
    if reach - disc.radius < far:
        return
    edge = [at + (to - at) * disc.radius / reach for at, to in zip(disc[:2], end, strict=True)]
    (x0, y0), (x1, y1) = axes.transAxes.inverted().transform([edge, end])
    axes.plot([x0, x1], [y0, y1], transform=axes.transAxes, color=QUIET, linewidth=0.7, zorder=2.5)
