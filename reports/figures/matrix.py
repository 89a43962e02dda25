"""The figure of a suite: the questions on which a variant is able, and the time of a layer."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style

if TYPE_CHECKING:
    from reports.pages.suite import Tables

FIGURE_WIDTH, LANE, LETTER = 8.6, 0.17, 0.009
"""Inches of the figure and of a lane, a line of points of one number of questions; the width of a
letter of a label, about, as a share of the axis of time."""

Lane = tuple[int, list[str]]
"""A number of questions, and the variants able on as many, in order of time."""


def draw(of: "Tables") -> Figure:
    """A panel for each form, in bands of the number of questions on which a variant is able.

    A point is a variant with a time and a verdict; its label has the able and finished questions.
    Without ceilings the bands are of questions on which a variant is better than every baseline.
    """
    length, panels = of.suite.cost.middle_length, list[tuple[Any, ...]]()
    for form, every in of.matrix.items():
        is_judged = any(q.ceiling is not None for q in of.questions(form))
        is_open = (every["finished"] == 0) & is_judged
        rows = every[every[f"time.{length}"].notna() & ~is_open]
        times = {str(row): time for row, time in rows[f"time.{length}"].items()}
        counts = rows["able" if is_judged else "answered"]
        lanes = _lanes(times, {str(row): int(count) for row, count in counts.items()})
        panels.append((form, every, is_open, is_judged, rows, times, lanes))
    heights = [LANE * (len(lanes) + 8) for *_, lanes in panels]
    figure, every_axes = style.panels(heights, FIGURE_WIDTH)
    for axes, panel in zip(every_axes, panels, strict=True):
        form, every, is_open, is_judged, rows, times, lanes = panel
        styles = style.point_styles(zip(rows["attention"], rows.index, strict=True))
        for lane, (_, labels) in enumerate(lanes):
            for label in labels:
                colour, marker = styles[label]
                text = style.GREY if colour == style.FAINT else colour
                axes.plot(times[label], lane, marker=marker or "o", markersize=6, color=colour)
                finished = f" {rows['able'][label]}/{rows['finished'][label]}" * is_judged
                axes.annotate(style.label(label) + finished, (times[label], lane), (5, 0),
                              va="center", textcoords="offset points", fontsize=8,
                              color=text)  # fmt: skip
        _scales(axes, [1.0, *times.values()], [able for able, _ in lanes])
        what = f"time of training a {form} layer of {length:,} tokens"
        bands = "able" if is_judged else "better than every baseline"
        axes.set(xlabel=f"{what}, relative to the fastest softmax (log)",
                 ylabel=f"questions: {bands}")  # fmt: skip
        without = [label for label in every.index[~is_open] if label not in times]
        open_text = [f"{is_open.sum()} variants without a verdict yet"] * bool(is_open.any())
        style.not_shown(axes, [*(f"{label}: no cost" for label in without), *open_text])
    return figure


def _lanes(times: Mapping[str, float], able: Mapping[str, int]) -> list[Lane]:
    """The rows in lanes without overlaps of labels, from below."""
    low = min(times.values(), default=1)
    scale = math.log(5 * max(times.values(), default=1) / low)
    lanes: list[Lane] = []
    ends: list[float] = []
    for label in sorted(times, key=lambda label: (able[label], times[label])):
        start = math.log(times[label] / low) / scale
        same = [lane for lane, (count, _) in enumerate(lanes) if count == able[label]]
        lane = next((lane for lane in same if ends[lane] < start), len(lanes))
        if lane == len(lanes):
            lanes.append((able[label], []))
            ends.append(0.0)
        lanes[lane][1].append(label)
        ends[lane] = start + LETTER * (len(label) + 7)
    return lanes


def _scales(axes: Axes, times: Sequence[float], lanes: Sequence[int]) -> None:
    low, high = min(times) / 1.3, max(times) * 4
    axes.set(xscale="log", xlim=(low, high), ylim=(-0.8, len(lanes) - 0.2))
    at = style.ticks(low, high)
    axes.set_xticks(at, [f"{tick:g}" for tick in at])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color=style.GREY, linewidth=1, linestyle=style.DASHES, zorder=1)
    bands = {n: [lane for lane, able in enumerate(lanes) if able == n] for n in lanes}
    axes.set_yticks([fmean(band) for band in bands.values()], [str(n) for n in bands])
    axes.grid(False, axis="y")
    for band in [*bands.values()][::2]:
        axes.axhspan(band[0] - 0.5, band[-1] + 0.5, color="#f4f4f4", zorder=0)
