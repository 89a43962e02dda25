"""The state of a store: runs that are done, running, interrupted, failed or outdated."""

from itertools import chain
from typing import NamedTuple

from harness.records.locks import State
from harness.records.record import origin_of
from harness.records.store import BaselineStore, Broken, CostStore, Store
from harness.records.versions import outdated

SAVED = "with a checkpoint or a record"  # The reason of an interrupted run without a state


class Entry(NamedTuple):
    """A run that is `done`, `outdated` by other code or data, `running`, `interrupted` or `failed`.

    `reason` says why it failed, or what it saved; `state` is of the process that began it.
    """

    status: str
    name: str
    reason: str = ""
    state: State | None = None


def overview(store: Store) -> tuple[list[Entry], list[Broken]]:
    runs, broken = store.read(curves=False)
    found = {run.spec.file_name: run for run in runs}
    states = store.locks.states()
    running = {name: state for name, state in states.items() if store.locks.is_held(name)}
    ended = {name: run for name, run in found.items() if name not in running}
    final = {name: run for name, run in ended.items() if run.is_final}
    is_old = dict(zip(final, outdated([*map(origin_of, final.values())]), strict=True))
    failed = {name: run.reason for name, run in ended.items() if run.status == "failed"}
    saved = (path.stem for path in store.folder.glob("*.checkpoint"))
    begun = sorted({*states, *saved, *ended} - {*running, *final, *failed})
    entries = [Entry("running", name, state=state) for name, state in running.items()]
    entries += (Entry("interrupted", name, "" if name in states else SAVED, states.get(name))
                for name in begun)  # fmt: skip
    entries += (Entry("failed", name, reason) for name, reason in failed.items())
    entries += (Entry("outdated" if is_old[name] else "done", name) for name in final)
    others = (kind.within(store.folder).read()[1] for kind in (CostStore, BaselineStore))
    return entries, [*broken, *chain.from_iterable(others)]


def summary(
    done: int, total: int, running: int, failed: int, others: int = 0, left: float = 0.0
) -> str:
    # `done` runs have a final record, `others` are in processes of other commands; `left` are the
    # seconds until the end, about, 0 where unknown.
    counts = [f"{done} of {total} runs done", f"{running} running", f"{failed} failed"]
    counts += [f"{others} running elsewhere"] if others else []
    if left:
        minutes = f"{left / 60:.0f} min" if left < 6000 else f"{left / 3600:.1f} h"
        counts.append(f"about {f'{left:.0f} s' if left < 100 else minutes} left")
    return ", ".join(counts)
