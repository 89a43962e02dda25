"""Boards and rows made from records, and their columns."""

from reports.tables.boards import Board, Row, boards
from reports.tables.columns import COLUMNS, Column
from reports.tables.cost import cost_rows
from reports.tables.csv import as_csv, rows_of
from reports.tables.terminal import (
    cost_summary,
    reproduction_summary,
    results_summary,
    summary,
)

__all__ = [
    "COLUMNS",
    "Board",
    "Column",
    "Row",
    "as_csv",
    "boards",
    "cost_rows",
    "cost_summary",
    "reproduction_summary",
    "results_summary",
    "rows_of",
    "summary",
]
