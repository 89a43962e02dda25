"""Many cells: skip what is done, run the rest one after the other."""

from collections.abc import Callable, Iterable

import torch

from harness.encoder import build
from harness.run import Watcher, find_task, run
from harness.spec import RunSpec
from harness.store import Record, Store


def check(specs: Iterable[RunSpec]) -> None:
    """Refuse before the first cell what would be refused at a later one.

    Raises:
        Refused: a model cannot be built, or a task's data are missing or damaged.
    """
    loaded: set[str] = set()
    for spec in specs:
        task = find_task(spec)
        with torch.random.fork_rng(devices=[]):
            build(spec, task)
        if task.key not in loaded:
            task.load("train")
            loaded.add(task.key)


def run_all(
    specs: Iterable[RunSpec], store: Store, watch: Callable[[RunSpec], Watcher], *, again: bool
) -> list[tuple[Record, bool]]:
    """Run every cell that has no finished record in the store.

    Args:
        specs: the cells.
        store: where records are found and put.
        watch: gives somebody to tell how a cell is going.
        again: run finished cells anew, too.

    Returns:
        The record of each cell, and whether it was run now.

    Raises:
        Refused: the input of a cell was bad, or a broken record stands in its place.
    """
    outcome = []
    for spec in specs:
        known = store.find(spec)
        if known is not None and known.status == "ok" and not again:
            outcome.append((known, False))
        else:
            outcome.append((run(spec, store, watch(spec)), True))
    return outcome
