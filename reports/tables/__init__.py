"""Boards and rows made from records, and their columns."""

from reports.tables.boards import Board, Row, boards
from reports.tables.columns import COLUMNS, Column
from reports.tables.csv import as_csv
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
    "cost_summary",
    "reproduction_summary",
    "results_summary",
    "summary",
]
