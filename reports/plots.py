"""The picture of a leaderboard: accuracy against training time, in bubbles as large as memory."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from math import ceil, log10
from textwrap import fill
from typing import Any, Literal

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from reports import baselines
from reports.baselines import QUIET
from reports.bubbles import Bubble, bubbles, draw, label
from reports.rows import MIB, Board
from reports.settings import Setting, apart

INK, GRID = "#2b2b2b", "#ececec"
PANEL = (4.7, 4.3)
"""Inches of one panel."""

LARGEST = 1500.0
"""Area of the largest bubble of a figure, in square points, by matplotlib's count of a marker."""

LEGEND = 0.9
"""Inches of the legend below the panels."""

LOG_FROM = 4.0
"""The ratio of the slowest to the fastest from which the time axis is logarithmic."""

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": QUIET,
    "axes.grid": True,
    "axes.labelcolor": QUIET,
    "axes.linewidth": 0.8,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "svg.hashsalt": "accuracy_time",
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}


def accuracy_time(boards: Sequence[Board], source: str) -> Mapping[str, bytes]:
    """The figure as PNG and SVG, by file name; the same boards give the same bytes.

    Both carry `source`, which says in a word what they were drawn from, as their description.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(boards)
        return {
            "accuracy_time.png": as_bytes(figure, "png", {"Software": None, "Description": source}),
            "accuracy_time.svg": as_bytes(figure, "svg", {"Date": None, "Description": source}),
        }


def as_bytes(figure: Figure, kind: str, metadata: dict[str, str | None]) -> bytes:
    """The drawn figure as a file of that kind, with that metadata."""
    stream = BytesIO()
    figure.savefig(stream, format=kind, metadata=metadata, dpi=figure.dpi)
    return stream.getvalue()


def shape(panels: int) -> tuple[int, int]:
    """Columns and rows of a grid that holds so many panels, one at least."""
    wide = 2 if panels == 4 else min(max(panels, 1), 3)
    return wide, max(1, ceil(panels / wide))


def _figure(boards: Sequence[Board]) -> Figure:
    wide, high = shape(len(boards))
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.03)
    size = (PANEL[0] * wide, PANEL[1] * high + LEGEND)
    figure = Figure(size, dpi=160, layout=layout)
    FigureCanvasAgg(figure)
    ratios = [PANEL[1]] * high + [LEGEND]
    grid = figure.add_gridspec(high + 1, wide, height_ratios=ratios)
    if not boards:
        figure.text(0.5, 0.5, "There are no records yet.", ha="center", color=QUIET)
        return figure
    places = [figure.add_subplot(grid[divmod(i, wide)]) for i in range(len(boards))]
    _fill(figure, places, boards, figure.add_subplot(grid[-1, :]))
    return figure


def _fill(figure: Figure, places: Sequence[Axes], boards: Sequence[Board], legend: Axes) -> None:
    drawn = [(axes, board, bubbles(board)) for axes, board in zip(places, boards, strict=True)]
    memories = [bubble.memory for _, _, shown in drawn for bubble in shown]
    scale, colours = LARGEST / max([1.0, *memories]), _colours(boards)
    how = apart([board.title for board in boards], [board.setting for board in boards])
    for (axes, board, shown), rest in zip(drawn, how, strict=True):
        _panel(axes, board, shown, rest)
        if shown:
            baselines.draw(axes, board.baselines)
            draw(axes, shown, colours, scale)
    _legend(legend, memories, scale)
    # Labels are placed once the panels have their final size, and move no panel themselves.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes, board, shown in drawn:
        if shown:
            label(axes, shown, board.baselines, colours, scale)


def _colours(boards: Sequence[Board]) -> dict[str, tuple[float, float, float]]:
    """One colour a variant, the same in every panel, distinct to colour-blind eyes up to ten."""
    names = sorted({row.attention for board in boards for row in board.rows})
    return dict(zip(names, sns.color_palette("colorblind", len(names)), strict=True))


def _panel(axes: Axes, board: Board, shown: Sequence[Bubble], how: str) -> None:
    """A panel without its bubbles; `how` tells its board from others of the same title."""
    heading(axes, board.setting, board.machine, how)
    sns.despine(ax=axes)
    labels = {bubble.label for bubble in shown}
    missing = [
        f"{row.label}: {row.failures or 'not measured'}"
        for row in board.rows
        if row.label not in labels
    ]
    if shown:
        _scales(axes, board, shown)
    else:
        axes.set_axis_off()
        note(axes, "\n".join(fill(line, 66) for line in missing), (0, 1), -14)
    if shown and missing:
        note(axes, fill(f"Not shown – {'; '.join(missing)}", 66), (0, 0), -36)


def heading(axes: Axes, of: Setting, machine: str, how: str) -> None:
    """Task, its options, budget and machine above a panel.

    Args:
        axes: the panel.
        of: what was run there.
        machine: where.
        how: what tells it from another panel of the same heading, or nothing.
    """
    title, _, options = str(of["task.key"]).partition("[")
    options = ", ".join(option.strip() for option in options.replace("]", "").split(","))
    place = f"budget {of['budget']} · {of['device']}: {machine}"
    below = "\n".join(fill(line, 62) for line in (options, place, how) if line)
    pad = 10 + 11 * (below.count("\n") + 1)
    axes.set_title(title, loc="left", fontweight="bold", fontsize=12, pad=pad)
    note(axes, below, (0, 1), 6, va="bottom", fontstyle="normal")


def note(
    axes: Axes,
    text: str,
    corner: tuple[float, float],
    points: float,
    va: Literal["top", "bottom"] = "top",
    fontstyle: Literal["normal", "italic"] = "italic",
) -> None:
    """Small print from a corner of the panel, so many points above it."""
    axes.annotate(
        text, corner, (0, points), xycoords="axes fraction", textcoords="offset points",
        fontsize=8, color=QUIET, va=va, fontstyle=fontstyle,
    )  # fmt: skip


def _scales(axes: Axes, board: Board, shown: Sequence[Bubble]) -> None:
    seconds = [bubble.seconds for bubble in shown]
    fastest, slowest = min(seconds), max(seconds)
    logarithmic = slowest / fastest >= LOG_FROM
    axes.set_xlabel(f"training time, s / 1,000 steps{' (log)' if logarithmic else ''}   ← faster")
    axes.set_ylabel("test accuracy, %")
    if logarithmic:
        axes.set_xscale("log")
        room = (slowest / fastest) ** 0.2
        axes.set_xlim(fastest / room, slowest * room)
        axes.xaxis.set_major_locator(LogLocator(subs=_subs(slowest / fastest), numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        room = 0.22 * (slowest - fastest) or 0.25 * slowest
        axes.set_xlim(fastest - room, slowest + room)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    heights = [100 * floor for _, floor in board.baselines]
    heights += [end for bubble in shown for end in (bubble.low, bubble.high, bubble.accuracy)]
    room = 0.14 * (max(heights) - min(heights)) or 5.0
    axes.set_ylim(max(min(heights) - room, -5.0), max(heights) + room)


def _subs(ratio: float) -> tuple[float, ...]:
    """Which multiples of powers of ten are marked: fewer, the longer the axis."""
    return (1, 2, 3, 5, 7) if ratio < 10 else (1, 2, 5) if ratio < 100 else (1,)


def _legend(axes: Axes, memories: Sequence[float], scale: float) -> None:
    """What the areas mean: a title, and below it three bubbles with their memory beside them."""
    axes.set_axis_off()
    if not any(memories):
        return
    _key(axes, 0, 28, "peak memory of a training step", ha="center")
    sizes = sorted({_round(max(memories) / part) for part in (1, 4, 16)})
    for place, size in enumerate(sizes):
        x, diameter = 96 * (place - (len(sizes) - 1) / 2) - 22, (size * scale) ** 0.5
        axes.plot(
            0.5, 0.5, marker="o", markersize=diameter, markerfacecolor="#e3e3e3",
            markeredgecolor=QUIET, markeredgewidth=0.8, transform=shifted(axes, x, -4),
        )  # fmt: skip
        _key(axes, x + diameter / 2 + 5, -4, f"{size / MIB:,g} MiB", ha="left")


def _key(axes: Axes, x: float, y: float, text: str, ha: str) -> None:
    place = shifted(axes, x, y)
    axes.text(0.5, 0.5, text, transform=place, ha=ha, va="center", color=QUIET, fontsize=8.5)


def shifted(axes: Axes, x: float, y: float) -> Transform:
    """Parts of the panel, and from there so many points to the right and up."""
    return axes.transAxes + ScaledTranslation(x / 72, y / 72, axes.figure.dpi_scale_trans)


def _round(memory: float) -> float:
    """The largest of 1, 2, 5, 10, ... MiB that is no more than `memory`."""
    mib = memory / MIB
    decade = 10.0 ** (len(str(int(mib))) - 1) if mib >= 1 else 10.0 ** -ceil(-log10(mib))
    return MIB * max(decade * step for step in (1, 2, 5) if decade * step <= mib)
