"""The leaderboard as Markdown: a section for each board, then notes."""

from collections.abc import Sequence

from harness.records.record import Record
from harness.records.store import Broken
from reports.markdown import escape, table
from reports.pages.notes import notes
from reports.tables.boards import Board, boards
from reports.tables.columns import Column, columns_of, metric_heading
from reports.tables.scores import metric_text
from reports.tables.settings import recipe
from reports.tables.values import PAPER, percent
from reports.tables.versions import left_out, of_newest_versions

TITLE = "# Leaderboard\n"
NO_RECORDS = "There are no records yet. `harness run` makes one; see `harness run --help`.\n"


def leaderboard(records: Sequence[Record], broken: Sequence[Broken]) -> str:
    """The whole page: a section for each board, then the meaning and origin of the numbers."""
    sections = [_section(board) for board in boards(records)]
    older = left_out(records)
    sections += [f"{escape(older)}\n"] if older else []
    shown = of_newest_versions(records)
    return "\n".join([TITLE, *(sections or [NO_RECORDS]), *notes(shown, broken)])


def _section(board: Board) -> str:
    examples = board.test_examples
    tested = f"{examples:,}" if examples else "unknown, as no run finished"
    columns = [column for column in columns_of(board.rows) if column.heading]
    lines = [[escape(column.text(row)) for column in columns] for row in board.rows]
    lines += [*_metric_lines(board, columns), *_accuracy_lines(board, columns)]
    parts = [
        f"## {escape(board.title)}\n",
        *([f"{escape(board.verdict)}\n"] if board.verdict else []),
        f"{escape(recipe(board.setting))} Test examples: {tested}.\n",
        table([column.heading for column in columns], lines, align_right=True),
    ]
    if any(PAPER in column.heading for column in columns) and board.spec.budget != "paper":
        budget = escape(board.spec.budget)
        parts.append(
            f"{PAPER} The paper's numbers belong to another setting than budget {budget}: no row "
            "here repeats them.\n"
        )
    return "\n".join(parts)


def _metric_lines(board: Board, columns: Sequence[Column]) -> list[list[str]]:
    """A line for each baseline of a board of a metric, in italics: its name, and its value."""
    if board.metric is None:
        return []
    return [
        _in_column(columns, metric_heading(board.metric), name, metric_text(score, board.metric))
        for name, score in board.baseline_scores
    ]


def _accuracy_lines(board: Board, columns: Sequence[Column]) -> list[list[str]]:
    """A line for each baseline, in italics: its name, and its accuracy."""
    return [
        _in_column(columns, "test_accuracy_percent", name, percent(accuracy))
        for name, accuracy in board.baselines
    ]


def _in_column(columns: Sequence[Column], column: str, name: str, value: str) -> list[str]:
    """A line of a table with a baseline's name, and its value in the column of that name."""
    cells = [f"*{value}*" if own.name == column else "" for own in columns]
    return [f"*{escape(name)}*", *cells[1:]]
