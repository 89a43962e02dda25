"""What published tables need: data of their tasks, and training steps at their shapes."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from harness import budgets
from harness.cost.cell import BACKEND, REFERENCE, reference_of
from harness.cost.plan import NAIVE
from harness.environment import describe
from harness.plan import Settings
from harness.records.cost import CostSpec
from harness.records.spec import ModelSpec
from tasks import create
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.composition import Composition


def missing_data(names: Sequence[str], budget: str) -> dict[str, str]:
    """How to get the data of each task whose data are missing, by its name.

    Raises:
        UserError: a name is unknown, or the budget has no recipe for a task.
    """
    recipes = budgets.find(budget)
    missing = {}
    for name in names:
        tasks.find(name)
        task = create(name, **recipes.recipe(name).options)
        if isinstance(task, ImportedTask) and not task.is_cached():
            missing[name] = task.how_to_get()
    return missing


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
    made = []
    for name in names:
        tasks.find(name)
        for attention in dict.fromkeys((REFERENCE, *attentions)):
            own = recipe.options(name, Composition.parse(attention).names)
            if attention == REFERENCE:
                own = {REFERENCE: {"backend": NAIVE}}
            cell = _cell(attention, name, recipe, own, device, precision)
            made.append(cell)
            if attention == REFERENCE:
                made.append(cell._replace(attention=BACKEND, spec=reference_of(cell.spec)))
    return made


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
    model = ModelSpec.model_validate({**recipe.model, "positions": "learned"})
    # Both sequences of an example pass through the encoder.
    batch: Any = recipe.train["batch"] * task.sequences
    spec = CostSpec(
        attention=attention,
        options=Composition.parse(attention).resolve(options),
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
