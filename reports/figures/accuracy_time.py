"""The figure of a leaderboard: accuracy against training time, with areas that show memory."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from reports.figures import style
from reports.figures.style import QUIET
from reports.statistics import Interval
from reports.tables.boards import Board
from reports.tables.columns import memory_ratio, over_runs, percent, time_ratio

WIDTH, HEIGHT, LINE_HEIGHT = 6.6, 3.7, 0.165
"""Inches of a panel, and of a line of its legend."""

AREA = 70.0
"""Area of a marker whose peak memory is that of softmax, in square points."""

INTERVAL = 0.1
"""The most of an interval on each side of its mean that the axis makes room for."""

LARGEST_RATIO, LARGEST_MEMORY = 1000.0, 12.0
"""Beyond these a time is not drawn, and an area is no larger."""


class Mark(NamedTuple):
    """One row of a board that has an accuracy and a cost.

    Attributes:
        label: of the row.
        accuracy: on test.
        time: of training, relative to softmax.
        memory: peak of a training step, relative to softmax.
    """

    label: str
    accuracy: Interval
    time: float
    memory: float


def accuracy_time(boards: Sequence[Board], source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(boards), "accuracy_time", source)


def marks(board: Board) -> list[Mark]:
    """The rows of a board that can be drawn, in order."""
    found = []
    for row in board.rows:
        time, memory = over_runs(row, time_ratio), over_runs(row, memory_ratio)
        if row.accuracy and time and memory and 1 / LARGEST_RATIO <= time <= LARGEST_RATIO:
            found.append(Mark(row.label, row.accuracy, time, memory))
    return found


def draw(boards: Sequence[Board]) -> Figure:
    """A panel for each board with at least two marks."""
    shown = [(board, found) for board in boards if len(found := marks(board)) > 1]
    entries = [len(found) + len(board.baselines) for board, found in shown]
    heights = [max(HEIGHT, 1 + LINE_HEIGHT * count) for count in entries]
    figure, axes = style.panels(heights, WIDTH, 0.7)
    for panel, (board, found) in zip(axes, shown, strict=True):
        _panel(panel, board, found)
    if not shown:
        figure.text(0.5, 0.6, "No board has two variants with a cost.", ha="center", color=QUIET)
    _legend(figure, len(boards) - len(shown))
    return figure


def _panel(axes: Axes, board: Board, found: Sequence[Mark]) -> None:
    looks = style.looks((row.spec.attention, row.label) for row in board.rows)
    style.heading(axes, board.title)
    _scales(axes, board, found)
    handles = []
    for mark in sorted(found, key=lambda mark: -mark.memory):
        colour, marker = looks[mark.label]
        mean, low, high = (100 * value for value in mark.accuracy[:3])
        axes.vlines(mark.time, low, high, color=colour, linewidth=1.1, zorder=3)
        axes.scatter(mark.time, mean, _area(mark.memory), color=[colour], marker=marker,
                     alpha=0.6, edgecolors="white", linewidths=0.6, zorder=4)  # fmt: skip
    for mark in found:
        text = f"{style.label(mark.label)} {percent(mark.accuracy.mean)}"
        handles.append(_handle(text, *looks[mark.label], 6))
    axes.axvline(1, color="#c4c4c4", linewidth=1.5, zorder=1.5)
    style.legend(axes, [*handles, *style.draw_baselines(axes, board.baselines)])
    drawn = {mark.label for mark in found}
    missing = [
        f"{row.label}: {row.failures or 'time ratio not measured'}"
        for row in board.rows
        if row.label not in drawn
    ]
    if missing:
        style.note(axes, f"Not shown: {'; '.join(missing)}")


def _scales(axes: Axes, board: Board, found: Sequence[Mark]) -> None:
    times = [mark.time for mark in found] + [1.0]
    room = max((max(times) / min(times)) ** 0.08, 1.05)
    low, high = min(times) / room, max(times) * room
    axes.set(xscale="log", xlim=(low, high))
    axes.set_xlabel("training time relative to softmax (log)")
    ticks = _ticks(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("test accuracy, %")
    ends = [100 * end for mark in found for end in _shown(mark.accuracy)]
    ends += [100 * accuracy for _, accuracy in board.baselines[:1]]
    room = 0.07 * (max(ends) - min(ends)) or 1.0
    axes.set_ylim(min(ends) - room, max(ends) + room)


def _shown(accuracy: Interval) -> tuple[float, float]:
    """The part of an interval that the axis makes room for: two seeds can have a very wide one."""
    mean, low, high, _ = accuracy
    return max(low, mean - INTERVAL), min(high, mean + INTERVAL)


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
    sizes = [_handle(f"{one:g}×", "#c8c8c8", "o", _area(one) ** 0.5) for one in (0.5, 1, 2, 4)]
    title = "area: peak memory of a training step relative to softmax"
    if left_out:
        title += f"\nwithout a panel: boards with fewer than two points ({left_out})"
    figure.legend(handles=sizes, loc="outside lower center", ncols=len(sizes), title=title,
                  title_fontsize=8.5)  # fmt: skip
