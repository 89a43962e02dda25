"""Budgets: named recipes from which a request becomes a specification."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, cast, get_args

from harness.data import digests
from harness.records.spec import ModelSpec, Positions, RunSpec, TaskSpec, TrainSpec
from tasks import create
from tasks.blocks import shuffle_blocks
from tasks.registry import tasks
from zoo.composition import Composition
from zoo.registry import UserError, Value, resolve, unknown


@dataclass(frozen=True, kw_only=True)
class Request:
    """What somebody asks for, before any default is filled in.

    Attributes:
        attention: `A` or `A+B`.
        task: name of a task.
        budget: name of a budget.
        seed: of the run.
        device: kind of device, already chosen.
        precision: of the matrix products, already chosen.
        compiled: whether to compile the model.
        positions: how the model tells positions apart.
        block: tokens of the blocks whose order is shuffled, or 0.
        settings: options by owner (a variant's or the task's name), over those of the budget.
    """

    attention: str
    task: str
    budget: str
    seed: int
    device: Literal["cpu", "cuda"]
    precision: Literal["bf16", "fp32"]
    compiled: bool
    positions: str = "learned"
    block: int = 0
    settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


def names() -> list[str]:
    """The budgets, from the smallest to the largest number of steps."""
    budgets = [name for name in _tables() if name != "model"]
    return sorted(budgets, key=lambda name: _largest_steps(_tables()[name]))


def plan(request: Request) -> RunSpec:
    """Complete a request.

    Raises:
        UserError: the variant, task, budget or an option is unknown, ill-typed or out of range, or
            the budget says nothing of the task.
    """
    composition = Composition.parse(request.attention)
    task = tasks.find(request.task)
    if request.positions not in get_args(Positions):
        raise UserError(unknown("kind of positions", request.positions, get_args(Positions)))
    if request.budget not in names():
        raise UserError(unknown("budget", request.budget, names()))
    budget = _tables()[request.budget]
    own = _recipe(request.budget, request.task)
    requested = request.settings.get(request.task, {})
    options = resolve(request.task, task, {**own["options"], **requested})
    model = {**_tables()["model"], **budget.get("model", {}), **own["model"]}
    train = {**budget["train"], **own["train"]}
    made = create(request.task, **options)
    return RunSpec(
        attention=request.attention,
        options=composition.resolve(_variant_options(composition, budget, own, request.settings)),
        task=TaskSpec(
            name=request.task,
            key=shuffle_blocks(made, request.block).key,
            options=options,
            block=request.block,
            digests=digests(shuffle_blocks(made, request.block)),
        ),
        budget=request.budget,
        overrides={},
        model=ModelSpec(**model, positions=cast(Positions, request.positions)),
        train=TrainSpec(**train, precision=request.precision, compiled=request.compiled),
        device=request.device,
        seed=request.seed,
    )


def _recipe(name: str, task: str) -> dict[str, dict[str, Any]]:
    """What a budget says of a task itself, over what it says of what the task is like, by part.

    Raises:
        UserError: it says nothing of the task.
    """
    budget = _tables()[name]
    own = budget["tasks"].get(task, budget.get("other"))
    if own is None:
        raise UserError(
            f"budget {name!r} has no recipe for task {task!r}; it has recipes for "
            f"{', '.join(budget['tasks'])}; use budget 'laptop' or 'smoke'"
        )
    extends = budget[own["extends"]] if "extends" in own else {}
    parts = ("options", "model", "train", "variants")
    return {part: _over(extends.get(part, {}), own.get(part, {})) for part in parts}


def _over(extends: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `extends`; where both have a table, it is merged entry by entry."""
    found = {**extends, **own}
    both = [key for key in extends.keys() & own.keys() if isinstance(own[key], Mapping)]
    return {**found, **{key: {**extends[key], **own[key]} for key in both}}


def _variant_options(
    composition: Composition,
    budget: Mapping[str, Any],
    own: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Value]],
) -> dict[str, dict[str, Value]]:
    """What budget and request say of each variant, the most specific last."""
    merged: dict[str, dict[str, Value]] = {}
    for name in composition.names:
        layers = [budget.get("variants", {}), own["variants"]]
        requested = [name] if name == composition.body else [name, f"+{name}"]
        found = [table[key] for table in layers for key in requested if key in table]
        merged[name] = {k: v for one in [*found, settings.get(name, {})] for k, v in one.items()}
    return merged


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(resources.files("harness").joinpath("budgets.toml").read_text("utf-8"))


def _largest_steps(budget: Mapping[str, Any]) -> int:
    tables = [budget["train"], *(task.get("train", {}) for task in budget["tasks"].values())]
    return max(table.get("steps", 0) for table in tables)
