"""The leaderboard: one section a board, as Markdown, as CSV and as a figure."""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.records.record import WITHOUT_SOFTMAX, Cost, Quartiles, Record
from harness.records.store import Broken
from reports.cells import (
    GAP,
    NOTHING,
    PAPER,
    accuracy,
    baseline_lines,
    notes,
    number,
    percent,
    table,
)
from reports.foot import foot
from reports.papers import published
from reports.rows import GIGA, MIB, Board, Row, boards
from reports.settings import apart, recipe

MARKS = ("<!-- leaderboard -->", "<!-- /leaderboard -->")

TITLE = "# Leaderboard\n"
UNMEASURED = "not measured"
NO_RECORDS = "There are no records yet. `harness run` makes one; `harness run --help` says how.\n"


def files(records: Sequence[Record], broken: Sequence[Broken]) -> dict[str, bytes]:
    """The leaderboard: what each of its files holds, by name.

    The same records give the same bytes, in whatever order they come.
    """
    # Both are heavy, and Markdown needs neither.
    from reports import plots, tidy

    found = boards(records)
    figures = tidy.table(found).to_csv(index=False, lineterminator="\n").encode()
    return {
        "leaderboard.md": markdown(records, broken).encode(),
        "leaderboard.csv": figures,
        **plots.accuracy_time(found, digest(figures)),
    }


def markdown(records: Sequence[Record], broken: Sequence[Broken]) -> str:
    """The whole page: a section a board, then what the numbers mean and where they come from."""
    found = boards(records)
    sections = [_section(*one) for one in zip(titles(found), found, strict=True)]
    return "\n".join([TITLE, *(sections or [NO_RECORDS]), *foot(records, broken)])


def digest(figures: bytes) -> str:
    """What tells one leaderboard.csv from another, for the pictures that were drawn from it."""
    return f"leaderboard.csv, SHA-256 {hashlib.sha256(figures).hexdigest()}"


class Column(NamedTuple):
    """One column of a board: its heading, with the unit, and how a row fills it."""

    heading: str
    cell: Callable[[Row], str]


def _dev_accuracy(row: Row) -> str:
    return NOTHING if row.dev_accuracy is None else percent(row.dev_accuracy)


def _runs(row: Row) -> str:
    finished, runs = len(row.finals), len(row.runs)
    return str(runs) if finished == runs else f"{finished} of {runs}"


def _cost(heading: str, value: Callable[[Cost], float]) -> Column:
    return Column(heading, lambda row: number(value(row.cost)) if row.cost else UNMEASURED)


def _ratio(heading: str, value: Callable[[Cost], float | None]) -> Column:
    def cell(row: Row) -> str:
        if row.cost is None:
            return UNMEASURED
        ratio = value(row.cost)
        return WITHOUT_SOFTMAX if ratio is None else number(ratio)

    return Column(heading, cell)


def _median(of: Quartiles | None) -> float | None:
    return of.median if of else None


def _whole(heading: str, value: Callable[[Cost], int]) -> Column:
    return Column(heading, lambda row: f"{value(row.cost):,}" if row.cost else UNMEASURED)


COLUMNS = (
    Column("attention", lambda row: row.label + (GAP if row.expected_failures else "")),
    Column("test accuracy (%) [95 % interval]", accuracy),
    Column("dev accuracy (%)", _dev_accuracy),
    Column("seeds", _runs),
    _cost("time (s / 1K steps)", lambda cost: cost.own.seconds_per_1k_steps.median),
    _ratio("time (× softmax)", lambda cost: _median(cost.time_ratio)),
    _cost("peak memory (MiB)", lambda cost: cost.own.peak_bytes / MIB),
    _ratio("peak memory (× softmax)", lambda cost: cost.memory_ratio),
    _cost("inference (tokens / s)", lambda cost: cost.own.tokens_per_second.median),
    _ratio("inference time (× softmax)", lambda cost: _median(cost.inference_ratio)),
    _whole("parameters", lambda cost: cost.own.parameters),
    _cost("GFLOPs / step", lambda cost: cost.own.flops / GIGA),
)

BRIEF = {
    "attention",
    "test accuracy (%) [95 % interval]",
    "seeds",
    "time (s / 1K steps)",
    "time (× softmax)",
    "peak memory (× softmax)",
    "parameters",
}
"""Headings of the columns that fit into a page about something else."""

PAPER_HEADINGS = {
    "%": f"paper{PAPER}: accuracy (%)",
    "s/1K steps": f"paper{PAPER}: time (s / 1K steps)",
    "GB": f"paper{PAPER}: peak memory (GB)",
}


def _paper_columns(board: Board) -> list[Column]:
    key = board.spec.task.key

    def column(unit: str) -> Column:
        def cell(row: Row) -> str:
            found = published(key, row.attention).get(unit)
            return found.value if found else NOTHING

        return Column(PAPER_HEADINGS[unit], cell)

    units = {unit for row in board.rows for unit in published(key, row.attention)}
    return [column(unit) for unit in PAPER_HEADINGS if unit in units]


def brief(records: Sequence[Record]) -> str:
    """Every board with its main columns, for a page about something else."""
    parts, found = [], boards(records)
    for title, board in zip(titles(found), found, strict=True):
        chosen = [column for column in COLUMNS if column.heading in BRIEF]
        rows = _rows(board, [*chosen, *_paper_columns(board)[:1]])
        parts += [f"### {title}\n", f"{_recipe(board)}\n", rows]
    page = "\n".join(parts)
    meant = notes(page)
    return f"{page}\n{meant}\n" if meant else page


def embed(page: str, records: Sequence[Record]) -> str:
    """`page` with the brief boards between its two leaderboard marks.

    Raises:
        ValueError: the marks are missing.
    """
    before, opened, rest = page.partition(MARKS[0])
    _, closed, after = rest.partition(MARKS[1])
    if not (opened and closed):
        raise ValueError(f"the page lacks the lines {MARKS[0]} and {MARKS[1]}; add them")
    return f"{before}{opened}\n\n{brief(records)}\n{closed}{after}"


def titles(found: Sequence[Board]) -> list[str]:
    """What each board is called: its title, and what tells it from others of that title."""
    names = [board.title for board in found]
    how = apart(names, [board.setting for board in found])
    return [f"{name}; {rest}" if rest else name for name, rest in zip(names, how, strict=True)]


def _section(title: str, board: Board) -> str:
    spec, paper = board.spec, _paper_columns(board)
    parts = [f"## {title}\n", f"{_recipe(board)}\n", _rows(board, [*COLUMNS, *paper])]
    if paper and spec.budget != "paper":
        parts.append(
            f"{PAPER} The paper's numbers belong to another setting than budget `{spec.budget}`: "
            "no row here repeats them.\n"
        )
    return "\n".join(parts)


def _rows(board: Board, columns: Sequence[Column]) -> str:
    lines = [[column.cell(row) for column in columns] for row in board.rows]
    headings = [column.heading for column in columns]
    return table(headings, [*lines, *baseline_lines(board.baselines, len(columns))])


def _recipe(board: Board) -> str:
    examples = board.test_examples
    tested = f"{examples:,}" if examples else "unknown, as no run finished"
    return f"{recipe(board.setting)} Test examples: {tested}."
