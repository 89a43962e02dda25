"""The curves of training: loss and score on dev against steps and seconds, over seeds."""

import json
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from harness.records.outcome import Point
from reports.tables.boards import Board
from reports.tables.rows import Row
from reports.text import csv_text

HEADINGS = (
    "board", "attention", "row", "seed", "step", "seconds", "loss", "losses",
    "dev", "dev_metric",
)  # fmt: skip


class Place(NamedTuple):
    """A value after a number of steps, over the seeds that reached it.

    Attributes:
        step: steps done.
        seconds: of training, mean over the seeds.
        mean: of the value.
        low: its minimum.
        high: its maximum.
    """

    step: int
    seconds: float
    mean: float
    low: float
    high: float


def loss(point: Point) -> float | None:
    """The task loss of a point."""
    return point.loss


def dev(point: Point) -> float | None:
    """The score on dev of a point; None where it was not evaluated."""
    return point.dev


def curve(row: Row, value: Callable[[Point], float | None]) -> list[Place]:
    """The value at every step at which a run of the row has it, in order."""
    points: dict[int, list[tuple[float, float]]] = {}
    for run in row.runs:
        for point in run.curve:
            if (own := value(point)) is not None:
                points.setdefault(point.step, []).append((point.seconds, own))
    return [_place(step, points[step]) for step in sorted(points)]


def _place(step: int, points: Sequence[tuple[float, float]]) -> Place:
    seconds, values = zip(*points, strict=True)
    return Place(step, fmean(seconds), fmean(values), min(values), max(values))


def as_csv(boards: Sequence[Board]) -> str:
    """A line for each point of each run, at full precision."""
    rows = ((board, row) for board in boards for row in board.rows)
    return csv_text(HEADINGS, (line for board, row in rows for line in _lines(board, row)))


def _lines(board: Board, row: Row) -> Iterator[dict[str, object]]:
    for run in row.runs:
        for point in run.curve:
            cells = [
                board.title, row.spec.attention, row.label, run.spec.seed, point.step,
                point.seconds, point.loss, json.dumps(point.losses, sort_keys=True),
                point.dev, run.selection.name,
            ]  # fmt: skip
            yield dict(zip(HEADINGS, cells, strict=True))
