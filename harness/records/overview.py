"""The state of a store at any time: runs that are done, running, interrupted, failed, waiting."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from harness.records.index import Summary, summaries
from harness.records.locks import State
from harness.records.record import FINAL
from harness.records.store import Broken, Store


class Overview(NamedTuple):
    """The runs of a store, each in one of the groups.

    Attributes:
        done: the runs with a final status, by name.
        failed: the runs that failed, by name.
        running: the states of runs that a process makes now, by name.
        interrupted: what is known of the runs that can be continued, by name.
        waiting: names of runs of running commands that no process has begun.
        broken: files that are not records.
        seconds_left: until the running commands end, about; None where unknown.
    """

    done: dict[str, Summary]
    failed: dict[str, Summary]
    running: dict[str, State]
    interrupted: dict[str, State | None]
    waiting: list[str]
    broken: list[Broken]
    seconds_left: float | None


def overview(store: Store) -> Overview:
    """Look at a store; nothing in it changes but its index.

    Raises:
        UserError: it cannot be listed.
    """
    files = {file.removesuffix(".json"): one for file, one in summaries(store).items()}
    records = {name: one for name, one in files.items() if one.status}
    states, announced = store.locks.states(), store.locks.announced()
    running = {name: state for name, state in states.items() if store.locks.is_held(name)}
    still = {name: one for name, one in records.items() if name not in running}
    done = {name: one for name, one in still.items() if one.status in FINAL}
    failed = {name: one for name, one in still.items() if one.status == "failed"}
    saved = [path.stem for path in store.folder.glob("*.checkpoint")]
    begun = dict.fromkeys([*states, *saved, *still])
    ended = {*running, *done, *failed}
    interrupted = {name: states.get(name) for name in sorted(begun) if name not in ended}
    waiting = [name for name in announced if name not in begun and name not in ended]
    again = [name for name in announced if name in interrupted]
    seconds = [done[name].seconds for name in announced if name in done]
    finished = [one for one in seconds if one is not None]
    left = _seconds_left(finished, running.values(), len(waiting) + len(again))
    broken = [
        Broken(store.folder / f"{name}.json", one.reason)
        for name, one in files.items()
        if not one.status
    ]
    return Overview(done, failed, running, interrupted, waiting, broken, left)


def _seconds_left(
    finished: Sequence[float], running: Iterable[State], waiting: int
) -> float | None:
    """Seconds until all runs have ended, from the mean seconds of a run.

    Args:
        finished: seconds of the runs that have ended.
        running: the states of runs in progress.
        waiting: the number of runs that have not begun.
    """
    states, now = [*running], datetime.now(UTC)
    parts = [state.step / state.steps for state in states]
    seconds = list(finished) or [
        (now - datetime.fromisoformat(state.since)).total_seconds() / part
        for state, part in zip(states, parts, strict=True)
        if part > 0
    ]
    if not states or not seconds:
        return None
    left = waiting + len(states) - sum(parts)
    return sum(seconds) / len(seconds) * left / len(states)
