"""`harness run`: train variants on tasks."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import arguments, stores
from harness.cli.cost import exit_code
from harness.cli.files import within, write_pages
from harness.cli.process import Answer
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.runs import Comparison, Outcomes


@dataclass(frozen=True, kw_only=True)
class RunOptions(arguments.Stored, arguments.Runs):
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
        rerun: Repeat finished runs, from the beginning.
        keep_outdated: Use finished runs and costs of earlier code or checks as they are; by default
            they are repeated.
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
    rerun: bool = False
    keep_outdated: bool = False
    keep_checkpoints: bool = False
    tensorboard: Path | None = None

    def others(self, allowed: Collection[str]) -> list[str]:
        """The flags of the options beside those that differ from their defaults."""
        return [
            f"--{field.name.strip('_').replace('_', '-')}"
            for field in fields(self)
            if field.name not in allowed and getattr(self, field.name) != field.default
        ]

    def require_only(self, allowed: Collection[str], reason: str) -> None:
        """Raise `UserError`, with the reason, where another option than those allowed is given."""
        for flag in self.others(allowed):
            raise UserError(f"{flag} is not possible: {reason}; leave it out")


EXECUTION = {
    "attention", "cost", "store", "device", "engine", "workers", "threads", "slurm", "as_json",
    "rerun", "keep_outdated",
}  # fmt: skip
"""The options of the first command."""

SUITE = {*EXECUTION, "suite", "questions", "set_", "keep_checkpoints"}
"""The options beside `--suite`."""


def run(options: RunOptions) -> Answer:
    """Train every variant on every task with every seed; report accuracy, speed and memory.

    With --attention alone: the place of the variants among the published rows of a suite.

    Each run is made once: commands on one store, of one machine or several, share its runs.
    Exit 1 if a run failed, or was skipped because the variant does not support the task.
    """
    options.resources()  # rejects what this machine does not have
    if options.suite:
        options.require_only(SUITE, f"suite {options.suite} fixes it")
        from harness.cli import suite

        return suite.run(options)
    if not options.attention:
        raise UserError("no --attention is given; give for example --attention primal")
    if options.questions:
        raise UserError("--questions are of a suite; give --suite laptop as well")
    if not options.others(EXECUTION):
        from harness.cli.first import first

        return first(options)
    from harness.cli import progress
    from harness.events import require_tensorboard, write_events
    from harness.records.files import require_writable
    from harness.runs import fit_baselines, make, measure

    if folder := options.tensorboard:
        require_writable(folder, str(folder), "give another --tensorboard")
        require_tensorboard()
    how = progress.execution(options)
    outcomes, count = make(comparison(options), how)
    records = [record for record, _ in outcomes]
    if options.tensorboard:
        write_events(records, options.tensorboard)
    fit_baselines(records, options.store, how.shown)
    if options.over:
        _write_sweep(options)
    complete = len(records) == count and all(record.status == "ok" for record in records)
    complete &= not exit_code(measure(records, how))
    return Answer(_content(outcomes, options), 0 if complete else 1)


def comparison(options: RunOptions) -> "Comparison":
    """The runs that the options name."""
    from harness.runs import Comparison

    return Comparison(
        attention=arguments.attentions_in(options.attention or ()),
        task=arguments.names_in(options.task or ()), budget=options.budget,
        seeds=None if options.seeds is None else arguments.seeds_in(options.seeds),
        settings=arguments.settings_of(options.set_), positions=options.positions,
        precision=options.precision, device=options.device, compiled=options.compile,
        tune=options.tune, grid=arguments.values_in("--grid", options.grid),
        over=arguments.values_in("--over", [options.over] if options.over else []),
        match=options.match,
    )  # fmt: skip


def _write_sweep(options: RunOptions) -> None:
    """Write a table and a figure of all runs of the store that differ in the option varied."""
    from harness.tuning import default_of
    from reports import sweep

    field, found = options.over.partition("=")[0], stores.content(options.store)
    try:
        files = sweep.files(found.runs, found.rules, field, default_of(field))
    except ValueError as error:
        raise UserError(f"no page is written: {error}") from error
    write_pages(within(options.store, files))


def _content(outcomes: "Outcomes", options: RunOptions) -> Any:
    """The record of each run, and the leaderboard of the records."""
    from harness.provenance import is_outdated
    from harness.records.store import Store
    from harness.report import summary

    store = Store(options.store)
    rows, text = summary([record for record, _ in outcomes], options.store)
    if options.as_json:
        runs = [
            {
                "path": store.path(record.spec), "new": new, "attention": record.spec.attention,
                "task": record.spec.task.key, "seed": record.spec.seed, "status": record.status,
                "reason": record.reason,
            }
            for record, new in outcomes
        ]  # fmt: skip
        return {"rows": rows, "runs": runs}
    present = {False: "already present", True: "of other code than now"}
    paths = [
        f"{store.path(record.spec)}"
        + (not new) * f"  ({present[is_outdated(record)]}; run it again with --rerun)"
        for record, new in outcomes
    ]
    after = f"leaderboard: harness report --store {options.store}"
    return "\n".join([*paths, "", text, "", after])
