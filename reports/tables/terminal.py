"""Costs and reproduced tables as plain text for a terminal."""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from harness.records.cost import CostRecord
from reports.tables.cost import Sweep, ratio_text, sweeps
from reports.tables.reproduced_results import CELLS, Results, cells
from reports.tables.reproduction import TIME, Entry, by_attention, entry_text, label, tasks_of
from reports.tables.values import NOTHING, number
from reports.text import plain

WIDTH = 100
"""Columns of the terminal that are used."""

SPAN = 66
"""Characters that the columns of a sweep share."""

SEPARATOR = "  "

Lines = Sequence[Sequence[str]]


def cost_summary(records: Iterable[CostRecord]) -> str:
    """Every sweep: the time of each row as a multiple of the fastest softmax, and its exponent."""
    return "\n\n".join(map(_sweep, sweeps(records))) or "no records"


def results_summary(results: Results) -> str:
    """The result of each variant on each data set that is present, and the published one."""
    lines = [cells(result) for result in results.shown]
    parts = _table([CELLS, *lines], [SPAN // 2] * (len(CELLS) - 1))
    for name, how in results.missing.items():
        parts += wrap(plain(f"missing data of {name}: {how}"), WIDTH, subsequent_indent=SEPARATOR)
    return "\n".join(parts)


def reproduction_summary(entries: Sequence[Entry]) -> str:
    """Seconds per 1,000 steps of each row on each task, and the published ones in brackets."""
    head = ["s/1K steps (published)", *(task.partition("@")[0] for task in tasks_of(entries))]
    rows = [
        [label(name), *(_with_published(entry) for entry in row.values())]
        for name, row in by_attention(entries).items()
    ]
    return "\n".join(_table([head, *rows], [SPAN // len(head)] * len(head)))


def _with_published(entry: Entry) -> str:
    printed = entry.published(TIME)
    return entry_text(entry, entry.time) + (f" ({number(printed)})" if printed else "")


def _sweep(sweep: Sweep) -> str:
    head = ["time (× fastest softmax)", *(str(length) for length in sweep.lengths), "exponent"]
    rows = [
        [
            row.label,
            *(ratio_text(row.measured.get(length)) for length in sweep.lengths),
            f"{row.time_exponent.value:.2f}" if row.time_exponent else NOTHING,
        ]
        for row in sweep.rows
    ]
    limits = [SPAN // len(head)] * len(head)
    parts = [*wrap(plain(sweep.title), WIDTH), *_table([head, *rows], limits)]
    parts += wrap(sweep.references, WIDTH)
    for remark in (remark for row in sweep.rows for remark in row.remarks):
        parts += wrap(plain(remark), WIDTH, subsequent_indent=SEPARATOR)
    return "\n".join(parts)


def _table(lines: Lines, limits: Sequence[int]) -> list[str]:
    others = [[*map(plain, line[1:], limits)] for line in lines]
    widths = [max(map(len, column)) for column in zip(*others, strict=True)]
    remaining = WIDTH - sum(len(SEPARATOR) + width for width in widths)
    firsts = [plain(line[0], remaining) for line in lines]
    first = max(map(len, firsts))
    return [
        SEPARATOR.join(
            [name.ljust(first), *(c.rjust(w) for c, w in zip(cells, widths, strict=True))]
        )
        for name, cells in zip(firsts, others, strict=True)
    ]
