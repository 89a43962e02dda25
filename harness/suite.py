"""The runs and the measurements of a suite, from its questions and rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from harness import recipes
from harness.costs.plan import CostRequest, measurements
from harness.data import data_of
from harness.environment import describe
from harness.questions import of_suite
from harness.records.cost import CostSpec
from harness.records.fields import Device
from harness.records.models import Encoder
from harness.records.spec import RunSpec
from harness.records.suites import CostPlan, Suite, SuiteQuestion, SuiteRow
from harness.tuning import trials
from tasks import create
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.composition import Composition, layers_in
from zoo.contract import Unsupported
from zoo.registry import UserError, Value
from zoo.variants import variants

SOME_EXAMPLES = 100
"""Examples of train that show which lengths there are."""


def rows_of(
    suite: Suite, names: Sequence[str], settings: Mapping[str, Mapping[str, Value]]
) -> tuple[SuiteRow, ...]:
    """The rows that are named by their label, else by their attention; all if none is named.

    A name that no row has is a further row. With `settings`, options of variants, each is.
    """
    if not names and not settings:
        return suite.rows
    rows: list[SuiteRow] = []
    for name in names or [row.attention for row in suite.rows]:
        named = [row for row in suite.rows if name == row.label]
        named = named or [row for row in suite.rows if name == row.attention]
        if settings or not named:
            composition = Composition.parse(name)
            options = {v: dict(settings[v]) for v in composition.names if v in settings}
            # An option that is wrong is rejected here, before a question begins.
            composition.resolve(options)
            named = [SuiteRow(attention=name, options=options)]
        rows += named
    if unused := settings.keys() - {owner for row in rows for owner in row.options}:
        raise UserError(
            f"--set {min(unused)}: a suite fixes recipes and tasks; give options of variants of "
            f"--attention, or train on one question with --budget {suite.key}/NAME"
        )
    return tuple(rows)


def specs_of(
    suite: Suite, declared: SuiteQuestion, rows: Iterable[SuiteRow], device: Device,
    announce: Callable[[str], None] = lambda line: None,
) -> list[list[RunSpec]]:  # fmt: skip
    """The runs of each row that has the form which a question of a suite needs.

    They are a trial at each point of the question's grid, with seed 0; without a grid one run. A
    row has the variants' causal or bidirectional form, and a layer for each variant.
    """
    question, found = of_suite(suite, declared, device), []
    for row in rows:
        if not has_form(row.attention, causal=data_of(question.task).task.causal):
            continue
        with suppress(Unsupported):
            is_rotary = row.attention in declared.rotary
            positions = {"model.positions": "rotary"} if is_rotary else {}
            made = trials(question, row.attention, row.options, device, positions, announce)
            found.append(made)
    return found


def asked(suite: Suite, question: SuiteQuestion) -> tuple[recipes.TaskRecipe, Any]:
    """The recipe and the task of a question; the class of a task that is made from a file."""
    of_task = recipes.of_question(suite, question.name).of_task(question.task)
    read = "path" in of_task.options
    return of_task, tasks.find(question.task) if read else create(question.task, **of_task.options)


def has_form(attention: str, *, causal: bool) -> bool:
    """Return whether the variants of a row that are installed have the form of a task."""
    names = {*layers_in(attention)} & {*variants.names()}
    return all(causal in variants.find(name).traits.forms for name in names)


def missing_data(suite: Suite, questions: Iterable[SuiteQuestion]) -> dict[str, str]:
    """The command that gets the missing data of each question, by name."""
    missing = {}
    for question in questions:
        of_task, task = asked(suite, question)
        path = str(of_task.options.get("path", ""))
        if path and not Path(path).is_file():
            missing[question.name] = f"put {path} here, a file of D4RL (docs/control.md)"
        if isinstance(task, ImportedTask) and not task.is_cached():
            missing[question.name] = task.how_to_get()
    if missing and (not suite.published or missing.keys() >= {q.name for q in questions}):
        name, remedy = next(iter(missing.items()))
        raise UserError(
            f"question {name!r} has no data: {remedy}; or name other questions with --questions"
        )
    return missing


class Effort(NamedTuple):
    """The runs of a row on a question.

    Attributes:
        question, row, attention, task: as of `Step`.
        runs: their number, trials included.
        steps: of each of them, at most.
        passes: of the model in a step: parts of equal length.
    """

    question: str
    row: str
    attention: str
    task: str
    runs: int
    steps: int
    passes: int


def efforts(suite: Suite) -> list[Effort]:
    """The runs of a whole suite; no data are needed."""
    found = []
    for question in suite.questions:
        of_task, task = asked(suite, question)
        key = question.task if isinstance(task, type) else task.key
        # Costs of training steps need no run.
        runs = (len(question.rates) + len(question.seeds)) * (suite.level == "run")
        steps, passes = of_task.train["steps"], 1
        if of_task.train.get("parts_by_length"):
            some = create(question.task, **{**of_task.options, "train": SOME_EXAMPLES})
            passes = len(some.load("train").lengths.unique())
        for row in suite.rows:
            if has_form(row.attention, causal=task.causal):
                of_row = (question.name, row.label, row.attention, key, runs, steps, passes)
                found.append(Effort(*of_row))
    return found


class Step(NamedTuple):
    """The training step of a row at the shape of a question.

    Attributes:
        question, row, attention, task: the names of the question and of the row, its variant, and
            the key of the task.
        spec: what is measured; several steps may share one.
    """

    question: str
    row: str
    attention: str
    task: str
    spec: CostSpec


def steps(
    suite: Suite, questions: Iterable[SuiteQuestion], rows: Sequence[SuiteRow], device: Device
) -> list[Step]:
    """The training steps of rows at the shapes of questions; no data are needed."""
    environment, found = describe(device), []
    for question in questions:
        of_task, task = asked(suite, question)
        model = Encoder.model_validate({**of_task.model, "positions": question.positions})
        # Both sequences of an example pass through the encoder.
        batch = of_task.train["batch"] * task.sequences
        for row in rows:
            composition = Composition.parse(row.attention)
            options = recipes.options_of(of_task.variants, composition.names)
            spec = CostSpec(
                attention=row.attention,
                options=composition.changed(
                    {v: {**usual, **row.options.get(v, {})} for v, usual in options.items()}
                ),
                level="step", operation="train", length=task.max_len, batch=batch,
                batching=str(batch), dim=model.dim, heads=model.heads, causal=task.causal,
                model=model, precision=question.precision, device=device,
                machine=environment.device, threads=environment.threads,
            )  # fmt: skip
            found.append(Step(question.name, row.label, row.attention, task.key, spec))
    return found


def costs(suite: Suite, rows: Sequence[SuiteRow], device: Device) -> list[CostSpec]:
    """The measurements of the rows of a suite, with the references of softmax."""
    return [spec for row in rows for spec in layer_costs(suite.cost, row, device)]


def layer_costs(plan: CostPlan, row: SuiteRow, device: Device) -> list[CostSpec]:
    """The measurements of a row: of a layer in each form, so none of a composition.

    Forms and passes that the row lacks are left out.
    """
    specs: list[CostSpec] = []
    is_layer = len(Composition.parse(row.attention).names) == 1
    for operation, causal in product(plan.passes if is_layer else (), (False, True)):
        request = CostRequest(
            attentions=[row.attention], lengths=plan.lengths, operations=[operation],
            level="layer", batching=plan.batch[operation], dim=plan.dim, heads=plan.heads,
            causal=causal, precision=plan.precision, device=device, settings=row.options,
        )  # fmt: skip
        with suppress(Unsupported):
            specs += measurements(request)
    return specs
