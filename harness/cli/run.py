"""`harness run`: train variants on tasks."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from harness import arguments
from harness.cli.process import Answer
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.runs import Execution, Outcomes

Natural = Annotated[int, {"min": 0}]

EXECUTION = {
    "attention", "cost", "store", "device", "engine", "workers", "threads", "slurm", "rerun",
    "keep_outdated",
}  # fmt: skip
SUITE = {*EXECUTION, "suite", "questions", "set_", "keep_checkpoints"}  # Possible with `--suite`


@dataclass(frozen=True, kw_only=True)
class RunOptions(arguments.Shared):
    """The options of `harness run`.

    Attributes:
        task: TASK, MODULE:CLASS, or TASK,TASK,...; repeatable; by default listops, or as --budget
            SUITE/QUESTION says.
        budget: Recipe: smoke, laptop, paper, a TOML file, or SUITE/QUESTION: laptop@2/copy.
        seeds: Seeds and ranges: 0-2,7; by default 0, with --tune 1-5.
        positions: learned, rotary or none; by default learned, or as --budget SUITE/QUESTION says.
        compile: torch.compile; by default on CUDA only.
        engine: Engine of the runs, such as local, ray or slurm; see docs/grids.md.
        workers: Runs at once; 0 is 1 on this machine, and all that have room elsewhere.
        threads: CPU threads of a run; 0 is a worker's share of this machine, 1 elsewhere.
        slurm: NAME=VALUE for Slurm, as partition=gpu; repeatable.
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

    task: list[str] | None = None
    budget: str = "laptop"
    seeds: str | None = None
    positions: str = ""
    compile: bool | None = None
    engine: str = "local"
    workers: Natural = 0
    threads: Natural = 0
    slurm: list[str] | None = None
    tune: bool = False
    grid: list[str] | None = None
    over: str = ""
    match: str = ""
    suite: str = ""
    questions: str = ""
    cost: bool = True
    keep_checkpoints: bool = False
    tensorboard: Path | None = None


def run(options: RunOptions) -> Answer:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    With --attention alone: the place of the variants among the published rows of a suite.

    Each run is made once: commands on one store, of one machine or several, share its runs.
    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    from harness.runs import compare

    how = _execution(options)
    changed = [f for f in fields(options) if getattr(options, f.name) != f.default]
    if options.suite:
        for field in changed:
            if field.name not in SUITE:
                flag = f"--{field.name.replace('_', '-')}"
                message = f"{flag} is not possible: suite {options.suite} fixes it; leave it out"
                raise UserError(message)
        return _suite(options, how)
    if not options.attention:
        raise UserError("no --attention is given; give for example --attention primal")
    if options.questions:
        raise UserError("--questions are of a suite; give --suite laptop as well")
    if {field.name for field in changed} <= EXECUTION:
        return _first(options, how)
    outcomes, _, is_complete = compare(
        arguments.attentions_in(options.attention),
        arguments.tasks_in(arguments.names_in(options.task or ())), how, budget=options.budget,
        seeds=None if options.seeds is None else arguments.seeds_in(options.seeds),
        settings=arguments.settings_of(options.set_), positions=options.positions,
        precision=options.precision, compiled=options.compile, tune=options.tune,
        grid=arguments.values_in("--grid", options.grid),
        over=arguments.values_in("--over", [options.over] if options.over else []),
        match=options.match,
    )  # fmt: skip
    return _answer(options, outcomes, int(not is_complete))


def _execution(options: RunOptions) -> "Execution":
    from harness.engines import resources
    from harness.runs import Execution

    parameters = {n: value for n, _, value in (t.partition("=") for t in options.slurm or ())}
    if not all(name and value for name, value in parameters.items()):
        texts = " ".join(options.slurm or ())
        raise UserError(f"--slurm {texts}: give NAME=VALUE, as partition=gpu")
    used = resources(
        options.engine, workers=options.workers, threads=options.threads, device=options.device,
        parameters=parameters,
    )  # fmt: skip
    return Execution(
        store=options.store, resources=used, cost=options.cost, rerun=options.rerun,
        keep_outdated=options.keep_outdated, baselines=True,
        keep_checkpoints=options.keep_checkpoints, tensorboard=options.tensorboard,
    )  # fmt: skip


def _answer(options: RunOptions, outcomes: "Outcomes", code: int) -> Answer:
    from reports.pages.suite import answers_of, terminal
    from reports.store import summary

    of, runs = summary(outcomes, options.store)
    present = {False: "already present", True: "of other code than now"}
    note = "  ({}; run it again with --rerun)"
    paths = [f"{run['path']}" + note.format(present[run["outdated"]]) * (not run["new"])
             for run in runs]  # fmt: skip
    text = "\n".join([*paths, "", terminal(of), "", _pages(options)])
    return Answer(text, {"answers": answers_of(of), "runs": runs}, code)


def _first(options: RunOptions, how: "Execution") -> Answer:
    from harness.first import first
    from reports.first import text as text_of

    found = first(arguments.names_in(options.attention or ()), how)
    failed = any(of["failed"] for row in found["rows"] for of in row["questions"])
    text = "\n\n".join(text_of(row, found["machine"]) for row in found["rows"])
    return Answer(text, found, int(failed))


def _suite(options: RunOptions, how: "Execution") -> Answer:
    from harness.suite import run_suite
    from reports import papers
    from reports.pages.suite import answers_of, terminal
    from reports.store import matrix_of

    suite, is_complete, found = run_suite(
        options.suite, how, attentions=arguments.attentions_in(options.attention or ()),
        questions=arguments.names_in([options.questions]) if options.questions else (),
        settings=arguments.settings_of(options.set_),
    )  # fmt: skip
    code = int(not is_complete)
    if found:
        costs = papers.step_costs(*found)
        text = f"\n{papers.step_text(costs)}\n\n{_pages(options)}"
        return Answer(text, {"rows": papers.step_lines(costs)}, code)
    of = matrix_of(suite, options.store)
    text = f"\n{terminal(of)}\n\n{_pages(options)}" if of else "no run has finished"
    return Answer(text, {"answers": answers_of(of) if of else []}, code)


def _pages(options: RunOptions) -> str:
    return f"pages: harness report --store {options.store}"
