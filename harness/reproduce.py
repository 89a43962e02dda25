"""The columns of published tables, with their data, and training steps at published shapes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness import budgets
from harness.cost.cell import reference_of
from harness.environment import describe
from harness.plan import Settings
from harness.records.cost import CostSpec
from harness.records.spec import Encoder
from harness.reference import NAIVE, REFERENCE, SDPA
from tasks import create
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.composition import Composition
from zoo.registry import UserError, unknown

ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah-v5", "hopper": "Hopper-v5", "walker2d": "Walker2d-v5"
}  # fmt: skip
QUALITIES = ("medium-expert", "medium", "medium-replay")

RANKS = {
    "halfcheetah-medium-replay": 32, "halfcheetah-medium": 64, "hopper-medium-expert": 64,
    "hopper-medium-replay": 64,
}  # fmt: skip
"""Published ranks of Primal-Attention by data set, where they differ from that of the budget."""

D4RL = tuple(f"{robot}-{quality}" for robot in ENVIRONMENTS for quality in QUALITIES)
"""The data sets of Table 4."""


class DataSet(NamedTuple):
    """A column of a table.

    Attributes:
        name: heading of the column.
        task: name of its task.
        settings: texts `NAME.OPTION=VALUE` for its runs.
        missing: how to get its data; empty if they are present.
    """

    name: str
    task: str
    settings: tuple[str, ...]
    missing: str


def tasks_of(names: Sequence[str], budget: str) -> list[DataSet]:
    """Tasks as columns.

    Raises:
        UserError: a name is unknown, or the budget has no recipe for a task.
    """
    recipes = budgets.find(budget)
    columns = []
    for name in names:
        tasks.find(name)
        task = create(name, **recipes.recipe(name).options)
        missing = ""
        if isinstance(task, ImportedTask) and not task.is_cached():
            missing = task.how_to_get()
        columns.append(DataSet(name, name, (), missing))
    return columns


def trajectories_of(names: Sequence[str], folder: Path) -> list[DataSet]:
    """Data sets of D4RL as columns; `folder` holds files such as `hopper_medium-v2.hdf5`.

    Raises:
        UserError: a name is unknown.
    """
    columns = []
    for name in names:
        if name not in D4RL:
            raise UserError(unknown("data set", name, D4RL))
        robot, _, quality = name.partition("-")
        file = folder / f"{robot}_{quality.replace('-', '_')}-v2.hdf5"
        settings = [f"control.path={file}", f"control.env={ENVIRONMENTS[robot]}"]
        settings += [f"primal.rank={RANKS[name]}"] if name in RANKS else []
        remedy = f"give --data with the folder of {file.name}, a file of D4RL (see docs/control.md)"
        columns.append(DataSet(name, "control", tuple(settings), "" if file.is_file() else remedy))
    return columns


class Cell(NamedTuple):
    """One number of the table: a variant on a task.

    Attributes:
        task: the key of the task.
        attention: the variant; `softmax` is that of the formula, `sdpa` is SDPA softmax.
        spec: what is measured for it. Several cells may share one.
    """

    task: str
    attention: str
    spec: CostSpec


def cells(
    attentions: Sequence[str],
    names: Sequence[str],
    *,
    budget: str,
    device: Literal["cpu", "cuda"],
    precision: Literal["bf16", "fp32"],
) -> list[Cell]:
    """The training steps of variants on tasks, at the shapes of a budget.

    Softmax by its formula, which published ratios refer to, and SDPA softmax are always rows.

    Args:
        attentions: the variants.
        names: the tasks.
        budget: gives batch, length, model and options.
        device: kind of device.
        precision: of the matrix products.

    Raises:
        UserError: a name is unknown, or the budget has no recipe for a task.
    """
    recipe = budgets.find(budget)
    steps = []
    for name in names:
        tasks.find(name)
        for attention in dict.fromkeys((REFERENCE, *attentions)):
            own = recipe.options(name, Composition.parse(attention).names)
            if attention == REFERENCE:
                own = {REFERENCE: {"backend": NAIVE}}
            cell = _cell(attention, name, recipe, own, device, precision)
            steps.append(cell)
            if attention == REFERENCE:
                steps.append(cell._replace(attention=SDPA, spec=reference_of(cell.spec)))
    return steps


def _cell(
    attention: str,
    name: str,
    budget: budgets.Budget,
    options: Settings,
    device: Literal["cpu", "cuda"],
    precision: Literal["bf16", "fp32"],
) -> Cell:
    recipe, environment = budget.recipe(name), describe(device)
    task = create(name, **recipe.options)
    model = Encoder.model_validate({**recipe.model, "positions": "learned"})
    # Both sequences of an example pass through the encoder.
    batch: Any = recipe.train["batch"] * task.sequences
    spec = CostSpec(
        attention=attention,
        options=Composition.parse(attention).changed(options),
        level="step",
        operation="train",
        length=task.max_len,
        batch=batch,
        batching=str(batch),
        dim=model.dim,
        heads=model.heads,
        causal=task.causal,
        model=model,
        precision=precision,
        device=device,
        machine=environment.device,
        threads=environment.threads,
    )
    return Cell(task.key, attention, spec)
