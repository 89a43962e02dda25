"""Curves of KSVD: groups of the page and the figure, their means over seeds, and the CSV file."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from harness.records.ksvd import KsvdCurve, KsvdState
from reports.text import csv_text

HEADINGS = (
    "inputs", "trained", "trace", "loss", "seed", "samples", "tokens", "heads", "width", "rank",
    "step", "objective", "left_alignment", "right_alignment", "random_alignment", "task_loss",
)  # fmt: skip

TRAINED = {
    "weights": "queries and keys fixed", "all": "all parameters trained", "run": "a run",
}  # fmt: skip


class Line(NamedTuple):
    """The curves of one loss, one for each seed."""

    loss: str
    curves: tuple[KsvdCurve, ...]

    @property
    def steps(self) -> list[int]:
        """The steps that every curve has."""
        common = set.intersection(*({one.step for one in curve.states} for curve in self.curves))
        return sorted(common)

    def at(self, step: int, value: Callable[[KsvdState], float]) -> tuple[float, float, float]:
        """Mean, minimum and maximum over the seeds."""
        states = [one for curve in self.curves for one in curve.states if one.step == step]
        values = [value(state) for state in states]
        return fmean(values), min(values), max(values)


class Group(NamedTuple):
    """What is compared: the same input, trained parameters and trace."""

    title: str
    lines: tuple[Line, ...]

    @property
    def first(self) -> KsvdCurve:
        """A curve of the group."""
        return self.lines[0].curves[0]


def square(state: KsvdState) -> float:
    """J^2."""
    return state.objective**2


def alignment(state: KsvdState) -> float:
    """The mean of both sides."""
    return (state.left + state.right) / 2


def groups(curves: Sequence[KsvdCurve]) -> list[Group]:
    """The groups, and the lines of each, in the order of their first curve."""
    by_title: dict[str, dict[str, list[KsvdCurve]]] = {}
    for one in curves:
        title = f"{one.inputs}, {TRAINED[one.trained]}, trace of the {one.trace}"
        by_title.setdefault(title, {}).setdefault(one.loss, []).append(one)
    return [
        Group(title, tuple(Line(loss, tuple(same)) for loss, same in lines.items()))
        for title, lines in by_title.items()
    ]


def as_csv(curves: Sequence[KsvdCurve]) -> str:
    """A line for each state, at full precision."""
    return csv_text(HEADINGS, (_line(curve, state) for curve in curves for state in curve.states))


def _line(one: KsvdCurve, state: KsvdState) -> dict[str, object]:
    values = [
        one.inputs, one.trained, one.trace, one.loss, one.seed, one.samples, one.tokens, one.heads,
        one.width, one.rank, state.step, state.objective, state.left, state.right, one.random,
        state.task,
    ]  # fmt: skip
    return dict(zip(HEADINGS, values, strict=True))
