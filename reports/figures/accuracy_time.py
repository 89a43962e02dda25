"""The figure of a leaderboard: accuracy against training time, with areas that show memory."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from reports.figures import style
from reports.tables.boards import Board
from reports.tables.values import memory_ratio, over_runs, time_ratio

WIDTH, HEIGHT, LINE_HEIGHT = 6.6, 3.7, 0.165
"""Inches of a panel, and of a line of its legend."""

AREA = 70.0
"""Area of a marker whose peak memory is that of softmax, in square points."""

LARGEST_INTERVAL, LARGEST_TIME, LARGEST_MEMORY = 10.0, 1000.0, 12.0
"""A part of an interval of accuracies that is further than these points from the mean may be
outside the axis; a point with a longer time is not shown; with more memory the area stays the
same."""


class Point(NamedTuple):
    """A row: its label, mean, lowest and highest value, time and memory relative to softmax."""

    label: str
    ends: tuple[float, float, float]
    time: float
    memory: float


def accuracy_time(boards: Sequence[Board], source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(boards), "accuracy_time", source)


def draw(boards: Sequence[Board]) -> Figure:
    """A panel for each board with at least two points, up to `MOST_PANELS`."""
    panels = [(board, points) for board in boards if len(points := _points(board)) > 1]
    panels = panels[: style.MOST_PANELS]
    entries = [len(points) + style.MOST_BASELINES for _, points in panels]
    heights = [max(HEIGHT, 1 + LINE_HEIGHT * count) for count in entries]
    figure, axes = style.panels(heights, WIDTH, 0.7)
    for panel, (board, points) in zip(axes, panels, strict=True):
        _panel(panel, board, points)
    if not panels:
        text = "No board has two variants with a cost."
        figure.text(0.5, 0.6, text, ha="center", color=style.GREY)
    _legend(figure, len(boards) - len(panels))
    return figure


def _points(board: Board) -> list[Point]:
    points = []
    for row in board.rows:
        time, memory = over_runs(row, time_ratio), over_runs(row, memory_ratio)
        if row.score and time and memory and 1 / LARGEST_TIME <= time <= LARGEST_TIME:
            points.append(Point(row.label, row.score[:3], time, memory))
    return points[: style.SLOTS]


def _panel(axes: Axes, board: Board, points: Sequence[Point]) -> None:
    labels = {point.label for point in points}
    styles = style.point_styles(
        (r.spec.attention, r.label) for r in board.rows if r.label in labels
    )
    handles = []
    for label, (mean, low, high), time, memory in points:
        colour, marker = styles[label]
        axes.vlines(time, low, high, color=colour, linewidth=1.1, zorder=3)
        # Small markers are in front of large ones.
        area = _area(memory)
        axes.scatter(time, mean, area, color=[colour], marker=marker, alpha=0.6,
                     edgecolors="white", linewidths=0.6, zorder=5 - area / 1000)  # fmt: skip
        text = f"{style.label(label)} {board.metric.text(mean)}"
        handles.append(_handle(text, colour, marker, 6))
    style.heading(axes, board.title)
    _scales(axes, board, points)
    style.legend(axes, [*handles, *style.draw_baselines(
        axes, board.baselines, board.metric
    )])  # fmt: skip
    style.not_shown(axes, [
        f"{row.label}: {row.failures or 'time ratio not measured'}"
        for row in board.rows
        if row.label not in labels
    ])  # fmt: skip


def _scales(axes: Axes, board: Board, points: Sequence[Point]) -> None:
    times = [point.time for point in points] + [1.0]
    margin = max((max(times) / min(times)) ** 0.08, 1.05)
    low, high = min(times) / margin, max(times) * margin
    axes.set(xscale="log", xlim=(low, high))
    axes.set(xlabel="training time relative to softmax (log)", ylabel=f"test {board.metric.title}")
    ticks = _ticks(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color="#c4c4c4", linewidth=1.5, zorder=1.5)
    # Two seeds can have a very wide interval.
    ends = [score for _, score in board.baselines[:1]]
    largest = LARGEST_INTERVAL if board.metric.unit == "%" else math.inf
    for mean, bottom, top in (point.ends for point in points):
        ends += [max(bottom, mean - largest), min(top, mean + largest)]
    margin = 0.07 * (max(ends) - min(ends)) or 1.0
    axes.set_ylim(min(ends) - margin, max(ends) + margin)


def _ticks(low: float, high: float) -> list[float]:
    """Round ratios between two ends, few enough to be read."""
    if high / low < 4:
        ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    else:
        steps = (1, 2, 5) if high / low < 500 else (1,)
        ticks = [step * 10.0**power for power in range(-4, 5) for step in steps]
    return [float(tick) for tick in ticks if low <= tick <= high]


def _area(memory: float) -> float:
    return AREA * min(max(memory, 0.1), LARGEST_MEMORY)


def _handle(label: str, colour: str, marker: str, size: float) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="", label=label)


def _legend(figure: Figure, left_out: int) -> None:
    """Below all panels: what the areas mean, and how many boards have no panel."""
    sizes = [
        _handle(f"{ratio:g}×", "#c8c8c8", "o", _area(ratio) ** 0.5) for ratio in (0.5, 1, 2, 4)
    ]
    title = "area: peak memory of a training step relative to softmax"
    if left_out:
        title += f"\nboards without a panel, most with fewer than two points: {left_out}"
    figure.legend(handles=sizes, loc="outside lower center", ncols=len(sizes), title=title,
                  title_fontsize=8.5)  # fmt: skip
