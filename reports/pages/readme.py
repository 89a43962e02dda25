"""The summary of a store for a README: one table of tasks and variants."""

from collections.abc import Iterable, Mapping, Sequence

from harness.records.record import Record
from harness.records.spec import field_at
from reports.markdown import escape, table
from reports.pages.leaderboard import NO_RECORDS
from reports.pages.notes import used_marks
from reports.tables.boards import Board, Row, boards
from reports.tables.standings import strongest_baseline
from reports.tables.values import EXPECTED, NOTHING, number, over_runs, result_text, time_ratio

BUDGET = "laptop"

INTRODUCTION = f"""\
Test score with its 95 % interval, then training time relative to softmax: budget
`{BUDGET}`, unchanged recipes. {NOTHING}: not run. [All boards](results/leaderboard.md) has memory,
inference, parameters, recipes and other settings.
"""

NO_DEFAULT = f"No record has budget `{BUDGET}` with an unchanged recipe.\n"


def readme_table(records: Iterable[Record]) -> str:
    """One row for each variant, one column for each task; see `default_boards`."""
    all_boards = boards(records)
    by_task = default_boards(all_boards)
    if not by_task:
        return NO_DEFAULT if all_boards else NO_RECORDS
    cells = [{row.label: _cell(row) for row in board.rows} for board in by_task.values()]
    labels = sorted({label for column in cells for label in column})
    lines = [[escape(label), *(column.get(label, NOTHING) for column in cells)] for label in labels]
    lines.append(["*strongest baseline*", *map(_baseline, by_task.values())])
    heads = [f"{name}, {b.metric.unit or b.metric.name}" for name, b in by_task.items()]
    body = table(["attention", *map(escape, heads)], lines, align_right=True)
    machines = "; ".join(sorted({escape(board.machine) for board in by_task.values()}))
    marks = used_marks(body)
    return "\n".join([INTRODUCTION, body, f"Measured on: {machines}. {marks}".strip() + "\n"])


def default_boards(all_boards: Sequence[Board]) -> Mapping[str, Board]:
    """By task, the board of budget `laptop` with unchanged recipe and tokens in order.

    Of several boards of one task, such as those of other options, the one with the most rows.
    """
    chosen: dict[str, Board] = {}
    for board in all_boards:
        spec = board.spec
        default = spec.budget == BUDGET and not spec.overrides and not spec.task.block
        if default and spec.tuning is None and field_at(spec.model, "positions") != "rotary":
            other = chosen.get(spec.task.name)
            if other is None or len(board.rows) > len(other.rows):
                chosen[spec.task.name] = board
    return chosen


def _cell(row: Row) -> str:
    mark = EXPECTED if row.runs[-1].expected_failures else ""
    ratio = over_runs(row, time_ratio)
    return escape(result_text(row)) + mark + ("" if ratio is None else f" · {number(ratio)}×")


def _baseline(board: Board) -> str:
    strongest = strongest_baseline(board.rows, board.baselines)
    if strongest is None or not board.baselines:
        return NOTHING
    name, score = strongest
    return f"*{board.metric.text(score)} {escape(name)}*"
