"""Groups trials into studies: the score on dev of every variant at every point of a grid."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.records.record import Metric, Record
from harness.records.tuning import Point, best, is_trial, point, points
from reports.tables.boards import by_options, grouped
from reports.tables.rows import group_by
from reports.tables.settings import Setting, setting


@dataclass(frozen=True)
class Curve:
    """The trials of one row.

    Attributes:
        attention: the variant.
        label: its name, and options that distinguish it from other rows of the name.
        trials: by `name_of` their point.
        chosen: the trial that chooses; None if no trial finished.
    """

    attention: str
    label: str
    trials: Mapping[str, Record]
    chosen: Record | None

    @property
    def metric(self) -> Metric:
        """What the scores on dev are."""
        return next(iter(self.trials.values())).selection

    def score(self, grid_point: Point) -> float | None:
        """The score on dev at a point; None if there is no finished trial."""
        trial = self.trials.get(name_of(grid_point))
        return trial.final.dev if trial and trial.final else None


@dataclass(frozen=True)
class Study:
    """The trials of one task, recipe, grid and machine.

    Attributes:
        title: as plain text.
        setting: see `Board`.
        points: of the grid, in order.
        curves: in order of label.
    """

    title: str
    setting: Setting
    points: tuple[Point, ...]
    curves: tuple[Curve, ...]


def studies(records: Iterable[Record]) -> list[Study]:
    """Every study that the records make, in order of task, budget and machine."""
    groups = grouped(filter(is_trial, records), lambda run: setting(run.spec))
    return [
        Study(title, shared, tuple(_points(runs[0])), _curves(runs))
        for title, shared, runs in groups
    ]


def name_of(grid_point: Point) -> str:
    """A point as text: equal for equal points."""
    return json.dumps(grid_point, sort_keys=True)


def _points(run: Record) -> list[Point]:
    return points(run.spec.tuning) if run.spec.tuning else []


def _curves(runs: Iterable[Record]) -> tuple[Curve, ...]:
    curves = [
        Curve(name, f"{name}{options}", {name_of(point(run.spec)): run for run in own}, best(own))
        for name, same in group_by(runs, lambda run: run.spec.attention).items()
        for options, own in by_options(same)
    ]
    return tuple(sorted(curves, key=lambda curve: curve.label))
