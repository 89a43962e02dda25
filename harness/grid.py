"""Many cells: skip what is done, run the rest one after the other."""

from collections.abc import Callable, Iterable

import torch

from harness.data import find_task, is_out_of_memory, load
from harness.model import build
from harness.records.record import FINAL, Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.run import ProgressCallback, run
from tasks import Task
from tasks.contract import SPLITS
from tasks.data.sources import GeneratedTask
from zoo.contract import Unsupported
from zoo.registry import UserError, built


def check(specs: Iterable[RunSpec], store: Store, tell: Callable[[str], None]) -> None:
    """Refuse before the first cell what would be refused at a later one.

    Args:
        specs: the cells.
        store: where their records are to be put.
        tell: told, a line each, of data that are to be generated first, which can take minutes.

    Raises:
        UserError: a model cannot be built, a task's data are missing, damaged, too many for the
            memory or fewer than a batch, or a broken record stands in the place of a cell.
    """
    examples: dict[str, int] = {}
    for spec in specs:
        store.find(spec)
        task = find_task(spec)
        _require_buildable(spec, task)
        if task.key not in examples:
            if isinstance(task, GeneratedTask) and not task.is_there():
                tell(f"{task.key}: generate data")
            sizes = {split: len(load(spec, task, split)) for split in SPLITS}
            examples[task.key] = sizes["train"]
        if examples[task.key] < spec.train.batch:
            raise UserError(
                f"{task.key} has {examples[task.key]} training examples, fewer than a batch of "
                f"{spec.train.batch}; set {spec.task.name}.train higher"
            )


def _require_buildable(spec: RunSpec, task: Task) -> None:
    def make() -> None:
        try:
            with torch.random.fork_rng(devices=[]):
                build(spec, task)
        except Unsupported as error:
            raise Unsupported(f"{task.key}: {error}") from error
        except (MemoryError, RuntimeError) as error:
            # A model too large for the machine is a result, which its own cell records.
            if not is_out_of_memory(error):
                raise

    built(f"attention {spec.attention!r}", make)


def run_all(
    specs: Iterable[RunSpec],
    store: Store,
    watch: Callable[[RunSpec], ProgressCallback],
    *,
    rerun: bool,
) -> list[tuple[Record, bool]]:
    """Run every cell that has no final record in the store.

    Args:
        specs: the cells.
        store: where records are found and put.
        watch: gives somebody to tell how a cell is going.
        again: run the others anew, too.

    Returns:
        The record of each cell, and whether it was run now.

    Raises:
        UserError: the input of a cell was bad, or a broken record stands in its place.
    """
    outcome = []
    for spec in specs:
        known = store.find(spec)
        if known is not None and known.status in FINAL and not rerun:
            outcome.append((known, False))
        else:
            outcome.append((run(spec, store, watch(spec)), True))
    return outcome
