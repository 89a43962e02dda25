"""Texts from records: any characters may occur in them, so nothing is printed without `plain`."""

import csv
import hashlib
import io
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "–"
"""In place of a value that is not there."""


def number(value: float) -> str:
    """Three significant digits, or all digits before the point where there are more."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return f"{value:.3g}" if "e" in text else text.rstrip(".")


def plain(text: str, limit: int | None = None) -> str:
    """`text` on one line, with U+FFFD for each character that cannot be printed.

    A text of more than `limit` characters ends with an ellipsis.
    """
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    """A table in lines of at most `width` characters; a long cell continues on the next line.

    A first column of names, at most a third of the width, does not.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    lines = [*rows]
    table.columns[0].no_wrap = all(len(line[0]) <= width // 3 for line in lines)
    for line in lines:
        table.add_row(*map(Text, line))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def csv_cell(value: object) -> object:
    """`value` as a cell of CSV: no text is a formula to a spreadsheet, and None is empty.

    Several values are JSON.
    """
    if value is None:
        return ""
    if isinstance(value, Mapping | tuple):
        value = json.dumps(dict(value) if isinstance(value, Mapping) else value, sort_keys=True)
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def csv_text(headings: Sequence[str], lines: Iterable[Mapping[Any, object]]) -> str:
    """Lines by heading as CSV, through `csv_cell`; a heading without a value has an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, headings, restval="", lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: csv_cell(value) for name, value in line.items()})
    return stream.getvalue()


def frame_lines(frame: "pd.DataFrame") -> "list[dict[Hashable, Any]]":
    """The lines of a frame, None where it has no value."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def frame_csv(frame: "pd.DataFrame") -> bytes:
    """A frame as CSV at full precision, through `csv_cell`; nothing where it has no value."""
    return csv_text([*map(str, frame)], frame_lines(frame)).encode()


def digest(name: str, table: bytes) -> str:
    """Identifies a table; the figures that were drawn from it contain this text."""
    return f"{name}, SHA-256 {hashlib.sha256(table).hexdigest()}"
