"""Tuning: a trial at every point of a grid, then runs at the point that is best on dev.

Every row of a task has the same grid, so the same number of trials; see
`docs/decisions/0028-tuning.md`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness import recipes
from harness.plan import Plan, Request, resolve
from harness.records.record import Record
from harness.records.spec import RunSpec, TuningSpec
from harness.records.tuning import Point, best, point, points
from zoo.registry import UserError, Value

RATE = "train.lr"
"""The field that is tuned where no grid is given."""

FACTORS = (1 / 3, 1.0, 3.0, 9.0)
"""Its values as multiples of the recipe's."""

TRIAL_SEED = 0
"""The seed of all trials; final runs have other seeds."""

MOST_POINTS = 64
"""Points of a grid, at most."""

Texts = Mapping[str, Sequence[str]]
"""The values of each tuned field as text, by its path; empty for the default grid."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A variant on a task, with the trials that choose its recipe.

    Attributes:
        request: of its runs; the seed is the trials'.
        tuning: the grid.
        trials: a run at each point, in order.
    """

    request: Request
    tuning: TuningSpec
    trials: tuple[Plan, ...]

    def best(self, records: Mapping[str, Record]) -> Record | None:
        """The trial that chooses, of `records` by the identity of the run; None if all failed."""
        ids = [trial.spec.id for trial in self.trials]
        return best(records[name] for name in ids if name in records)

    def finals(self, chosen: RunSpec, seeds: Sequence[int]) -> list[Plan]:
        """The runs at the point of the trial `chosen`, one for each seed."""
        tuning = self.tuning.model_copy(update={"role": "final"})
        return [
            resolve(_at(replace(self.request, seed=seed), point(chosen), tuning)) for seed in seeds
        ]


def row(request: Request, texts: Texts, announce: Callable[[str], None] = lambda line: None) -> Row:
    """The row of a request: its grid and its trials.

    Args:
        request: of a run; its seed is replaced.
        texts: the grid; by default learning rates of `FACTORS` times the recipe's.
        announce: see `resolve`.

    Raises:
        UserError: `resolve` raises it, the grid is not one of fields of model and train, has less
            than two points or more than `MOST_POINTS`, or the settings give a tuned field.
    """
    request = replace(request, seed=TRIAL_SEED)
    for path in texts or (RATE,):
        _require_free(request, path)
    plain = resolve(request, announce)
    recipe = {path: _value(plain.spec, path) for path in texts or (RATE,)}
    grid = {path: _values(request, path, given) for path, given in texts.items()}
    grid = grid or {RATE: _rates(request.recipe, plain.spec.train.lr)}
    tuning = TuningSpec(grid=grid, recipe=recipe, role="trial")
    grid_points = points(tuning)
    if not 1 < len(grid_points) <= MOST_POINTS:
        raise UserError(
            f"the grid has {len(grid_points)} points; give 2 to {MOST_POINTS}, for example "
            f"--grid {RATE}=5e-4,1e-3,2e-3"
        )
    trials = tuple(resolve(_at(request, grid_point, tuning)) for grid_point in grid_points)
    return Row(request=request, tuning=tuning, trials=trials)


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
    given = request.settings.get(owner, {}).get(name)
    if given is not None:
        raise UserError(f"--set {path}={given} gives a field that is tuned; remove it")


def _at(request: Request, grid_point: Point, tuning: TuningSpec | None) -> Request:
    """The request at a point of a grid."""
    for path, value in grid_point.items():
        request = request.with_setting(path, value)
    return replace(request, tuning=tuning)


def _values(request: Request, path: str, texts: Sequence[str]) -> tuple[Value, ...]:
    """The values of a field in order, each once, as the specification holds them."""
    specs = (resolve(_at(request, {path: text}, None)).spec for text in texts)
    return tuple(sorted({_value(spec, path) for spec in specs}, key=lambda v: (str(type(v)), v)))


def _rates(recipe: str, rate: float) -> tuple[float, ...]:
    """The rates of the question whose recipe it is, else multiples of the recipe's."""
    if question := recipes.find(recipe).question:
        return tuple(sorted(question.rates))
    return tuple(float(f"{rate * by:.3g}") for by in FACTORS)


def _value(spec: RunSpec, path: str) -> Value:
    owner, _, name = path.partition(".")
    value = getattr(getattr(spec, owner), name, None)
    if not isinstance(value, Value):
        raise UserError(f"--grid {path} is not possible; give a field with one value, as {RATE}")
    return value
