"""Groups records into sweeps: the score against one option."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.records.record import Metric, Record
from harness.records.spec import RunSpec, field_at
from reports.tables.boards import baselines, by_options, grouped
from reports.tables.rows import Row, group_by
from reports.tables.scores import Baselines
from reports.tables.settings import Setting, setting
from reports.tables.trials import without_trials
from reports.text import csv_text

HEADINGS = (
    "sweep", "attention", "options", "field", "value", "seeds", "metric", "test", "test_low",
    "test_high", "state_bytes", "failures",
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Rows of one variant by the value of the option, in order of value."""

    attention: str
    label: str
    rows: Mapping[object, Row]


@dataclass(frozen=True)
class Sweep:
    """The runs of one task, recipe and machine that differ in one option.

    Attributes:
        title: as plain text.
        field: the option, as `task.pairs`.
        setting: see `Board`; without the option.
        values: of the option, in order; at least two.
        curves: in order of label.
        baselines: scores of the task at each value, the best first; see `reports.tables.scores`.
    """

    title: str
    field: str
    setting: Setting
    values: tuple[object, ...]
    curves: tuple[Curve, ...]
    baselines: Mapping[object, Baselines]

    @property
    def metric(self) -> Metric:
        """What its scores are."""
        return next(row.metric for curve in self.curves for row in curve.rows.values())


def sweeps(records: Iterable[Record], field: str, default: object = None) -> list[Sweep]:
    """Every sweep over `field` that the records make, in order of task, budget and machine.

    `default` is the value of runs of a variant whose specification leaves its option out.
    """

    def value(spec: RunSpec) -> object:
        return value_of(spec, field, default)

    used = [run for run in without_trials(records) if value(run.spec) is not None]
    made = [
        _sweep(title, field, shared, runs, value)
        for title, shared, runs in grouped(used, lambda run: _shared(run.spec, field))
    ]
    return [one for one in made if len(one.values) > 1]


def value_of(spec: RunSpec, field: str, default: object = None) -> object:
    """The value of an option of a run; None if the run does not have it.

    `default` is that of a variant of the run whose options leave it out.
    """
    owner, _, option = field.partition(".")
    if owner in ("model", "train"):
        return field_at(spec, field)
    if owner in ("task", spec.task.name):
        return spec.task.options.get(option)
    return spec.options[owner].get(option, default) if owner in spec.options else None


def state_bytes(row: Row) -> float | None:
    """Memory of the state of decoding in bytes; None where the model is not recurrent."""
    states = [cost.own.state_bytes for cost in row.costs if cost.own.state_bytes is not None]
    return median(states) if states else None


def as_csv(sweeps: Sequence[Sweep]) -> str:
    """A line for each row of each sweep, at full precision."""
    return csv_text(HEADINGS, (line for sweep in sweeps for line in _lines(sweep)))


def _lines(sweep: Sweep) -> Iterator[dict[str, object]]:
    for curve in sweep.curves:
        for value, row in curve.rows.items():
            ends = row.score[:3] if row.score else [None] * 3
            cells = [
                sweep.title, curve.attention, curve.label, sweep.field, value, len(row.runs),
                row.metric.title if row.score else None, *ends, state_bytes(row), row.failures,
            ]  # fmt: skip
            yield dict(zip(HEADINGS, cells, strict=True))


def _sweep(
    title: str,
    field: str,
    shared: Setting,
    runs: Sequence[Record],
    value: Callable[[RunSpec], object],
) -> Sweep:
    by_value = group_by(runs, lambda run: value(run.spec))
    values = sorted(by_value, key=_order)
    curves = [
        Curve(name, f"{name}{options}", _rows(own, value))
        for name, same in group_by(runs, lambda run: run.spec.attention).items()
        for options, own in by_options(same, field)
    ]
    curves.sort(key=lambda curve: curve.label)
    named = {one: baselines(by_value[one]) for one in values}
    return Sweep(title, field, shared, tuple(values), tuple(curves), named)


def _rows(runs: Sequence[Record], value: Callable[[RunSpec], object]) -> dict[object, Row]:
    # Of a run in both precisions, the later one.
    latest = {
        (value(run.spec), run.spec.seed): run for run in sorted(runs, key=lambda run: run.started)
    }
    groups = group_by(latest.values(), lambda run: value(run.spec))
    return {
        one: Row(
            groups[one][0].spec.attention, tuple(sorted(groups[one], key=lambda r: r.spec.seed))
        )
        for one in sorted(groups, key=_order)
    }


def _order(value: object) -> tuple[bool, float, str]:
    """Numbers in order, then other values."""
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)


def _shared(spec: RunSpec, field: str) -> Setting:
    """What the runs of a sweep share: its option differs, and with it the data of the task."""
    owner, _, option = field.partition(".")
    shared = setting(spec)
    if owner in ("model", "train"):
        overrides = {path: v for path, v in spec.overrides.items() if path != field}
        return shared | {field: "varied", "overrides": overrides}
    if owner not in ("task", spec.task.name):
        return shared
    options = {key: value for key, value in spec.task.options.items() if key != option}
    key = _without(spec.task.key, f"{option}={spec.task.options[option]}")
    return shared | {"task.key": key, "task.options": options, "task.digests": {}}


def _without(key: str, changed: str) -> str:
    """The key of a task without one of its changed options."""
    name, bracket, rest = key.partition("[")
    inner, _, end = rest.rpartition("]")
    kept = ",".join(part for part in inner.split(",") if part != changed)
    return f"{name}[{kept}]{end}" if bracket and kept else f"{name}{end}"
