"""`harness run`: train variants on tasks."""

import shlex
from dataclasses import fields
from typing import TYPE_CHECKING

from harness import arguments
from harness.cli.process import Answer
from harness.cli.run_options import RunOptions, execution
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.runs import Execution

EXECUTION = {
    "attention", "cost", "store", "device", "engine", "workers", "threads", "slurm", "rerun",
    "keep_outdated",
}  # fmt: skip
# Possible with `--suite`
SUITE = {*EXECUTION, "suite", "questions", "seeds", "set_", "match", "checks", "keep_checkpoints"}


def run(options: RunOptions) -> Answer:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    With --attention alone: the place of the variants among the published rows of a suite.

    Each run is made once: commands on one store, of one machine or several, share its runs.
    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    how = execution(options)
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
    if not options.checks:
        raise UserError("--no-checks is of a suite; give --suite laptop as well, or leave it out")
    is_first = {field.name for field in changed} <= EXECUTION
    return _first(options.attention, how) if is_first else _compare(options.attention, options, how)


def _first(attentions: list[str], how: "Execution") -> Answer:
    from harness.first import first
    from reports.first import text as text_of

    found = first(arguments.names_in(attentions), how)
    failed = any(of["failed"] for row in found["rows"] for of in row["questions"])
    text = "\n\n".join(text_of(row, found["machine"]) for row in found["rows"])
    return Answer(text, found, int(failed))


def _compare(attentions: list[str], options: RunOptions, how: "Execution") -> Answer:
    from harness.runs import compare
    from reports.pages.suite import answers_of, terminal
    from reports.store import summary

    outcomes, _, is_complete = compare(
        arguments.attentions_in(attentions),
        arguments.tasks_in(arguments.names_in(options.task or ())), how, budget=options.budget,
        seeds=None if options.seeds is None else arguments.seeds_in(options.seeds),
        settings=arguments.settings_of(options.set_), positions=options.positions,
        precision=options.precision, compiled=options.compile, tune=options.tune,
        grid=arguments.values_in("--grid", options.grid),
        over=arguments.values_in("--over", [options.over] if options.over else []),
        match=options.match,
    )  # fmt: skip
    of, runs = summary(outcomes, options.store)
    present = {False: "already present", True: "of other code than now"}
    note = "  ({}; run it again with --rerun)"
    paths = [f"{run['path']}" + note.format(present[run["outdated"]]) * (not run["new"])
             for run in runs]  # fmt: skip
    text = "\n".join([*paths, "", terminal(of), "", _pages(options)])
    return Answer(text, {"answers": answers_of(of), "runs": runs}, int(not is_complete))


def _suite(options: RunOptions, how: "Execution") -> Answer:
    from harness.suite import run_suite
    from reports import papers
    from reports.pages.suite import answers_of, terminal
    from reports.store import matrix_of

    suite, is_complete, found = run_suite(
        options.suite, how, attentions=arguments.attentions_in(options.attention or ()),
        questions=arguments.names_in([options.questions]) if options.questions else (),
        settings=arguments.settings_of(options.set_), match=options.match,
        seeds=() if options.seeds is None else arguments.seeds_in(options.seeds),
    )  # fmt: skip
    code = int(not is_complete)
    if found:
        costs = papers.step_costs(*found)
        text = f"\n{papers.step_text(costs)}\n\n{_pages(options)}"
        return Answer(text, {"rows": papers.step_lines(costs)}, code)
    of = matrix_of(suite, options.store, options.suite)
    text = f"\n{terminal(of)}\n\n{_pages(options)}" if of else "no run has finished"
    return Answer(text, {"answers": answers_of(of) if of else []}, code)


def _pages(options: RunOptions) -> str:
    suite = f"--suite {shlex.quote(options.suite)} " * bool(options.suite)
    return f"pages: harness report {suite}--store {options.store}"
