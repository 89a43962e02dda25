"""The figure of a suite: how many questions each row answers against the time of training."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports import suites
from reports.figures import style

if TYPE_CHECKING:
    from harness.records.suites import Suite

WIDTH, LANE = 8.6, 0.17
"""Inches of the figure, and of a lane: a line of points of one number of questions."""

Lane = tuple[int, list[str]]
"""A number of questions, and rows that answer as many, in order of time."""

LETTER = 0.009
"""Width of a letter of a label, about, as a share of the axis of time."""


def answered_figure(table: pd.DataFrame, suite: "Suite", source: str) -> dict[str, bytes]:
    """The figure of a matrix as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(table, suite), suite.name, source)


def draw(table: pd.DataFrame, suite: "Suite") -> Figure:
    """A point for each row of the matrix that has a time, in bands of questions answered."""
    column = suites.time_column(suite)
    asked = table[[question.name for question in suite.questions]].notna().any(axis=1)
    rows = table[table[column].notna() & asked]
    times = {str(row): float(time) for row, time in rows[column].items()}
    lanes = _lanes(times, {str(row): int(count) for row, count in rows["answered"].items()})
    figure, (axes,) = style.panels([LANE * (len(lanes) + 8)], WIDTH, 0)
    styles = style.point_styles(zip(rows["attention"], rows.index, strict=True))
    for lane, (_, labels) in enumerate(lanes):
        for label in labels:
            colour, marker = styles[label]
            text = style.GREY if colour == style.FAINT else colour
            axes.plot(times[label], lane, marker=marker or "o", markersize=6, color=colour)
            axes.annotate(style.label(label), (times[label], lane), (5, 0), va="center",
                          textcoords="offset points", fontsize=8, color=text)  # fmt: skip
    _scales(axes, [1.0, *times.values()], [answered for answered, _ in lanes])
    length = int(column.partition(".")[2])
    axes.set(xlabel=f"time of training, {length:,} tokens, relative to the fastest softmax (log)",
             ylabel=f"answered, of {len(suite.questions)} questions")  # fmt: skip
    style.not_shown(
        axes, [f"{label}: no cost" for label in table[asked].index if label not in times]
    )
    return figure


def _lanes(times: Mapping[str, float], answered: Mapping[str, int]) -> list[Lane]:
    """The rows in lanes without overlaps of labels, from below."""
    low = min(times.values(), default=1)
    scale = math.log(5 * max(times.values(), default=1) / low)
    lanes: list[Lane] = []
    ends: list[float] = []
    for label in sorted(times, key=lambda label: (answered[label], times[label])):
        start = math.log(times[label] / low) / scale
        same = [lane for lane, (count, _) in enumerate(lanes) if count == answered[label]]
        lane = next((lane for lane in same if ends[lane] < start), len(lanes))
        if lane == len(lanes):
            lanes.append((answered[label], []))
            ends.append(0.0)
        lanes[lane][1].append(label)
        ends[lane] = start + LETTER * (len(label) + 3)
    return lanes


def _scales(axes: Axes, times: Sequence[float], lanes: Sequence[int]) -> None:
    """The axis of time, with room for labels, and a band for each number of questions."""
    low, high = min(times) / 1.3, max(times) * 4
    axes.set(xscale="log", xlim=(low, high), ylim=(-0.8, len(lanes) - 0.2))
    at = style.ticks(low, high)
    axes.set_xticks(at, [f"{tick:g}" for tick in at])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color=style.GREY, linewidth=1, linestyle=style.DASHES[0], zorder=1)
    bands = {n: [lane for lane, answered in enumerate(lanes) if answered == n] for n in lanes}
    axes.set_yticks([fmean(band) for band in bands.values()], [str(n) for n in bands])
    axes.grid(False, axis="y")
    for band in [*bands.values()][::2]:
        axes.axhspan(band[0] - 0.5, band[-1] + 0.5, color="#f4f4f4", zorder=0)
