"""Tables: a column is one entry, and each output shows the columns that name it.

Outputs are `page` (Markdown), `latex`, `terminal`, `readme` and `site`. The CSV file of a table has
the value of every column.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from reports.markdown import escape, table
from reports.text import NOTHING, WIDTH, plain, text_table

OUTPUTS = ("page", "latex", "terminal", "readme", "site")

TEX = str.maketrans({
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    NOTHING: "--", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
    "\N{REPLACEMENT CHARACTER}": "?",
})  # fmt: skip

PART = "*"
"""The mark of a score of a part of its runs."""

Line = Mapping[Hashable, Any]
"""A line of a table, by column."""


def lines(frame: pd.DataFrame) -> list[Line]:
    """The lines of a frame."""
    return [*frame.to_dict("records")]


class Cell(NamedTuple):
    """The text of a score; an output that has only plain text joins what it shows.

    Attributes:
        letters: of the rank groups.
        interval: with its brackets.
        notes: texts in small print.
        at_baseline: whether the score is no evidence.
        group: 1 for the best group, 0 for none.
        is_part: whether trials or seeds are missing; outputs without notes have a mark.
    """

    text: str
    letters: str = ""
    interval: str = ""
    notes: tuple[str, ...] = ()
    at_baseline: bool = False
    group: int = 0
    is_part: bool = False


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        name: of its values in the frame and the CSV file.
        of: the source of its values; the module of the table says of which form.
        heading: with its `unit`, if it has one.
        text: the text of a line.
        outputs: the outputs that show it.
        short: the heading on a terminal, if it is another.
        length: the number of tokens of a cost.
        descending: whether the site first sorts it from the most to the least.
        only_if_any: left out where no line has a value other than 0.
    """

    name: str
    of: Any = None
    heading: str = ""
    unit: str = ""
    text: Callable[[Line], str | Cell] = lambda line: ""
    outputs: Sequence[str] = OUTPUTS
    short: str = ""
    length: int = 0
    descending: bool = False
    only_if_any: bool = False

    @property
    def title(self) -> str:
        """The heading with the unit."""
        return ", ".join(filter(None, (self.heading, self.unit)))

    def cell(self, line: Line) -> Cell:
        """The cell of a line."""
        found = self.text(line)
        return Cell(found) if isinstance(found, str) else found


def shown(
    columns: Iterable[Column], output: str, frame: pd.DataFrame | None = None
) -> list[Column]:
    """The columns of an output; of a `frame`, those without a value are left out if they say so."""
    return [
        column
        for column in columns
        if output in column.outputs
        and (frame is None or not column.only_if_any or _has_any(frame[column.name]))
    ]


def _has_any(values: pd.Series) -> bool:
    return bool(values.replace("", 0).fillna(0).ne(0).any())


def markdown(columns: Sequence[Column], rows: Iterable[Line], *more: Sequence[str]) -> str:
    """The table in Markdown, with more rows of Markdown at its end."""
    cells = [[_markdown(column.cell(line)) for column in columns] for line in rows]
    return table([escape(column.title) for column in columns], [*cells, *more], align_right=True)


def _markdown(cell: Cell) -> str:
    text = escape(cell.text)
    text = f"*{text}*" if cell.at_baseline else f"{text} {cell.letters}".strip()
    small = "; ".join(filter(None, (cell.interval, *map(escape, cell.notes))))
    return f"{text}<br><sub>{small}</sub>" if small else text


def terminal(columns: Sequence[Column], rows: Iterable[Line], width: int = WIDTH) -> str:
    """The table on a terminal: a score in brackets at a baseline, with `*` where runs miss."""
    cells = [[_plain(column.cell(line)) for column in columns] for line in rows]
    return text_table([column.short or column.title for column in columns], cells, width)


def _plain(cell: Cell) -> str:
    text = f"({cell.text})" if cell.at_baseline else f"{cell.text} {cell.letters}".strip()
    return plain(f"{text}{PART * cell.is_part}")


def latex(columns: Sequence[Column], rows: Iterable[Line]) -> str:
    """The lines of a `tabular`, with rules of booktabs."""
    cells = [[_latex(column.cell(line)) for column in columns] for line in rows]
    head, *body = [
        " & ".join(texts) + r" \\" for texts in ([tex(column.title) for column in columns], *cells)
    ]
    return "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])


def _latex(cell: Cell) -> str:
    text = rf"\textit{{{tex(cell.text)}}}" if cell.at_baseline else tex(cell.text)
    letters = rf"\textsuperscript{{{cell.letters}}}" if cell.letters else ""
    ends = f"$_{{{cell.interval}}}$" if cell.interval else ""
    return f"{text}{PART * cell.is_part}{letters}{ends}"


def tex(text: str) -> str:
    """A text for LaTeX."""
    return plain(text).translate(TEX)
