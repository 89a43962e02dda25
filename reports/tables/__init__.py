"""Boards and rows made from records, and their columns."""

from reports.tables.boards import Board, Row, boards
from reports.tables.columns import COLUMNS, Column
from reports.tables.csv import as_csv
from reports.tables.terminal import (
    accuracy_summary,
    cost_summary,
    reproduction_summary,
    summary,
)

__all__ = [
    "COLUMNS", "Board", "Column", "Row", "accuracy_summary", "as_csv", "boards", "cost_summary",
    "reproduction_summary", "summary",
]  # fmt: skip
