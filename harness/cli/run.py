"""`harness run`: train variants on tasks."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from harness import arguments
from harness.cli.process import Answer
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.runs import Execution, Outcomes


@dataclass(frozen=True, kw_only=True)
class RunOptions(arguments.Runs):
    """The options of `harness run`.

    Attributes:
        tune: Choose the learning rate on dev by seed 0, of four rates.
        grid: Another grid for --tune: train.FIELD=VALUE,VALUE,... or model.FIELD=...; repeatable
            for the product.
        over: Vary an option: NAME.OPTION=VALUE,VALUE,...; NAME is task, model, train, or a variant:
            task.pairs=4,8,16.
        match: parameters: the feed-forward width at which they are softmax's.
        suite: Run what is missing of a suite: laptop, or a TOML file.
        questions: Of the suite, separated by commas; by default all.
        cost: Measure time and memory after the runs, once for all seeds and learning rates.
        keep_checkpoints: Keep the weights of each evaluation.
        tensorboard: Folder for the curves as event files of TensorBoard.
    """

    tune: bool = False
    grid: list[str] | None = None
    over: str = ""
    match: str = ""
    suite: str = ""
    questions: str = ""
    cost: bool = True
    keep_checkpoints: bool = False
    tensorboard: Path | None = None

    def others(self, allowed: Collection[str]) -> list[str]:
        return [
            f"--{field.name.strip('_').replace('_', '-')}"
            for field in fields(self)
            if field.name not in allowed and getattr(self, field.name) != field.default
        ]


# The options of the first command.
EXECUTION = {
    "attention", "cost", "store", "device", "engine", "workers", "threads", "slurm", "rerun",
    "keep_outdated",
}  # fmt: skip

# The options beside `--suite`.
SUITE = {*EXECUTION, "suite", "questions", "set_", "keep_checkpoints"}


def run(options: RunOptions) -> Answer:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    With --attention alone: the place of the variants among the published rows of a suite.

    Each run is made once: commands on one store, of one machine or several, share its runs.
    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    from harness import api
    from harness.cli.progress import shown

    how = api.Execution(
        store=options.store, resources=options.resources(), cost=options.cost, rerun=options.rerun,
        keep_outdated=options.keep_outdated, baselines=True,
        keep_checkpoints=options.keep_checkpoints, tensorboard=options.tensorboard, shown=shown(),
    )  # fmt: skip
    if options.suite:
        for flag in options.others(SUITE):
            raise UserError(f"{flag} is not possible: suite {options.suite} fixes it; leave it out")
        return _suite(options, how)
    if not options.attention:
        raise UserError("no --attention is given; give for example --attention primal")
    if options.questions:
        raise UserError("--questions are of a suite; give --suite laptop as well")
    if not options.others(EXECUTION):
        return _first(options, how)
    outcomes, _, is_complete = api.compare(api.Comparison(
        attention=arguments.attentions_in(options.attention or ()),
        task=arguments.tasks_in(arguments.names_in(options.task or ())), budget=options.budget,
        seeds=None if options.seeds is None else arguments.seeds_in(options.seeds),
        settings=arguments.settings_of(options.set_), positions=options.positions,
        precision=options.precision, device=options.device, compiled=options.compile,
        tune=options.tune, grid=arguments.values_in("--grid", options.grid),
        over=arguments.values_in("--over", [options.over] if options.over else []),
        match=options.match,
    ), how)  # fmt: skip
    return _answer(options, outcomes, int(not is_complete))


def _answer(options: RunOptions, outcomes: "Outcomes", code: int) -> Answer:
    from harness import api
    from reports.pages.suite import answers_of, terminal

    of, runs = api.summary(outcomes, options.store)
    present = {False: "already present", True: "of other code than now"}
    note, after = "  ({}; run it again with --rerun)", "pages: harness report --store"
    paths = [f"{run['path']}" + note.format(present[run["outdated"]]) * (not run["new"])
             for run in runs]  # fmt: skip
    text = "\n".join([*paths, "", terminal(of), "", f"{after} {options.store}"])
    return Answer(text, {"answers": answers_of(of), "runs": runs}, code)


def _first(options: RunOptions, how: "Execution") -> Answer:
    from harness import api

    found = api.first(arguments.names_in(options.attention or ()), how)
    failed = any(of["failed"] for row in found["rows"] for of in row["questions"])
    text = "\n\n".join(api.first_text(row, found["machine"]) for row in found["rows"])
    return Answer(text, found, int(failed))


def _suite(options: RunOptions, how: "Execution") -> Answer:
    from harness import api
    from reports import papers
    from reports.pages.suite import answers_of, terminal

    suite, is_complete, found = api.run_suite(
        options.suite, how, attentions=arguments.attentions_in(options.attention or ()),
        questions=arguments.names_in([options.questions]) if options.questions else (),
        settings=arguments.settings_of(options.set_),
    )  # fmt: skip
    code, after = int(not is_complete), f"\n\npages: harness report --store {options.store}"
    if found is not None:
        text = f"\n{papers.step_text(found)}{after}"
        return Answer(text, {"rows": papers.step_lines(found)}, code)
    of = api.matrix_of(suite, options.store)
    text = f"\n{terminal(of)}{after}" if of else "no run has finished"
    return Answer(text, {"answers": answers_of(of) if of else []}, code)
