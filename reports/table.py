"""Tables: a column is one entry, and each output renders the columns that name it.

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


class Cell(NamedTuple):
    """The text of a score; an output that has only plain text joins what it shows.

    Attributes:
        at_baseline: whether the score is not better than every baseline.
        group: 1 for the best group, 0 for none.
        is_part: whether trials or seeds are missing; outputs without notes have a mark.
        is_best: whether it is the best of its line.
    """

    text: str
    letters: str = ""
    interval: str = ""
    notes: tuple[str, ...] = ()
    at_baseline: bool = False
    group: int = 0
    is_part: bool = False
    is_best: bool = False


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        name: of its values in the frame and the CSV file.
        of: the source of its values; the module of the table says of which form.
        heading: with its `unit`, if it has one.
        write: gives the text of its value.
        text: gives the text of a line, where that depends on more than the value.
        outputs: the outputs that show it.
        short: the heading on a terminal, if it is another.
        note: the explanation below the table of a page.
        length: the number of tokens of a cost.
        descending: whether the site first sorts it from the most to the least.
        only_if_any: left out where no line has a value other than 0.
        csv: the heading in a CSV file, if it is another than the name.
    """

    name: str
    of: Any = None
    heading: str = ""
    unit: str = ""
    write: Callable[[Any], str | Cell] = str
    text: Callable[[Line], str | Cell] | None = None
    outputs: Sequence[str] = OUTPUTS
    short: str = ""
    note: str = ""
    length: int = 0
    descending: bool = False
    only_if_any: bool = False
    csv: str = ""

    @property
    def title(self) -> str:
        """The heading with the unit."""
        return ", ".join(filter(None, (self.heading, self.unit)))

    def cell(self, line: Line) -> Cell:
        """The cell of a line; a dash in place of no text."""
        found = self.text(line) if self.text else self.write(line[self.name])
        return Cell(found or NOTHING) if isinstance(found, str) else found


ROW = Column(name="row", heading="attention")
"""The variant of a line."""


def values(*names: str, of: Any = None, **headings: str) -> list[Column]:
    """Columns of the CSV file alone; `headings` are those that differ from their names."""
    return [Column(name=name, of=of, csv=headings.get(name, ""), outputs=()) for name in names]


def shown(
    columns: Iterable[Column], output: str, frame: pd.DataFrame | None = None
) -> list[Column]:
    """The columns of an output; of a `frame`, those without a value are left out if they say so."""
    return [
        column
        for column in columns
        if output in column.outputs
        and (frame is None or not column.only_if_any
             or frame[column.name].replace("", 0).fillna(0).ne(0).any())
    ]  # fmt: skip


class Table(NamedTuple):
    """The columns of one output and the lines, which each output renders."""

    columns: Sequence[Column]
    lines: Sequence[Line]

    def markdown(self, *more: Sequence[str], align_right: bool = True) -> str:
        """The table in Markdown, with more rows of Markdown at its end."""
        head = [escape(column.title) for column in self.columns]
        return table(head, [*self._cells(_markdown), *more], align_right=align_right)

    def terminal(self, width: int = WIDTH) -> str:
        """The table on a terminal: a score in brackets at a baseline, with `*` where runs miss."""
        head = [column.short or column.title for column in self.columns]
        return text_table(head, self._cells(_plain), width)

    def latex(self) -> str:
        """The lines of a `tabular`, with rules of booktabs."""
        head = [tex(column.title) for column in self.columns]
        head, *body = (" & ".join(texts) + r" \\" for texts in (head, *self._cells(_latex)))
        return "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])

    def _cells(self, write: Callable[[Cell], str]) -> list[list[str]]:
        return [[write(column.cell(line)) for column in self.columns] for line in self.lines]


def grid(
    frame: pd.DataFrame, corner: Column, across: Mapping[Any, str],
    key: str, text: Callable[[Line], str | Cell],
) -> Table:  # fmt: skip
    """The table of a frame with a line for each value of `corner`, in order, and a dash for none.

    The `frame` has a line for each cell. Its column `corner.name` is the first one of the table;
    its column `key` chooses another, whose heading is in `across`. `text` is that of a cell.
    """
    found: dict[Any, dict[Hashable, Any]] = {}
    for line in frame.to_dict("records"):
        found.setdefault(line[corner.name], {corner.name: line[corner.name]})[key, line[key]] = line
    columns = [
        Column(name=heading, heading=heading,
               text=lambda of, value=value: text(of[key, value]) if (key, value) in of else NOTHING)
        for value, heading in across.items()
    ]  # fmt: skip
    return Table([corner, *columns], [*found.values()])


def _markdown(cell: Cell) -> str:
    text = escape(cell.text)
    text = f"*{text}*" if cell.at_baseline else text
    text = f"{text} {cell.letters}".strip()
    text = f"**{text}**" if cell.is_best else text
    small = "; ".join(filter(None, (cell.interval, *map(escape, cell.notes))))
    return f"{text}<br><sub>{small}</sub>" if small else text


def _plain(cell: Cell) -> str:
    text = f"({cell.text})" if cell.at_baseline else cell.text
    text = f"{text} {cell.letters}".strip()
    return plain(f"{text}{PART * cell.is_part}")


def _latex(cell: Cell) -> str:
    text = rf"\textit{{{tex(cell.text)}}}" if cell.at_baseline else tex(cell.text)
    letters = rf"\textsuperscript{{{cell.letters}}}" if cell.letters else ""
    ends = f"$_{{{cell.interval}}}$" if cell.interval else ""
    return f"{text}{PART * cell.is_part}{letters}{ends}"


def headed(frame: pd.DataFrame, columns: Iterable[Column]) -> pd.DataFrame:
    """The columns of a frame as a CSV file has them; whole numbers are integers."""
    names = {column.name: column.csv or column.name.replace(".", "_") for column in columns}
    return frame[[*names]].convert_dtypes().rename(columns=names)


def tex(text: str) -> str:
    """A text for LaTeX."""
    return plain(text).translate(TEX)
