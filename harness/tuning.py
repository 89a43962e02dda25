"""Runs in which fields are varied: sweeps of one, and tuning over a grid of several.

Tuning makes a trial at every point of the grid, then runs at the point that is best on dev. Every
row of a task has the same grid, so the same number of trials: `docs/decisions/0028-tuning.md`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.environment import describe
from harness.plan import Draft, Plan, Request
from harness.records.frame import best_trials_first, of_records
from harness.records.record import Record
from harness.records.spec import Point, RunSpec, TuningSpec
from harness.records.store import Store
from zoo.composition import Composition
from zoo.registry import UserError, Value, options_of
from zoo.variants import variants

TASK = "task"
"""Owner of the options of the task of a sweep, in place of its name."""

RATE = "train.lr"
"""The field that is tuned where no grid is given."""

FACTORS = (1 / 3, 1.0, 3.0, 9.0)
"""Its values as multiples of the recipe's."""

TRIAL_SEED = 0
"""The seed of all trials; final runs have other seeds."""

MOST_POINTS = 64
"""Points of a grid, at most."""

MOST_VALUES = 1_000
"""Values of the field of a sweep, at most."""

Texts = Mapping[str, Sequence[str]]
"""The values of each tuned field as text, by its path; empty for the default grid."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A variant on a task, with the trials that choose its recipe, one at each point in order."""

    tuning: TuningSpec
    trials: tuple[Plan, ...]

    def records(self, records: Mapping[str, Record]) -> list[Record]:
        """The records of its trials, of `records` by the identity of the run; some have none."""
        ids = [trial.spec.id for trial in self.trials]
        return [records[name] for name in ids if name in records]

    def best(self, records: Mapping[str, Record]) -> Record | None:
        """The trial that chooses, of `records` by the identity of the run; None if all failed."""
        finished = [record for record in self.records(records) if record.final]
        if not finished:
            return None
        return records[best_trials_first(of_records(finished))["id"].iloc[0]]

    def finals(self, chosen: RunSpec, seeds: Sequence[int]) -> list[Plan]:
        """The runs at the point of the trial `chosen`, one for each seed."""
        trial = next(trial for trial in self.trials if trial.spec.id == chosen.id)
        tuning = self.tuning.model_copy(update={"role": "final"})
        return [trial.with_fields(seed=seed, tuning=tuning) for seed in seeds]


def row(draft: Draft, texts: Texts, announce: Callable[[str], None] = lambda line: None) -> Row:
    """The row of a run, whose seed is replaced: its grid and its trials.

    The grid is `texts`; by default learning rates of `FACTORS` times the recipe's. For `announce`
    see `Draft.plan`.

    Raises:
        UserError: a value or the data are not possible, the grid is not one of fields of model and
            train, has less than two points or more than `MOST_POINTS`, or the settings give a tuned
            field.
    """
    request = replace(draft.request, seed=TRIAL_SEED)
    _require_few(math.prod(map(len, texts.values())), 0)
    for path in texts or (RATE,):
        _require_free(request, path)
    recipe = {path: _value(draft.spec, path) for path in texts or (RATE,)}
    grid = {path: _values(request, path, values) for path, values in texts.items()}
    tuning = TuningSpec(grid=grid or {RATE: _rates(draft)}, recipe=recipe, role="trial")
    grid_points = tuning.points
    _require_few(len(grid_points), 2)
    drafts = [Draft.of(_at(request, grid_point, tuning)) for grid_point in grid_points]
    return Row(tuning=tuning, trials=tuple(trial.plan(announce) for trial in drafts))


def _require_few(count: int, least: int) -> None:
    """Reject a grid of fewer points than `least`, or of more than `MOST_POINTS`."""
    if not least <= count <= MOST_POINTS:
        raise UserError(
            f"the grid has {count} points; give 2 to {MOST_POINTS}, for example "
            f"--grid {RATE}=5e-4,1e-3,2e-3"
        )


def require_other_seeds(seeds: Sequence[int]) -> None:
    """Reject the seed of the trials.

    Raises:
        UserError: it is among `seeds`.
    """
    if TRIAL_SEED in seeds:
        raise UserError(
            f"seed {TRIAL_SEED} chooses the point of the grid, so it is not counted; give for "
            "example --seeds 1,2,3"
        )


def _require_free(request: Request, path: str) -> None:
    owner, _, name = path.partition(".")
    if owner not in ("model", "train"):
        raise UserError(
            f"--grid {path}: rows share a grid of fields of train and model, for example {RATE}; "
            "compare options of a variant as separate rows, with --set"
        )
    value = request.settings.get(owner, {}).get(name)
    if value is not None:
        raise UserError(f"--set {path}={value} gives a field that is tuned; remove it")


def _at(request: Request, grid_point: Point, tuning: TuningSpec | None) -> Request:
    """The request at a point of a grid."""
    for path, value in grid_point.items():
        request = request.with_setting(path, value)
    return replace(request, tuning=tuning)


def _values(request: Request, path: str, texts: Sequence[str]) -> tuple[Value, ...]:
    """The values of a field in order, each once, as the specification holds them."""
    specs = (Draft.of(_at(request, {path: text}, None)).spec for text in texts)
    return tuple(sorted({_value(spec, path) for spec in specs}, key=lambda v: (str(type(v)), v)))


def _rates(draft: Draft) -> tuple[float, ...]:
    """The rates of the question whose recipe it is, else multiples of the recipe's."""
    if question := draft.recipe.question:
        return tuple(sorted(question.rates))
    return tuple(float(f"{draft.spec.train.lr * by:.3g}") for by in FACTORS)


def _value(spec: RunSpec, path: str) -> Value:
    owner, _, name = path.partition(".")
    value = getattr(getattr(spec, owner), name, None)
    if not isinstance(value, Value):
        raise UserError(f"--grid {path} is not possible; give a field with one value, as {RATE}")
    return value


def varied(request: Request, field: str, values: Sequence[str]) -> list[Draft]:
    """The runs of a request at each value of the field `NAME.OPTION`.

    NAME is `task`, `model`, `train`, or a task or variant of the run.

    Raises:
        UserError: the run does not use the field, the settings give it, a value is not possible,
            or all values are equal.
    """
    name, _, option = field.partition(".")
    task = request.task_name
    owner = task if name == TASK else name
    names = Composition.parse(request.attention).names
    if owner not in ("model", "train", task, *names):
        raise UserError(
            f"--over {field}: {request.attention} on {request.task} has no options of {name!r}; "
            f"give one of {', '.join(sorted({TASK, 'model', 'train', task, *names}))}"
        )
    if len(values) > MOST_VALUES:
        raise UserError(f"--over {field} has {len(values):,} values; give up to {MOST_VALUES:,}")
    options = request.settings.get(owner, {})
    if option in options:
        raise UserError(
            f"--set {owner}.{option}={options[option]} gives a field that is swept; leave it out"
        )
    drafts = [Draft.of(request.with_setting(f"{owner}.{option}", value)) for value in values]
    if all(draft.spec == drafts[0].spec for draft in drafts):
        raise UserError(
            f"--over {field}={','.join(values)} gives one value, but runs of a sweep differ in it; "
            "give two values or more that differ, or this one with --set"
        )
    return drafts


def require_one_processor(plans: Sequence[Plan], store: Store) -> None:
    """Reject a sweep whose runs would be of two kinds of processor, before any is trained.

    Raises:
        UserError: the store has a record of a run that is not of this machine, while others are
            still to be trained here.
    """
    records = [store.find(plan.spec) for plan in plans]
    here = describe(plans[0].spec.device).device
    devices = {record.environment.device for record in records if record}
    devices |= set() if all(record and record.final for record in records) else {here}
    if len(devices) > 1:
        raise UserError(
            f"the runs of this sweep would differ in device: {' and '.join(sorted(devices))}; run "
            "it on one of them, or give a --store without the runs of the other"
        )


def default_of(field: str) -> Value | None:
    """The default of an option of a variant, which a specification may leave out; else None."""
    name, _, option = field.partition(".")
    if name not in variants.names():
        return None
    options = options_of(variants.find(name))
    return options[option].default if option in options else None
