"""Tables: a column is one entry, and each output renders the columns that name it."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from reports.markdown import escape, table
from reports.text import NOTHING, WIDTH, plain, text_table, without_nan

OUTPUTS = ("page", "latex", "terminal", "readme", "site")

TEX = str.maketrans({
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    NOTHING: "--", "↑": r"$\uparrow$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
    "\N{REPLACEMENT CHARACTER}": "?",
})  # fmt: skip

RISING = "↑"  # The mark of a score that still rises
Line = Mapping[Hashable, Any]


class Cell(NamedTuple):
    text: str
    interval: str = ""
    seeds: str = ""  # Seeds at the ceiling, `3/5`, if neither all nor none; missing runs
    rising: bool = False  # The curve still rises
    at_baseline: bool = False  # Not better than every baseline
    is_best: bool = False  # No other score is separably better

    @property
    def marks(self) -> str:
        return " ".join(filter(None, (self.seeds, RISING * self.rising)))


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str  # Of its values in the frame and the CSV file
    of: Any = None  # The source of its values; see the module of the table
    heading: str = ""
    unit: str = ""  # Follows the heading
    write: Callable[[Any], str | Cell] = str  # Gives the text of a value
    text: Callable[[Line], str | Cell] | None = None  # Gives a text that depends on the whole line
    outputs: Sequence[str] = OUTPUTS  # The outputs that show it
    short: str = ""  # Another heading on a terminal
    note: str = ""  # The explanation below the table of a page
    length: int = 0  # The tokens of a cost
    descending: bool = False  # The site first sorts it from the most to the least
    only_if_any: bool = False  # Left out if no line has a value other than 0
    csv: str = ""  # Another heading in a CSV file

    @property
    def title(self) -> str:
        return ", ".join(filter(None, (self.heading, self.unit)))

    def cell(self, line: Line) -> Cell:
        found = self.text(line) if self.text else self.write(line[self.name])
        return Cell(found or NOTHING) if isinstance(found, str) else found


# The variant of a line, with the mark of the line if it has one
ROW = Column(name="row", heading="attention", text=lambda of: f"{of['row']}{of.get('mark', '')}")


def values(*names: str, of: Any = None, **headings: str) -> list[Column]:
    return [Column(name=name, of=of, csv=headings.get(name, ""), outputs=()) for name in names]


class Table(NamedTuple):
    columns: Sequence[Column]
    lines: Sequence[Line]

    def markdown(self, *more: Sequence[str], align_right: bool = True, marks: bool = True) -> str:
        # Without `marks` an entry has its interval alone.
        head = [escape(column.title) for column in self.columns]
        cells = self._cells(_markdown if marks else _without_marks)
        return table(head, [*cells, *more], align_right=align_right)

    def terminal(self, width: int = WIDTH) -> str:
        head = [column.short or column.title for column in self.columns]
        return text_table(head, self._cells(_plain), width)

    def latex(self) -> str:
        head = [tex(column.title) for column in self.columns]
        head, *body = (" & ".join(texts) + r" \\" for texts in (head, *self._cells(_latex)))
        return "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])

    def _cells(self, write: Callable[[Cell], str]) -> list[list[str]]:
        return [[write(column.cell(line)) for column in self.columns] for line in self.lines]


def grid(
    frame: pd.DataFrame, corner: Column, across: Mapping[Any, str], key: str,
    text: Callable[[Line], str | Cell],
) -> Table:  # fmt: skip
    # `frame` has a line for each cell, in row `corner.name` and column `key`.
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
    stars = "*" * (cell.at_baseline + 2 * cell.is_best)
    text = f"{stars}{escape(cell.text)}{stars}"
    small = " ".join(filter(None, (cell.interval, escape(cell.marks))))
    return f"{text} <sub>{small}</sub>" if small else text


def _without_marks(cell: Cell) -> str:
    text = _markdown(Cell(cell.text, at_baseline=cell.at_baseline, is_best=cell.is_best))
    interval = cell.interval.replace(" ", "&nbsp;")
    return f"{text}<br><sub>{interval}</sub>" if interval else text


def _plain(cell: Cell) -> str:
    text = f"({cell.text})" if cell.at_baseline else cell.text
    return plain(f"{text} {cell.marks}".rstrip())


def _latex(cell: Cell) -> str:
    text = tex(cell.text)
    text = rf"\textcolor{{gray}}{{{text}}}" if cell.at_baseline else text
    text = rf"\textbf{{{text}}}" if cell.is_best else text
    ends = f"$_{{{cell.interval}}}$" if cell.interval else ""
    return f"{text}{ends} {tex(cell.marks)}".rstrip()


def headed(frame: pd.DataFrame, columns: Iterable[Column]) -> pd.DataFrame:
    names = {column.name: column.csv or column.name.replace(".", "_") for column in columns}
    return frame[[*names]].convert_dtypes().rename(columns=names)


def records(frame: pd.DataFrame, columns: Iterable[Column]) -> list[dict[Any, Any]]:
    return without_nan(headed(frame, columns)).to_dict("records")


def tex(text: str) -> str:
    return plain(text).translate(TEX)
