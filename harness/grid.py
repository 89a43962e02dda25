"""Many cells: those without a final record are run one after the other."""

import warnings
from collections.abc import Callable, Sequence

import torch

from harness.data import is_out_of_memory
from harness.model import build_model
from harness.plan import Plan
from harness.records.record import FINAL, Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.run import ProgressCallback, run
from zoo.contract import Unsupported
from zoo.registry import UserError, build


def check(plans: Sequence[Plan], store: Store) -> list[Plan]:
    """Reject bad input before the first cell runs, and return the cells that can run.

    A variant that does not support a task is skipped with a warning, which gives the remedy.

    Raises:
        UserError: a model cannot be built, a task has fewer examples than a batch, a file with
            the name of a cell's record is not a record, or no cell can run.
    """
    runnable = []
    reasons: dict[str, str | None] = {}
    for plan in plans:
        store.find(plan.spec)
        spec, examples = plan.spec, plan.data.sizes["train"]
        cell = spec.model_copy(update={"seed": 0}).id
        if cell not in reasons:
            reasons[cell] = _unsupported(plan)
        if reasons[cell]:
            continue
        if examples < spec.train.batch:
            sized = "train" in spec.task.options
            remedy = f"set {spec.task.name}.train higher" if sized else "add rows"
            raise UserError(
                f"{plan.task.key} has {examples} training examples, fewer than a batch of "
                f"{spec.train.batch}; {remedy}, or lower train.batch"
            )
        runnable.append(plan)
    skipped = dict.fromkeys(reason for reason in reasons.values() if reason)
    if skipped and not runnable:
        raise Unsupported(next(iter(skipped)))
    for reason in skipped:
        warnings.warn(f"skipped: {reason}", stacklevel=2)
    return runnable


def _unsupported(plan: Plan) -> str | None:
    """Why the variants of a cell do not support its task, in one line; None where they do."""

    def make() -> None:
        try:
            with torch.random.fork_rng(devices=[]):
                build_model(plan.spec, plan.task, plan.composition)
        except SystemExit as error:
            # A plug-in must not end the process with its own exit code.
            raise RuntimeError(f"it exits with {error.code!r}") from error
        except (MemoryError, RuntimeError) as error:
            # A model that is too large for the machine is a result: its cell records it.
            if not is_out_of_memory(error):
                raise

    try:
        build(f"attention {plan.spec.attention!r}", make)
    except Unsupported as error:
        task, reason = plan.spec.task, f"{plan.spec.attention} on {plan.task.key}: {error}"
        if task.options.get("causal") is not True:
            return reason
        return f"{reason}; or make the task bidirectional with --set {task.name}.causal=false"
    return None


def run_all(
    plans: Sequence[Plan],
    store: Store,
    callback: Callable[[RunSpec], ProgressCallback],
    *,
    rerun: bool,
) -> list[tuple[Record, bool]]:
    """Run every cell that has no final record in the store; with `rerun` all, from the beginning.

    Returns:
        The record of each cell, and whether it was run now.

    Raises:
        UserError: a record cannot be written, or the file of its name is not a record.
    """
    store.remove_partial_files()
    outcomes = []
    for plan in plans:
        existing = store.find(plan.spec)
        if existing is not None and existing.status in FINAL and not rerun:
            outcomes.append((existing, False))
            continue
        if rerun:
            store.checkpoint(plan.spec).unlink(missing_ok=True)
        outcomes.append((run(plan, store, callback(plan.spec)), True))
    return outcomes
