"""How near the tokens are that a task needs: accuracy against the window that a model may see.

Two curves a task, or the first alone where it asks at tokens. A model whose every layer sees so
many tokens to each side; and a model that sees all tokens of documents whose blocks of so many
tokens were shuffled, so that no order is left but that within a block. Where the second stays as
high as the whole, no order beyond it is used.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from textwrap import fill

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.records.record import Record
from reports import baselines, settings
from reports.audits import SEEN, SHUFFLED, Audit, Curve, audits
from reports.bubbles import Colour
from reports.cells import NOTHING, accuracy, baseline_lines, notes, table
from reports.labels import Box, Disc, Scene
from reports.plots import PANEL, STYLE, as_bytes, heading, note, shape, shifted
from reports.rows import Row

HEAD = f"""\
# How far a model has to look

Test accuracy in percent, with its 95 % interval. *{SEEN}*: every layer sees so many tokens to each
side, or before it alone where the task is causal. *{SHUFFLED}*: the model sees
all tokens of documents whose blocks of so many tokens are in random order, in training and in test.
"""

NO_BLOCKS = """\
No runs with shuffled blocks. A task that asks at tokens has none, because shuffling would move the
places at which it asks.
"""

ALL = "all"

BELOW, LINE = -36, 14
"""Points from a panel down to the legend, and those of a line of it."""

STEP = 0.06
"""Ticks between two curves at one number of tokens, so that neither hides the other."""


def files(records: Iterable[Record]) -> dict[str, bytes]:
    """What `locality.md`, `locality.png` and `locality.svg` hold, by name.

    Raises:
        ValueError: the records make no audit.
    """
    found = audits(records)
    if not found:
        raise ValueError(
            "no runs with windows or shuffled blocks; make some: harness locality TASK"
        )
    return {"locality.md": markdown(found).encode(), **figure(found)}


def markdown(found: Sequence[Audit]) -> str:
    """A table an audit: a row a window, a column a curve; a failure stands where its number would.

    Returns:
        The page, which says behind its last table what the marks on it mean.
    """
    parts = [HEAD]
    for audit, how in zip(found, _apart(found), strict=True):
        title = f"{audit.title}; {how}" if how else audit.title
        parts += [f"## {title}\n", f"{settings.recipe(audit.setting)}\n", _table(audit)]
        parts += [] if audit.has_blocks else [NO_BLOCKS]
    page = "\n".join(parts)
    meant = notes(page)
    return f"{page}\n{meant}\n" if meant else page


def figure(found: Sequence[Audit]) -> Mapping[str, bytes]:
    """The curves as PNG and SVG, by file name; the same audits give the same bytes."""
    wide, high = shape(len(found))
    with mpl.rc_context({**STYLE, "svg.hashsalt": "locality"}):
        drawn = Figure((PANEL[0] * wide, PANEL[1] * high), dpi=160, layout="constrained")
        FigureCanvasAgg(drawn)
        panels = [drawn.add_subplot(high, wide, 1 + number) for number in range(len(found))]
        for axes, audit, how in zip(panels, found, _apart(found), strict=True):
            heading(axes, audit.setting, audit.machine, how)
            _draw(axes, audit)
        # Names are placed once the panels have their final size, and move no panel themselves.
        drawn.draw_without_rendering()
        drawn.set_layout_engine("none")
        for axes, audit in zip(panels, found, strict=True):
            baselines.label(axes, audit.baselines, _scene(axes, audit))
        return {
            "locality.png": as_bytes(drawn, "png", {"Software": None}),
            "locality.svg": as_bytes(drawn, "svg", {"Date": None}),
        }


def _apart(found: Sequence[Audit]) -> list[str]:
    return settings.apart([audit.title for audit in found], [audit.setting for audit in found])


def _table(audit: Audit) -> str:
    curves = [_points(audit, curve) for curve in audit.curves]
    lines = [
        [tokens, *(accuracy(curve[tokens]) if tokens in curve else NOTHING for curve in curves)]
        for tokens in _ticks(audit)
    ]
    headings = ["tokens", *(curve.name for curve in audit.curves)]
    return table(headings, [*lines, *baseline_lines(audit.baselines, len(headings))])


def _ticks(audit: Audit) -> list[str]:
    return [*map(str, audit.tokens), ALL]


def _points(audit: Audit, curve: Curve) -> dict[str, Row]:
    """What a curve has at each tick, in their order."""
    rows = {str(tokens): curve.rows[tokens] for tokens in audit.tokens if tokens in curve.rows}
    return rows | ({ALL: curve.whole} if curve.whole else {})


def _draw(axes: Axes, audit: Audit) -> None:
    ticks = _ticks(audit)
    baselines.draw(axes, audit.baselines)
    colours = sns.color_palette("colorblind", len(audit.curves))
    failed: dict[str, None] = {}
    for number, (curve, colour) in enumerate(zip(audit.curves, colours, strict=True)):
        points = _points(audit, curve)
        aside = STEP * (number - (len(audit.curves) - 1) / 2)
        _curve(axes, curve.name, points, ticks, colour, aside)
        missing = {tick: row for tick, row in points.items() if not row.accuracy}
        failed |= dict.fromkeys(f"{tick} tokens: {row.failures}" for tick, row in missing.items())
    axes.set_xticks(range(len(ticks)), ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="tokens", ylabel="test accuracy, %", xlim=(-0.3, len(ticks) - 0.7))
    axes.legend(
        frameon=False, fontsize=8, loc="upper left", borderaxespad=0, borderpad=0,
        bbox_to_anchor=(0, 0), bbox_transform=shifted(axes, 0, BELOW),
    )  # fmt: skip
    if failed:
        low = BELOW - LINE * len(audit.curves)
        note(axes, fill(f"Not shown – {'; '.join(failed)}", 66), (0, 0), low)
    sns.despine(ax=axes)


def _scene(axes: Axes, audit: Audit) -> Scene:
    """What the names of floors must keep off: curves, intervals and the floors' own lines."""
    point = axes.figure.dpi / 72
    discs, bars = [], []
    for points, _, (intervals,) in axes.containers:
        places = axes.transData.transform(points.get_xydata())
        discs += [Disc(x, y, 4 * point) for x, y in places]
        for start, end in pairwise(places):
            discs += [Disc(x, y, 2 * point) for x, y in np.linspace(start, end, 40)]
        for interval in intervals.get_segments():
            (x, low), (_, high) = axes.transData.transform(interval)
            bars.append(Box(x - 4 * point, low, x + 4 * point, high))
    frame = Box(*axes.get_window_extent().extents)
    return Scene(frame, discs, bars + baselines.lines(axes, audit.baselines))


def _curve(
    axes: Axes,
    name: str,
    points: Mapping[str, Row],
    ticks: Sequence[str],
    colour: Colour,
    aside: float,
) -> None:
    """Draw a curve, `aside` of the ticks."""
    found = {
        ticks.index(tick) + aside: row.accuracy for tick, row in points.items() if row.accuracy
    }
    means = [100 * of.mean for of in found.values()]
    below = [100 * (of.mean - of.low) for of in found.values()]
    above = [100 * (of.high - of.mean) for of in found.values()]
    axes.errorbar(
        list(found), means, (below, above), color=colour, label=name, marker="o", capsize=3
    )
