"""The style of all figures: colours and markers of rows, panels, texts and file formats."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from textwrap import fill
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from harness.records.families import colour_of, family_of
from reports.text import digest, frame_csv, plain

GREY = "#6f6f6f"
EMPTY, BARS = "#f1f1f1", "#b9c6d6"  # The colours of an empty field and of a bar
FAINT = "#c9c9c9"  # The colour of rows without a name

# The colours that an SVG file exchanges in the dark, as matplotlib writes them.
IN_THE_DARK = {
    "#ffffff": "#0d1117", "#262626": "#e6e6e6", GREY: "#a3a3a3", "#cccccc": "#4a4f57",
    "#e5e5e5": "#2b3036", EMPTY: "#20252b", BARS: "#3d4f66", FAINT: "#4a4f57",
}  # fmt: skip

COLOURS: tuple[str, ...] = tuple(sns.color_palette("colorblind").as_hex())
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")

STYLE: dict[Any, Any] = {
    **sns.axes_style("whitegrid"), **sns.plotting_context("paper"),
    "axes.prop_cycle": cycler(color=COLOURS), "axes.spines.right": False,
    "axes.spines.top": False, "figure.dpi": 160, "grid.color": ".9", "legend.frameon": False,
    # The fonts of other machines would give other bytes.
    "font.family": "DejaVu Sans", "legend.fontsize": 8,
    "svg.hashsalt": "figures",
    # Texts come from records: "$" begins no formula.
    "text.parse_math": False,
}  # fmt: skip

# Inches of a panel with its legend, and of a line of the legend.
WIDTH, HEIGHT, LINE_HEIGHT = 6.8, 3.8, 0.165
MOST_PANELS = 40  # Panels of one figure, which limit its size in pixels
APART = 0.075  # The distance of two names at the ends of lines, as a share of the height
MOST_COLOURED = 8  # Coloured rows of one panel; the others are grey
SLOTS = len(COLOURS) * len(MARKERS)
# A title, a function that draws, and lines of the legend.
Panel = tuple[str, Callable[[Axes], object], int]

# The most characters of a note, of a label, and of a line of small print.
TEXT, LABEL, LINE = 400, 34, 60


def point_styles(rows: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    # Coloured are the best row of each family, then others in order, `MOST_COLOURED` in all; rows
    # of one family have its colour and other markers. The rest is grey.
    attention = {label: name for name, label in rows}
    best = {family_of(attention[label]): label for label in reversed(attention)}
    others = [label for label in attention if label not in best.values()]
    firsts = [label for label in attention if label in best.values()]
    used, grey = Counter[str](), (FAINT, "")
    styles: dict[str, tuple[str, str]] = dict.fromkeys(attention, grey)
    for label in [*firsts, *others][:MOST_COLOURED]:
        colour = colour_of(attention[label])
        styles[label] = colour, MARKERS[used[colour]]
        used[colour] += 1
    return styles


def panels(heights: Sequence[float], width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    # All sizes in inches.
    columns = min(max(len(heights), 1), 2)
    rows = [max(heights[i : i + columns]) for i in range(0, len(heights), columns)] or [1.0]
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.02, hspace=0.02)
    figure = Figure((width * columns, sum(rows)), layout=layout)
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=rows)
    return figure, [figure.add_subplot(grid[divmod(i, columns)]) for i in range(len(heights))]


def draw_panels(described: Sequence[Panel], height: float = HEIGHT) -> Figure:
    first = described[:MOST_PANELS]
    figure, axes = panels([max(height, 1 + LINE_HEIGHT * lines) for _, _, lines in first])
    for panel, (title, draw, _) in zip(axes, first, strict=True):
        heading(panel, title)
        draw(panel)
    return figure


def draw_rows(axes: Axes, lines: pd.DataFrame, x: str, y: str, order: Sequence[str]) -> None:
    # A line of `lines` is a point: `attention`, `row`, `x`, `y`; `low` and `high` of the band.
    attention = dict(zip(lines["row"], lines["attention"], strict=True))
    styles = point_styles([(attention[row], row) for row in order if row in attention][:SLOTS])
    handles = []
    for row in styles:
        part, (colour, marker) = lines[lines["row"] == row], styles[row]
        # About eight markers.
        every = max(1, len(part) // 8)
        handles += axes.plot(part[x], part[y], color=colour, marker=marker, markersize=4,
                             markevery=every, label=label(row))  # fmt: skip
        axes.fill_between(part[x], part["low"], part["high"], color=colour, alpha=0.2, lw=0)
    legend(axes, handles)


def heading(axes: Axes, title: str, small: str | None = None) -> None:
    # The options of "listops@1[min_len=10,max_len=64], budget laptop" are in small type as well.
    name = title
    if small is None:
        name = re.split(r"[\[,]", plain(title), maxsplit=1)[0]
        small = plain(title)[len(name) :].strip("[, ").replace("]", "", 1)
    lines = fill(plain(small, TEXT), LINE)
    axes.annotate(
        lines, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points",
        fontsize=8, color=GREY, va="bottom",
    )  # fmt: skip
    pad = 10 + 11 * (1 + lines.count("\n"))
    axes.set_title(label(name), loc="left", fontweight="bold", fontsize=12, pad=pad)


def end_labels(axes: Axes, ends: Sequence[tuple[float, float, str, Any]]) -> None:
    # The names of points beside the axes, one above the other, and none above the top.
    axes.get_ylim()  # scales the axes
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = sorted(ends, key=lambda of: (of[1], -of[0]))
    places = [float(to_axes.transform((x, y))[1]) for x, y, *_ in ends]
    apart, last = min(APART, 1 / max(1, len(ends))), -math.inf
    for i, place in enumerate(places):
        last = places[i] = max(place, last + apart)
    top = 1.0
    for i, place in reversed([*enumerate(places)]):
        places[i] = min(place, top)
        top = places[i] - apart
    for (x, y, text, colour), place in zip(ends, places, strict=True):
        axes.annotate(
            text, (x, y), (1.05, place), textcoords="axes fraction", color=colour, va="center",
            fontsize=9 if apart == APART else 7.5,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "color": colour, "linewidth": 0.5},
        )  # fmt: skip


def label(text: str) -> str:
    # Matplotlib leaves entries that begin with an underscore out of a legend.
    return plain(text, LABEL).lstrip("_") or " "


def legend(axes: Axes, handles: Sequence[Any]) -> None:
    colours = [(h[0] if isinstance(h, tuple) else h).get_color() for h in handles]
    pairs = [*zip(handles, colours, strict=True)]
    entries = [handle for handle, colour in pairs if colour != FAINT]
    if grey := [str(handle.get_label()) for handle, colour in pairs if colour == FAINT]:
        text = fill(f"grey: {', '.join(grey)}", LABEL)
        entries.append(Line2D([], [], color=FAINT, label=text))
    axes.legend(handles=entries, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0)


def ticks(low: float, high: float) -> list[float]:
    for steps in (range(1, 2), (1, 3), (1, 2, 5), range(1, 10)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [step * 10.0**power for power in powers for step in steps]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) > 2:
            return found
    return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]


def token_ticks(axes: Axes, tokens: Sequence[float], *, log: bool) -> None:
    # `log` is of the other axis.
    axes.set_xticks(tokens, [f"{length:,.0f}" for length in tokens])
    axes.xaxis.set_minor_locator(NullLocator())
    if log:
        axes.set(yscale="log")
        axes.set_yticks(ticks(*axes.get_ylim()))
        # The default formatter writes powers as formulas, which are not parsed.
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def table_with_images(
    name: str, table: pd.DataFrame, draw: Callable[..., Figure], *content: Any
) -> dict[str, bytes]:
    csv = frame_csv(table)
    return {f"{name}.csv": csv, **images(name, digest(f"{name}.csv", csv), draw, *content)}


def images(
    name: str, source: str | None, draw: Callable[..., Figure], *content: Any
) -> dict[str, bytes]:
    # Equal content gives equal bytes. Both have `source` as their description.
    files = {}
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = draw(*content)
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            stream = BytesIO()
            figure.savefig(stream, format=kind, metadata={**metadata, "Description": source})
            files[f"{name}.{kind}"] = stream.getvalue()
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in IN_THE_DARK.items() for what in ("fill", "stroke")
    )  # fmt: skip
    added = f"<style>@media(prefers-color-scheme:dark){{{rules}}}</style><metadata>".encode()
    return files | {f"{name}.svg": files[f"{name}.svg"].replace(b"<metadata>", added, 1)}
