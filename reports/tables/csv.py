"""The leaderboard as CSV: one line for each row and baseline of a board, at full precision."""

from collections.abc import Iterable, Iterator, Sequence

from harness.records.record import Record
from reports.tables.boards import Board, boards
from reports.tables.columns import COLUMNS
from reports.tables.settings import PATHS
from reports.text import csv_text

SHARED = (*(path.replace(".", "_") for path in PATHS), "machine", "test_examples", "kind")
"""Headings of what the lines of a board share, and of the kind of line: `measured`, `baseline`."""


def as_csv(all_boards: Sequence[Board]) -> str:
    """Every row and baseline of every board; a cell without a value is empty, never zero."""
    names = (*SHARED, *(column.name for column in COLUMNS))
    return csv_text(names, (line for board in all_boards for line in _lines(board)))


def rows_of(records: Iterable[Record]) -> list[dict[str, object]]:
    """Every row and baseline of every board by the headings of all columns; None for no value."""
    keys = (*SHARED, *(column.name for column in COLUMNS))
    lines = (line for board in boards(records) for line in _lines(board))
    return [dict.fromkeys(keys) | line for line in lines]


def _lines(board: Board) -> Iterator[dict[str, object]]:
    values = [*board.setting.values(), board.machine, board.test_examples]
    shared = dict(zip(SHARED, values, strict=False))
    for row in board.rows:
        yield {**shared, "kind": "measured", **{c.name: c.value(row) for c in COLUMNS}}
    metric = {"metric": board.metric.name, "unit": board.metric.unit or None}
    for name, score in board.baselines:
        yield {**shared, "kind": "baseline", "attention": name, **metric, "test": score}
