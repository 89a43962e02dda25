"""The heat map of a suite: a row for each variant, a field for each question, bars of costs."""

import math
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from harness.records.families import family_of
from reports.figures import style
from reports.layer_costs import CAUSAL
from reports.text import number

if TYPE_CHECKING:
    from reports.pages.suite import Tables

# Inches of a row, of the headings of a form, and the share of a row between families.
LINE, HEAD, GAP = 0.25, 0.75, 0.3

FIELD, BAR, LABELS = 0.85, 0.95, 1.75  # Inches of a field, of a bar, and of the names of variants

EMPTY, BARS = "#f1f1f1", "#b9c6d6"

UNITS = ((2**20, "M"), (2**10, "K"))


def draw(of: "Tables") -> Figure:
    forms = [form for form in of.matrix if of.rows(form)]
    heights = [HEAD + LINE * _height(of, form) for form in forms] or [1.0]
    width = LABELS + max(
        (FIELD * len(of.questions(form)) + BAR * len(_costs(of, form)) for form in forms),
        default=1.0,
    )
    figure = Figure((width, sum(heights)))
    FigureCanvasAgg(figure)
    top = sum(heights)
    for form, height in zip(forms, heights, strict=True):
        axes = figure.add_axes((0, (top - height) / sum(heights), 1, height / sum(heights)))
        axes.set(xlim=(0, width), ylim=(_height(of, form), -HEAD / LINE))
        axes.axis("off")
        _panel(axes, of, form)
        top -= height
    return figure


def _costs(of: "Tables", form: str) -> list[tuple[str, str]]:
    length = of.suite.cost.middle_length
    found = [(f"time.{length}", f"time\n{length:,}"), (f"memory.{length}", f"memory\n{length:,}")]
    found += [("state_bytes", "state\nbytes")] if form == CAUSAL else []
    return [(name, heading) for name, heading in found if of.matrix[form][name].notna().any()]


def _places(of: "Tables", form: str) -> dict[str, float]:
    places: dict[str, float] = {}
    at, last = 0.0, ""
    for row in of.rows(form):
        family = family_of(str(of.matrix[form].at[row, "attention"]))
        at += GAP * bool(last and family != last)
        places[row], at, last = at, at + 1, family
    return places


def _height(of: "Tables", form: str) -> float:
    return max(_places(of, form).values(), default=0.0) + 1


def _panel(axes: Axes, of: "Tables", form: str) -> None:
    places, answers = _places(of, form), of.answers.set_index(["question", "row"])
    axes.text(LABELS - 0.1, -1.2, form, ha="right", va="center", fontweight="bold")
    for row, at in places.items():
        axes.text(LABELS - 0.1, at + 0.5, style.label(row), ha="right", va="center", fontsize=9)
    left = LABELS
    for question in of.questions(form):
        axes.text(left + FIELD / 2, -0.25, fill(question.title, 12),
                  ha="center", va="bottom", fontsize=9)  # fmt: skip
        every = answers.xs(question.name)
        found = every.reindex([*places])
        for row, colour in zip(places, _colours(found, every), strict=True):
            axes.fill_between([left, left + FIELD - 0.03], places[row] + 0.04, places[row] + 0.96,
                              color=colour or EMPTY, linewidth=0)  # fmt: skip
            if colour:
                dark = float(np.dot(to_rgb(colour), (0.3, 0.6, 0.1))) < 0.55
                text, ink = str(found.at[row, "text"]), "white" if dark else ".15"
                axes.text(left + FIELD / 2, places[row] + 0.5, text, ha="center", va="center",
                          fontsize=9, color=ink)  # fmt: skip
        left += FIELD
    for name, heading in _costs(of, form):
        values = of.matrix[form][name].reindex([*places])
        axes.text(left + 0.15, -0.25, heading, ha="left", va="bottom", fontsize=9)
        _bars(axes, left + 0.12, places, values, of_bytes=name == "state_bytes")
        left += BAR


def _colours(found: Any, every: Any) -> list[Any]:
    # Where a baseline is the best, the worst result is the lightest.
    sign = -1.0 if (every["better"] == "lower").any() else 1.0
    means, scores = sign * found["mean"].astype(float), sign * every["mean"].astype(float)
    low, high = (sign * every["baseline_value"].astype(float)).max(), scores.max()
    low = low if low < high else scores.min()
    share = ((means - low) / (high - low)).clip(0, 1) if high > low else 0 * means
    palette = sns.color_palette("crest", as_cmap=True)
    return [palette(value) if value == value else None for value in share]


def _bars(
    axes: Axes, left: float, places: Mapping[str, float], values: pd.Series, *, of_bytes: bool
) -> None:
    known = [value for value in values if value == value and value > 0]
    low, high = (min(known) / 3, max(known)) if known else (1.0, 1.0)
    for row, value in values.items():
        if value != value:
            continue
        share = math.log(max(value, low) / low) / math.log(high / low) if high > low else 1.0
        axes.fill_between([left, left + (BAR - 0.2) * share], places[str(row)] + 0.12,
                          places[str(row)] + 0.88, color=BARS, linewidth=0)  # fmt: skip
        text = bytes_text(value) if of_bytes else number(value)
        axes.text(left + 0.04, places[str(row)] + 0.5, text, va="center", fontsize=8)


def bytes_text(count: float) -> str:
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.0f}{unit}"
    return f"{count:.0f}"
