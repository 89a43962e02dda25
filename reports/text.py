"""Texts from records: any characters may occur in them, so nothing is printed without `plain`."""

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "–"  # In place of a value that is not there

# Replaces characters that control a terminal, or the direction and the lines of a text.
CONTROLS = dict.fromkeys(
    {*range(32), *range(127, 160), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
    - {*b"\t\n"}, "\N{REPLACEMENT CHARACTER}",
)  # fmt: skip

WIDTH, WIDE = 100, 120  # Characters of a line on a terminal, and of a wide table


def number(value: float | None) -> str:
    # Three significant digits, or all before the point if there are more.
    if value is None or value != value:
        return NOTHING
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return f"{value:.3g}" if "e" in text else text.rstrip(".")


def ratio_text(value: float | None) -> str:
    # Two significant digits: a third is noise.
    if value is None or value != value:
        return NOTHING
    return f"{value:,.0f}" if value >= 9.95 else f"{value:#.2g}"


def whole_text(value: float | None) -> str:
    return NOTHING if value is None or value != value else f"{value:,.0f}"


def threads_of(*counts: int) -> str:
    return "1 thread" if counts == (1,) else f"{' or '.join(map(str, counts))} threads"


def plain(text: str, limit: int | None = None) -> str:
    # A text of more than `limit` characters ends with an ellipsis.
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], width: int = WIDTH) -> str:
    # A long cell continues on the next line; the first column does not if it is narrow.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    lines = [*rows]
    table.columns[0].no_wrap = all(len(line[0]) <= width // 3 for line in lines)
    for line in lines:
        table.add_row(*map(Text, line))
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def csv_cell(value: object) -> object:
    # No text is a formula to a spreadsheet; several values are JSON.
    if isinstance(value, Mapping | tuple):
        value = json.dumps(dict(value) if isinstance(value, Mapping) else value, sort_keys=True)
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def without_nan(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame.astype(object).where(frame.notna(), None)


def frame_csv(frame: "pd.DataFrame") -> bytes:
    return frame.astype(object).map(csv_cell).to_csv(index=False, lineterminator="\n").encode()


def digest(name: str, table: bytes) -> str:
    # The figures that were drawn from the table contain this text.
    return f"{name}, SHA-256 {hashlib.sha256(table).hexdigest()}"


def outdated_text(found: "pd.DataFrame", what: str = "runs") -> str:
    old = found[found["outdated"].eq(True)] if "outdated" in found else found[:0]
    if old.empty:
        return ""
    rows = sorted({*old["row"]}) if {*old["row"]} < {*found["row"]} else []
    named = f" Variants: {', '.join(rows)}." if rows else ""
    changed = "code or data have" if what == "runs" else "code has"
    return f"{len(old):,} of {len(found):,} {what} are outdated: {changed} changed since.{named}"
