"""The leaderboard as Markdown: a section for each board, then notes."""

from collections.abc import Sequence

from harness.records.record import Record
from harness.records.store import Broken
from reports.markdown import escape, table
from reports.pages.notes import notes
from reports.tables.boards import Board, boards
from reports.tables.columns import Column, columns_of
from reports.tables.settings import recipe
from reports.tables.values import PAPER
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
    lines += _baseline_lines(board, columns)
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


def _baseline_lines(board: Board, columns: Sequence[Column]) -> list[list[str]]:
    """A line for each baseline, in italics: its name, and its score in the column of test."""
    return [
        [
            f"*{escape(name)}*",
            *(f"*{board.metric.text(score)}*" if c.name == "test" else "" for c in columns[1:]),
        ]
        for name, score in board.baselines
    ]
