"""The heat map of a suite: a row for each variant, a field for each question, bars of costs."""

import math
import re
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from harness.records.families import family_of, is_control, order_of
from reports.figures import style
from reports.layer_costs import CAUSAL
from reports.pages.sentences import BOTH, few_rows
from reports.suite_results import on_longest
from reports.text import plain, ratio_text

if TYPE_CHECKING:
    from reports.pages.suite import Tables

# Inches of a row, of the name of a form, of a line of a heading, of one of the key, and the share
# of a row between families.
LINE, FORM, HEAD, FOOT, GAP = 0.25, 0.35, 0.16, 0.15, 0.3

# Inches of a field, of a bar, of a character of the name of a variant, and between two forms.
FIELD, BAR, CHARACTER, BETWEEN = 0.72, 0.8, 0.092, 0.2

# Inks of the fields: other than those of a page, which `style` exchanges in the dark.
LIGHT_INK, DARK_INK = "#fffffe", "#000001"
EQUAL = 0.179  # The luminance of a field on which both have the same contrast (WCAG 2)
EMPTY, BARS = style.EMPTY, style.BARS
KEY = "Darker is better, from the strongest baseline to the best result. Bold: within 2 % of the "
KEY += "best, and none is separably better. Italic: not separably better than the strongest "
KEY += "baseline. Grey: not run. White: not possible, or not measured. Bars are logarithmic."

# Characters of a line of a heading, the size of its type where no word is longer, the most
# characters of one, and characters of the key for an inch.
HEADING, SIZE, LONGEST, KEY_INCH = 9, 9.6, 60, 15
UNITS = ((2**20, "M"), (2**10, "K"))


def draw(of: "Tables") -> Figure:
    groups = [(form, _fields(of, form), _costs(of, form)) for form in of.matrix if of.rows(form)]
    widths = [FIELD * len(asked) + BAR * len(costs) + BETWEEN for _, asked, costs in groups]
    places: dict[str, float] = {}
    at, last = 0.0, ""
    few = {row for form in of.matrix for row in few_rows(of, form)}
    attentions = of.answers.drop_duplicates("row").set_index("row")["attention"].to_dict()
    rows = dict.fromkeys(row for matrix in of.matrix.values() for row in matrix.index)
    named = {str(row): str(attentions[row]) for row in rows if row in few}
    for row, attention in sorted(named.items(), key=lambda of: order_of(of[1])):
        family = family_of(attention)
        at += GAP * bool(last and family != last)
        places[row], at, last = at, at + 1, family
    height = max(places.values(), default=0.0) + 1
    labels = 0.3 + CHARACTER * max((len(style.label(row)) for row in places), default=0)
    lower = {*of.answers.loc[of.answers["better"] == "lower", "question"]}
    titles = [of.title for of in of.suite.questions if of.name in lower]
    text = f" Lower is better: {', '.join(titles)}." * bool(titles)
    headings = [field.heading for _, fields, _ in groups for field in fields]
    probed = {*of.answers.loc[of.answers["longest.text"] != "", "question"]}
    titles += [of.longest_title for of in of.suite.questions if of.name in probed]
    text += f" The lightest is the worst result of {' and '.join(titles)}." * bool(titles)
    key = fill(KEY + text, int(KEY_INCH * sum(widths)) or 1)
    lines = max((heading.count("\n") + 1 for heading in headings), default=1)
    head, foot = FORM + HEAD * max(lines, 2), FOOT * (2 + key.count("\n"))
    width = labels + sum(widths)
    figure = Figure((width, head + foot + LINE * height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height + foot / LINE, -head / LINE))
    axes.axis("off")
    for row, at in places.items():
        axes.text(labels - 0.1, at + 0.5, style.label(row), ha="right", va="center")
    left = labels
    for (form, fields, costs), taken in zip(groups, widths, strict=True):
        axes.text(left, 0.3 - head / LINE, form, va="top", fontweight="bold")
        _group(axes, of, form, fields, costs, left, places)
        left += taken
    axes.text(labels, height + 0.4, key, va="top", fontsize=8, color=style.GREY)
    return figure


def _costs(of: "Tables", form: str) -> list[tuple[str, str]]:
    length = of.suite.cost.middle_length
    found = [(f"time.{length}", f"time at\n{length:,}")]
    state = f"state at\n{of.suite.cost.longest_length:,}"
    found += [("state_bytes", state)] if form == CAUSAL else []
    return [(name, heading) for name, heading in found if of.matrix[form][name].notna().any()]


class Field(NamedTuple):
    title: str  # Of its question
    heading: str
    answers: pd.DataFrame  # By row


def _fields(of: "Tables", form: str) -> list[Field]:
    found = list[Field]()
    for question in of.questions(form):
        every = of.answers[of.answers["question"] == question.name].set_index("row")
        found.append(Field(question.title, _heading(question.title), every))
        if every["longest.text"].any():
            heading = _heading(question.longest_title)
            found.append(Field(question.title, heading, on_longest(every)))
    return found


def _group(
    axes: Axes, of: "Tables", form: str, fields: Sequence[Field],
    costs: Sequence[tuple[str, str]], left: float, places: Mapping[str, float],
) -> None:  # fmt: skip
    rows = of.rows(form)
    here = {row: at for row, at in places.items() if row in rows}
    longest = max((len(word) for of in fields for word in of.heading.split()), default=1)
    size = SIZE * min(1, (HEADING + 1) / longest)
    for title, heading, every in fields:
        axes.text(left + FIELD / 2, -0.25, heading, ha="center", va="bottom", fontsize=size)
        found = every.reindex([*here])
        for (row, at), colour in zip(here.items(), colours(found, every), strict=True):
            if colour or (row, title) in of.missing:
                axes.fill_between([left, left + FIELD - 0.03], at + 0.04, at + 0.96,
                                  color=colour or EMPTY, linewidth=0)  # fmt: skip
            if colour:
                axes.text(left + FIELD / 2, at + 0.5, str(found.at[row, "text"]), ha="center",
                          va="center", color=ink_on(colour),
                          **_type(found.loc[row]))  # fmt: skip
        left += FIELD
    for name, heading in costs:
        values = of.matrix[form][name].reindex([*here])
        axes.text(left + 0.15, -0.25, heading, ha="left", va="bottom")
        _bars(axes, left + 0.12, places, values, of_bytes=name == "state_bytes")
        left += BAR


def ink_on(colour: Any) -> str:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return LIGHT_INK if np.dot(linear, (0.2126, 0.7152, 0.0722)) < EQUAL else DARK_INK


def _type(answer: Any) -> dict[str, Any]:
    if is_control(answer["attention"]):
        return {}
    italic = {"fontstyle": "italic"} if answer["at_baseline"] else {}
    return italic | ({"fontweight": "bold"} if answer["best"] else {})


def _heading(title: str) -> str:
    title = plain(title.removesuffix(BOTH), LONGEST)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", title)  # JapaneseVowels
    return fill(words, HEADING, break_long_words=False)


def colours(found: Any, every: Any) -> list[Any]:
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
        text = bytes_text(value) if of_bytes else ratio_text(value)
        axes.text(left + 0.04, places[str(row)] + 0.5, text, va="center", fontsize=9)


def bytes_text(count: float) -> str:
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.0f}{unit}"
    return f"{count:.0f}"
