"""The leaderboard as CSV: one line for each row and baseline of a board, at full precision."""

from collections.abc import Iterable, Iterator, Sequence

from harness.records.record import Record
from reports.tables.boards import Board, boards
from reports.tables.columns import COLUMNS, Column, metric_heading
from reports.tables.scores import metric_value
from reports.tables.settings import PATHS
from reports.text import csv_text

SHARED = (*(path.replace(".", "_") for path in PATHS), "machine", "test_examples", "kind")
"""Headings of what the lines of a board share, and of the kind of line: `measured`, `baseline`."""


def as_csv(all_boards: Sequence[Board]) -> str:
    """Every row and baseline of every board; a cell without a value is empty, never zero.

    Columns of a metric are left out where no board has it.
    """
    metrics = {board.metric for board in all_boards}
    columns = [column for column in COLUMNS if column.metric in (None, *metrics)]
    names = (*SHARED, *(column.name for column in columns))
    return csv_text(names, (line for board in all_boards for line in _lines(board, columns)))


def rows_of(records: Iterable[Record]) -> list[dict[str, object]]:
    """Every row and baseline of every board by the headings of all columns; None for no value."""
    keys = (*SHARED, *(column.name for column in COLUMNS))
    lines = (line for board in boards(records) for line in _lines(board, COLUMNS))
    return [dict.fromkeys(keys) | line for line in lines]


def _lines(board: Board, columns: Sequence[Column]) -> Iterator[dict[str, object]]:
    values = [*board.setting.values(), board.machine, board.test_examples]
    shared = dict(zip(SHARED, values, strict=False))
    for row in board.rows:
        yield {**shared, "kind": "measured", **{c.name: c.value(row) for c in columns}}
    for name, accuracy in board.baselines:
        cells = {"attention": name, "test_accuracy_percent": 100 * accuracy}
        yield {**shared, "kind": "baseline", **cells}
    if board.metric:
        heading = metric_heading(board.metric)
        for name, score in board.baseline_scores:
            cells = {"attention": name, heading: metric_value(score, board.metric)}
            yield {**shared, "kind": "baseline", **cells}
