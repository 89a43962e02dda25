"""The runs and the measurements of a suite, from its questions and rows."""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness import recipes, stores
from harness.checks import require_passed
from harness.costs.plan import measurements
from harness.costs.sweep import is_complete, measure_all
from harness.data import data_of
from harness.environment import describe, is_foreign, is_outdated
from harness.questions import NONE, Settings, composed, of_suite
from harness.records.cost import REFERENCE, CostSpec
from harness.records.fields import Device, require_known
from harness.records.frame import of_costs
from harness.records.record import Record
from harness.records.spec import Encoder, RunSpec
from harness.records.store import CostStore, Store
from harness.records.suites import Suite, SuiteQuestion, SuiteRow, find
from harness.runs import Execution, choose, differ, execute, matched, trials
from tasks import create
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.composition import Composition, layers_in
from zoo.contract import Unsupported
from zoo.registry import UserError, Value
from zoo.variants import variants

LOG = logging.getLogger(__name__)

SOME_EXAMPLES = 100  # Examples of train that show which lengths there are


def rows_of(
    suite: Suite, names: Sequence[str], settings: Mapping[str, Mapping[str, Value]]
) -> tuple[SuiteRow, ...]:
    # A name without a row makes a new row; with `settings`, options of variants, each name does.
    if not names and not settings:
        return suite.rows
    rows: list[SuiteRow] = []
    for name in names or [row.attention for row in suite.rows]:
        named = [row for row in suite.rows if name == row.label]
        named = named or [row for row in suite.rows if name == row.attention]
        if settings or not named:
            composition = Composition.parse(name)
            options = {v: dict(settings[v]) for v in composition.names if v in settings}
            # Rejects wrong options before a question begins.
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
    suite: Suite, declared: SuiteQuestion, rows: Iterable[SuiteRow], device: Device, match: str = ""
) -> list[list[RunSpec]]:
    # A trial at each point of the question's grid, with seed 0; without a grid one run.
    question, found = of_suite(suite, declared, device, match), []
    for row in rows:
        if not has_form(row.attention, causal=data_of(question.task).task.causal):
            continue
        values = {"model.positions": "rotary"} if row.attention in declared.rotary else {}
        with suppress(Unsupported):
            if match:
                values = values | matched(question, row.attention, row.options, device)
            found.append(trials(question, row.attention, row.options, device, values))
    return found


def recipe_and_task(suite: Suite, question: SuiteQuestion) -> tuple[recipes.TaskRecipe, Any]:
    of_task = recipes.of_question(suite, question.name).of_task(question.task)
    read = "path" in of_task.options
    return of_task, tasks.find(question.task) if read else create(question.task, **of_task.options)


def has_form(attention: str, *, causal: bool) -> bool:
    names = {*layers_in(attention)} & {*variants.names()}
    return all(causal in variants.find(name).traits.forms for name in names)


def missing_data(suite: Suite, questions: Iterable[SuiteQuestion]) -> dict[str, str]:
    missing = {}
    for question in questions:
        of_task, task = recipe_and_task(suite, question)
        path = str(of_task.options.get("path", ""))
        if path and not Path(path).is_file():
            missing[question.name] = f"put {path} here, a file of D4RL (docs/data.md)"
        if isinstance(task, ImportedTask) and not task.is_cached():
            missing[question.name] = task.how_to_get()
    if missing and (not suite.published or missing.keys() >= {q.name for q in questions}):
        name, remedy = next(iter(missing.items()))
        raise UserError(
            f"question {name!r} has no data: {remedy}; or name other questions with --questions"
        )
    return missing


def efforts(suite: Suite) -> pd.DataFrame:
    # Columns: those of `Step`; `runs`, with trials; `steps` of a run, at most; `passes` of the
    # model in a step, one for each part of equal length.
    found = []
    for question in suite.questions:
        of_task, task = recipe_and_task(suite, question)
        key = question.task if isinstance(task, type) else task.key
        # Costs of training steps need no run.
        runs = (len(question.rates) + len(question.seeds)) * (suite.level == "run")
        steps, passes = of_task.train["steps"], 1
        if of_task.train.get("parts_by_length"):
            some = create(question.task, **{**of_task.options, "train": SOME_EXAMPLES})
            passes = len(some.load("train").lengths.unique())
        found += ((question.name, row.label, row.attention, key, runs, steps, passes)
                  for row in suite.rows
                  if has_form(row.attention, causal=task.causal))  # fmt: skip
    names = ["question", "row", "attention", "task", "runs", "steps", "passes"]
    return pd.DataFrame(found, columns=names)


class Step(NamedTuple):
    """The training step of a row at the shape of a question; several may share a `spec`."""

    question: str
    row: str
    attention: str
    task: str
    spec: CostSpec


def steps(
    suite: Suite, questions: Iterable[SuiteQuestion], rows: Sequence[SuiteRow], device: Device
) -> list[Step]:
    environment, found = describe(device), []
    for question in questions:
        of_task, task = recipe_and_task(suite, question)
        model = Encoder.model_validate({**of_task.model, "positions": question.positions})
        # Both sequences of an example pass through the encoder.
        batch = of_task.train["batch"] * task.sequences
        for row in rows:
            options = composed(of_task.variants, row.attention, row.options)[1]["options"]
            spec = CostSpec(
                attention=row.attention, options=options, level="step", operation="train",
                length=task.max_len, batch=batch, batching=str(batch), dim=model.dim,
                heads=model.heads, causal=task.causal, model=model, precision=question.precision,
                device=device, machine=environment.device, threads=environment.threads,
            )  # fmt: skip
            found.append(Step(question.name, row.label, row.attention, task.key, spec))
    return found


def frame_of(steps: Sequence[Step]) -> pd.DataFrame:
    wanted = [{**step._asdict(), "shape": step.spec.shape} for step in steps]
    return pd.DataFrame(wanted).drop(columns="spec")


def layer_costs(suite: Suite, row: SuiteRow, device: Device) -> list[CostSpec]:
    specs, plan = list[CostSpec](), suite.cost
    composition, of_row = composed(recipes.shared_options(suite), row.attention, row.options)
    has_any = plan.level == "step" or len(composition.names) == 1
    for operation, causal in product(plan.passes if has_any else (), plan.causal):
        with suppress(Unsupported):
            specs += measurements(
                [row.attention], plan.lengths, [operation], level=plan.level,
                batching=plan.batch[operation], dim=plan.dim, heads=plan.heads, causal=causal,
                precision=plan.precision, device=device, settings=of_row["options"],
                # Softmax without a backend is the faster of the two.
                references=row.attention == REFERENCE,
            )  # fmt: skip
    return specs


def costs_of_rows(suite: Suite, rows: Sequence[SuiteRow], device: Device) -> list[CostSpec]:
    named = [Composition.parse(row.attention).names for row in rows]
    parts = dict.fromkeys(name for names in named if len(names) > 1 and suite.cost.level == "layer"
                          for name in names)  # fmt: skip
    layers = [SuiteRow(attention=name) for name in parts]
    every = [*rows, *(layer for layer in layers if layer not in rows)]
    return [spec for row in every for spec in layer_costs(suite, row, device)]


def run_suite(
    name: str, how: Execution, *, attentions: Sequence[str] = (), questions: Sequence[str] = (),
    settings: Settings = NONE, match: str = "", seeds: Sequence[int] = (),
) -> tuple[Suite, bool, Sequence[pd.DataFrame]]:  # fmt: skip
    # Runs what is missing, question by question, then measures the rows. `name` may be a TOML file,
    # `attentions` are labels of rows or variants; `settings`, options of variants, and `match` make
    # further rows; `seeds` are some of the suite's, by default all. Returns the suite, whether it
    # is complete, and for a suite of training steps the arguments of `reports.papers.step_costs`.
    suite, device = find(name), how.resources.device
    chosen = [suite.question(name) for name in questions] or suite.questions
    rows = rows_of(suite, attentions, settings)
    if suite.level == "step":
        _require_runs(suite, {"--match": bool(match), "--seeds": bool(seeds)})
        return suite, *_measure_steps(suite, chosen, rows, how)
    _require_seeds(chosen, seeds)
    missing = missing_data(suite, chosen)
    for lacking, remedy in missing.items():
        warnings.warn(f"missing data of {lacking}: {remedy}", stacklevel=2)
    chosen = [question for question in chosen if question.name not in missing]
    for question in chosen:
        # Before the first run: a wrong recipe and models that cannot be matched are rejected.
        of_suite(suite, question, device)
        if match:
            specs_of(suite, question, rows, device, match)
    layers = costs_of_rows(suite, rows, device) if how.cost and suite.has_costs else []
    for spec in layers:
        # Rejects bad files before the first run.
        CostStore.within(how.store).find(spec)
    if how.checks:
        _require_certificates(rows, how)
    complete = True
    for number, question in enumerate(chosen, 1):
        LOG.info("question %s of %s: %s", number, len(chosen), question.title)
        found = specs_of(suite, question, rows, device, match)
        complete &= _train(_of_seeds(question, seeds), found, how)
    if layers:
        if running := Store(how.store).locks.running_here():
            raise UserError(
                f"nothing is measured while runs are in progress on this machine ({running}); "
                f"measure later with: harness run --suite {suite.key} --store {how.store}"
            )
        softmax = layer_costs(suite, SuiteRow(attention=REFERENCE), device)
        copy_published([*layers, *softmax], how.store)
        complete &= is_complete(measure_all(layers, how.store, **how.of_costs))
    return suite, complete, ()


def _measure_steps(
    suite: Suite, questions: Sequence[SuiteQuestion], rows: Sequence[SuiteRow], how: Execution
) -> tuple[bool, Sequence[pd.DataFrame]]:
    first = rows_of(suite, [suite.rows[0].attention], {})
    every = (*first, *(row for row in rows if row not in first))
    found = steps(suite, questions, every, how.resources.device)
    measured = measure_all([step.spec for step in found], how.store, **how.of_costs)
    return is_complete(measured), (frame_of(found), of_costs(measured))


def _require_runs(suite: Suite, given: Mapping[str, bool]) -> None:
    for flag in (flag for flag, is_given in given.items() if is_given):
        raise UserError(f"{flag} is of runs, {suite.key} measures steps; leave it out")


def _require_seeds(questions: Iterable[SuiteQuestion], seeds: Iterable[int]) -> None:
    known = {str(seed) for of in questions for seed in (*of.seeds, *of.more_seeds)}
    require_known("seed of these questions", map(str, seeds), known)


def _of_seeds(question: SuiteQuestion, seeds: Sequence[int]) -> SuiteQuestion:
    some = {name: tuple(seed for seed in getattr(question, name) if seed in seeds)
            for name in ("seeds", "more_seeds")}  # fmt: skip
    return question.model_copy(update=some) if seeds else question


def _train(question: SuiteQuestion, found: list[list[RunSpec]], how: Execution) -> bool:
    if question.rates:
        outcomes, count = choose(found, question.seeds, how, of_suite=True) if found else ([], 0)
    else:
        every = [spec.model_copy(update={"seed": n}) for (spec,) in found for n in question.seeds]
        outcomes, count = execute(every, how) if every else [], len(every)
    by_row: dict[str, list[Record]] = {}
    for record, _ in outcomes:
        by_row.setdefault(record.spec.row, []).append(record)
    more = [
        records[0].spec.model_copy(update={"seed": seed})
        for records in by_row.values() if differ(records)
        for seed in question.more_seeds
    ]  # fmt: skip
    outcomes += execute(more, how) if more else []
    complete = len(outcomes) == count + len(more)
    return complete and all(record.status == "ok" for record, _ in outcomes)


def copy_published(specs: Sequence[CostSpec], store: Path) -> None:
    published, own = CostStore.within(stores.PUBLISHED), CostStore.within(store)
    for spec in specs:
        if spec.attention == REFERENCE and own.find(spec) is None:
            record = published.find(spec)
            here = describe(spec.device).versions["torch"]
            is_current = record and record.status == "ok" and not is_outdated(record)
            if record and is_current and record.environment.versions["torch"] == here:
                own.write(record)


def _require_certificates(rows: Sequence[SuiteRow], how: Execution) -> None:
    # Tests of this repository do not prove claims of other packages.
    for row in rows:
        for name in Composition.parse(row.attention).names:
            if is_foreign([name]):
                options = row.options.get(name, {})
                require_passed(name, options, how.store)
