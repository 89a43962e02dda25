"""The figure of the matrix of a suite: questions answered against the time of training a layer."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.records.suites import Suite
from reports.figures import style
from reports.suite_results import run_rows

FIGURE_WIDTH, LANE, LETTER = 8.6, 0.17, 0.009
"""Inches of the figure and of a lane, a line of points of one number of questions; the width of a
letter of a label, about, as a share of the axis of time."""

Lane = tuple[int, list[str]]
"""A number of questions, and rows that answer as many, in order of time."""


def draw(matrix: pd.DataFrame, suite: Suite) -> Figure:
    """A point for each row of the matrix that has a time, in bands of questions answered."""
    every, length = run_rows(matrix, suite), suite.cost.middle_length
    column = f"time.{length}"
    rows = every[every[column].notna()]
    times = {str(row): float(time) for row, time in rows[column].items()}
    lanes = _lanes(times, {str(row): int(count) for row, count in rows["answered"].items()})
    figure, (axes,) = style.panels([LANE * (len(lanes) + 8)], FIGURE_WIDTH)
    styles = style.point_styles(zip(rows["attention"], rows.index, strict=True))
    for lane, (_, labels) in enumerate(lanes):
        for label in labels:
            colour, marker = styles[label]
            text = style.GREY if colour == style.FAINT else colour
            axes.plot(times[label], lane, marker=marker or "o", markersize=6, color=colour)
            axes.annotate(style.label(label), (times[label], lane), (5, 0), va="center",
                          textcoords="offset points", fontsize=8, color=text)  # fmt: skip
    _scales(axes, [1.0, *times.values()], [answered for answered, _ in lanes])
    axes.set(xlabel=f"time of training, {length:,} tokens, relative to the fastest softmax (log)",
             ylabel=f"answered, of {len(suite.questions)} questions")  # fmt: skip
    style.not_shown(axes, [f"{label}: no cost" for label in every.index if label not in times])
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
    axes.axvline(1, color=style.GREY, linewidth=1, linestyle=style.DASHES, zorder=1)
    bands = {n: [lane for lane, answered in enumerate(lanes) if answered == n] for n in lanes}
    axes.set_yticks([fmean(band) for band in bands.values()], [str(n) for n in bands])
    axes.grid(False, axis="y")
    for band in [*bands.values()][::2]:
        axes.axhspan(band[0] - 0.5, band[-1] + 0.5, color="#f4f4f4", zorder=0)
