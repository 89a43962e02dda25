"""Which point of a grid the trials of a row choose."""

import math
from collections.abc import Iterable, Mapping
from itertools import product
from operator import attrgetter

from harness.records.record import Record
from harness.records.spec import RunSpec, TuningSpec
from zoo.registry import Value

Point = Mapping[str, Value]
"""The value of each tuned field, by its path."""


def point(spec: RunSpec) -> Point:
    """The point of the grid that a run is at; empty for a run of one recipe."""
    return {path: attrgetter(path)(spec) for path in spec.tuning.grid} if spec.tuning else {}


def points(tuning: TuningSpec) -> list[Point]:
    """Every point of a grid, in order."""
    return [
        dict(zip(tuning.grid, values, strict=True)) for values in product(*tuning.grid.values())
    ]


def best(trials: Iterable[Record]) -> Record | None:
    """The trial that was the best on dev; None if no trial finished.

    Of trials that are equally good, that at the point nearest to the recipe.
    """
    finished = [trial for trial in trials if trial.final]
    return min(finished, key=_order, default=None)


def _order(trial: Record) -> tuple[float, float, str]:
    score = trial.selection.sign * trial.final.dev if trial.final else -math.inf
    return -score, distance(trial.spec), str(point(trial.spec))


def distance(spec: RunSpec) -> float:
    """How far the point of a run is from the recipe: the sum over its fields.

    For two positive numbers the absolute logarithm of their ratio, for other values 0 or 1.
    """
    recipe = spec.tuning.recipe if spec.tuning else {}
    return float(sum(_difference(value, recipe[path]) for path, value in point(spec).items()))


def _difference(value: Value, other: Value) -> float:
    if value == other:
        return 0.0
    if isinstance(value, int | float) and isinstance(other, int | float) and min(value, other) > 0:
        return abs(math.log(value / other))
    return 1.0
