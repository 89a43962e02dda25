"""The leaderboard as data: one line a row of a board, full precision, units in the names."""

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from harness.records.record import Cost, Quartiles
from reports.papers import published
from reports.rows import GIGA, MIB, Board, Row
from reports.settings import PATHS

SETTING = {path: path.replace(".", "_") for path in PATHS}
"""The column of each field that the rows of a board share."""

COLUMNS = (
    *SETTING.values(), "machine", "kind", "attention", "options", "status", "reason", "runs",
    "runs_ok", "seeds", "test_accuracy_percent", "test_accuracy_low_percent",
    "test_accuracy_high_percent", "interval_over", "test_examples", "dev_accuracy_percent",
    "seconds_per_1k_steps_q1", "seconds_per_1k_steps_median", "seconds_per_1k_steps_q3",
    "time_ratio_q1", "time_ratio_median", "time_ratio_q3", "peak_memory_mib",
    "softmax_peak_memory_mib", "memory_ratio", "inference_tokens_per_second_q1",
    "inference_tokens_per_second_median", "inference_tokens_per_second_q3", "inference_ratio_q1",
    "inference_ratio_median", "inference_ratio_q3", "parameters", "gflops_per_step", "commits",
    "paper_accuracy_percent", "paper_seconds_per_1k_steps", "paper_peak_memory_gb", "paper_source",
)  # fmt: skip

Cells = Mapping[str, object]


def table(boards: Sequence[Board]) -> pd.DataFrame:
    """Every row and floor of every board; a cell that has no value is empty, never zero."""
    lines: list[Cells] = []
    for board in boards:
        shared = _setting(board)
        lines += [{**shared, **_measured(board, row)} for row in board.rows]
        lines += [{**shared, **_floor(name, accuracy)} for name, accuracy in board.baselines]
    # Objects: a column of whole numbers with a gap must not turn into fractions.
    return pd.DataFrame(lines, columns=list(COLUMNS), dtype=object)


def _setting(board: Board) -> Cells:
    return {
        **{SETTING[path]: _plain(value) for path, value in board.setting.items()},
        "machine": board.machine,
        "test_examples": board.test_examples,
    }


def _plain(value: object) -> object:
    """The value as one cell: what holds several is written as JSON."""
    several = isinstance(value, Mapping | tuple)
    return json.dumps(value, sort_keys=True) if several else value


def _floor(name: str, accuracy: float) -> Cells:
    return {"kind": "floor", "attention": name, "test_accuracy_percent": 100 * accuracy}


def _measured(board: Board, row: Row) -> Cells:
    return {
        "kind": "measured",
        "attention": row.attention,
        "options": json.dumps(row.runs[0].spec.options, sort_keys=True),
        "status": row.status,
        "reason": row.failures or None,
        "runs": len(row.runs),
        "runs_ok": len(row.finals),
        "seeds": " ".join(str(run.spec.seed) for run in row.runs),
        "commits": " ".join(sorted({one for run in row.runs for one in run.environment.commits})),
        **_accuracy(row),
        **(_cost(row.cost) if row.cost else {}),
        **_paper(board.spec.task.key, row.attention),
    }


def _accuracy(row: Row) -> Cells:
    if row.accuracy is None or row.dev_accuracy is None:
        return {}
    return {
        "test_accuracy_percent": 100 * row.accuracy.mean,
        "test_accuracy_low_percent": 100 * row.accuracy.low,
        "test_accuracy_high_percent": 100 * row.accuracy.high,
        "interval_over": row.accuracy.over,
        "dev_accuracy_percent": 100 * row.dev_accuracy,
    }


def _cost(cost: Cost) -> Cells:
    return {
        **_quartiles("seconds_per_1k_steps", cost.own.seconds_per_1k_steps),
        **_quartiles("time_ratio", cost.time_ratio),
        "peak_memory_mib": cost.own.peak_bytes / MIB,
        "softmax_peak_memory_mib": cost.softmax.peak_bytes / MIB if cost.softmax else None,
        "memory_ratio": cost.memory_ratio,
        **_quartiles("inference_tokens_per_second", cost.own.tokens_per_second),
        **_quartiles("inference_ratio", cost.inference_ratio),
        "parameters": cost.own.parameters,
        "gflops_per_step": cost.own.flops / GIGA,
    }


def _quartiles(name: str, of: Quartiles | None) -> Cells:
    if of is None:
        return {}
    return {f"{name}_q1": of.q1, f"{name}_median": of.median, f"{name}_q3": of.q3}


_PAPER = {
    "%": "paper_accuracy_percent",
    "s/1K steps": "paper_seconds_per_1k_steps",
    "GB": "paper_peak_memory_gb",
}


def _paper(task_key: str, attention: str) -> Cells:
    found = published(task_key, attention)
    cells: dict[str, object] = {_PAPER[unit]: number.value for unit, number in found.items()}
    if found:
        cells["paper_source"] = "; ".join(sorted({number.place for number in found.values()}))
    return cells
