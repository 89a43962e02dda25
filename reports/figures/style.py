"""What all figures share: colours and markers of variants, panels, texts and file formats."""

import hashlib
import re
import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from textwrap import fill
from typing import Any, NamedTuple

import seaborn
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from harness.records.record import Metric
from reports.tables.boards import Baselines
from reports.text import plain

GREY = "#6f6f6f"

STYLE: dict[Any, Any] = {
    **seaborn.axes_style("whitegrid"), **seaborn.plotting_context("paper"),
    "axes.spines.right": False, "axes.spines.top": False, "figure.dpi": 160, "grid.color": ".9",
    # The fonts of other machines would give other bytes.
    "font.family": "DejaVu Sans", "legend.fontsize": 8, "legend.frameon": False,
    "svg.hashsalt": "figures",
    # Texts come from records: "$" begins no formula.
    "text.parse_math": False,
}  # fmt: skip

COLOURS: tuple[str, ...] = tuple(seaborn.color_palette("colorblind", 10).as_hex())
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ((0, (4, 3)), (0, (1, 2)), (0, (6, 2, 1, 2)), (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))

VARIANTS = (
    "softmax", "primal", "softmax+primal", "linear", "performer", "nystrom", "reformer", "none",
    "linformer", "local", "longformer", "cosformer", "flowformer", "retention", "gated-linear",
    "yoso", "soft", "cosine", "nystrom-lib", "performer-lib", "reformer-lib", "fla-gla",
    "fla-deltanet", "fla-gated-deltanet", "fla-retention",
)  # fmt: skip
"""Variants with a colour and marker of their own, the same in every figure."""

MOST_PANELS, MOST_BASELINES = 40, len(DASHES)
"""Panels of one figure, which limit its size in pixels, and baselines of one panel."""

SLOTS = len(COLOURS) * len(MARKERS)
TEXT, LABEL, LINE = 400, 34, 74
"""The most characters of a note, of a label, and of a line of small print."""


class PointStyle(NamedTuple):
    """Colour and marker of one row of a panel."""

    colour: str
    marker: str


def point_styles(rows: Iterable[tuple[str, str]]) -> dict[str, PointStyle]:
    """Colour and marker of each row of a panel, given as (attention, label), by its label.

    All are different up to `SLOTS` rows. The first row of a variant in `VARIANTS` has the variant's
    colour and marker; rows with other options have other markers of the same colour. The style of
    any other name is chosen by its hash.
    """
    slots = {name: slot for slot, name in enumerate(VARIANTS)}
    first, used, chosen = dict(slots), set(slots.values()), {}
    # The other markers of a colour come first, then the next colours.
    steps = [len(COLOURS) * (i % len(MARKERS)) + i // len(MARKERS) for i in range(SLOTS)]
    for attention, label in sorted(rows):
        start = slots.get(attention, int(hashlib.sha256(attention.encode()).hexdigest(), 16))
        free = (slot for step in steps if (slot := (start + step) % SLOTS) not in used)
        chosen[label] = first.pop(attention, None)
        if chosen[label] is None:
            chosen[label] = next(free, start % SLOTS)
        used.add(chosen[label])
    return {label: style_of(slot) for label, slot in chosen.items()}


def style_of(slot: int) -> PointStyle:
    """The style of a number; those of 0 to `SLOTS` - 1 are different."""
    row, column = divmod(slot, len(COLOURS))
    return PointStyle(COLOURS[column], MARKERS[(row + column) % len(MARKERS)])


def panels(heights: Sequence[float], width: float, extra: float) -> tuple[Figure, list[Axes]]:
    """A figure of panels in two columns, or in one for a single panel; all sizes in inches.

    A row is as high as its highest panel. `width` is that of a panel with its legend, `extra` the
    height below the panels.
    """
    columns = min(max(len(heights), 1), 2)
    rows = [max(heights[i : i + columns]) for i in range(0, len(heights), columns)] or [1.0]
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.02, hspace=0.02)
    figure = Figure((width * columns, sum(rows) + extra), layout=layout)
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=rows)
    return figure, [figure.add_subplot(grid[divmod(i, columns)]) for i in range(len(heights))]


def heading(axes: Axes, title: str) -> None:
    """The name of the task above a panel, and below it the rest of the title in small type."""
    # The options of "listops@1[min_len=10,max_len=64], budget laptop" are in small type as well.
    name = re.split(r"[\[,]", plain(title), maxsplit=1)[0]
    lines = _wrap(plain(title)[len(name) :].strip("[, ").replace("]", "", 1))
    axes.annotate(
        lines, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points",
        fontsize=8, color=GREY, va="bottom",
    )  # fmt: skip
    pad = 10 + 11 * (1 + lines.count("\n"))
    axes.set_title(label(name), loc="left", fontweight="bold", fontsize=12, pad=pad)


def label(text: str) -> str:
    """A short text as one line, for a legend or a title."""
    # Matplotlib leaves entries that begin with an underscore out of a legend.
    return plain(text, LABEL).lstrip("_") or " "


def not_shown(axes: Axes, reasons: Sequence[str]) -> None:
    """Small text below the axis label of a panel; nothing where there are no reasons."""
    if reasons:
        axes.annotate(
            _wrap(f"Not shown: {'; '.join(reasons)}"), (0, 0), (0, -36), xycoords="axes fraction",
            textcoords="offset points", fontsize=8, color=GREY, va="top", fontstyle="italic",
        )  # fmt: skip


def draw_baselines(axes: Axes, baselines: Baselines, metric: Metric) -> list[Line2D]:
    """Draw a line for each baseline within the limits of the panel; return entries of a legend."""
    low, high = axes.get_ylim()
    within = [(name, value) for name, value in baselines if low <= value <= high]
    return [
        axes.axhline(value, color=GREY, linewidth=1, linestyle=dashes, zorder=1.5,
                     label=f"{label(name)} {metric.text(value)}")
        for (name, value), dashes in zip(within, DASHES, strict=False)
    ]  # fmt: skip


def legend(axes: Axes, handles: Sequence[Line2D]) -> None:
    """List the handles to the right of a panel, outside the axes."""
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0)


def save(figure: Figure, name: str, source: str | None = None) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; the same figure gives the same bytes.

    Both have `source`, an identifier of the data that they were drawn from, as their description.
    """
    files = {}
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        stream = BytesIO()
        with warnings.catch_warnings():
            # A character that the font lacks is drawn as a box.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(stream, format=kind, metadata={**metadata, "Description": source})
        files[f"{name}.{kind}"] = stream.getvalue()
    return files


def _wrap(text: str) -> str:
    return fill(plain(text, TEXT), LINE)
