"""Commands on one store, whose processes are killed at random moments and started again.

`python -m tests.harness.kills workers 100 1` kills 100 processes and prints what was left. Instead
of `workers` also `process`, `shared` or `ray`. The last number is a factor of the times between
kills, to be raised on a busy machine.
"""

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.records.fields import Quartiles
from harness.records.record import Cost, Usage
from harness.records.store import Store

PRELOADED = (__name__, "harness.cli.runs", "harness.grid", "reports.leaderboard", "torch._dynamo")
"""Modules that a process would import again between two kills."""

CELLS = ["run", "-a", "softmax,none", "--budget", "smoke", "--precision", "fp32"]
CELLS += ["--set", "softmax.backend=sdpa"]  # without a trial, whose result may change
CELLS += ["--threads", "1"]
for option in ("min_len=2", "max_len=24", "train=64", "dev=16", "test=18"):
    CELLS += ["--set", f"listops.{option}"]


KILLS_PER_GRID = 25


class Mode(NamedTuple):
    """Which processes run a grid.

    Attributes:
        commands: commands at once.
        options: of each command.
        seconds: between two kills, at most.
        worker: what the command line of a process contains that a command has started for runs.
    """

    commands: int
    options: tuple[str, ...] = ()
    seconds: float = 0.5
    worker: str = ""


MODES = {
    "process": Mode(1),
    "shared": Mode(4),
    "workers": Mode(1, ("--workers", "2"), 8.0, "multiprocessing.spawn"),
    "ray": Mode(1, ("--engine", "ray", "--workers", "2"), 30.0, "ray::execute"),
}


class Outcome(NamedTuple):
    """What was left after some kills.

    Attributes:
        kills: processes that were running and were killed.
        grids: grids that were completed.
        cells: runs that finished.
        lost: finished runs whose record disappeared later.
        repeated: finished runs whose record was replaced later.
        unreadable: files that were not records, at any time.
        leftovers: files that are neither records, baselines nor locks, after another command.
    """

    kills: int
    grids: int
    cells: int
    lost: int
    repeated: int
    unreadable: int
    leftovers: int


class Size(NamedTuple):
    """A grid: seeds of each of two variants, and steps of a run."""

    seeds: int
    steps: int


def kill_at_random(folder: Path, mode: Mode, kills: int, seed: int, size: Size) -> Outcome:
    """Complete grids in new stores, until there were enough kills.

    The moments and the processes are those of `random.Random(seed)`.
    """
    moments, total = random.Random(seed), Outcome(0, 0, 0, 0, 0, 0, 0)
    while total.kills < kills:
        store = Store(folder / f"{total.grids}")
        one = _complete_grid(store, mode, kills - total.kills, moments, size)
        total = Outcome(*map(sum, zip(total, one, strict=True)))
    return total


def _complete_grid(
    store: Store, mode: Mode, kills: int, moments: random.Random, size: Size
) -> Outcome:
    """Run commands until all runs are finished, and then one more."""
    commands: list[multiprocessing.Process] = []
    finished: dict[Path, bytes] = {}
    killed = unreadable = 0
    try:
        while len(finished) < 2 * size.seeds:
            commands = [command for command in commands if command.is_alive()]
            commands += [_start(store, mode, size) for _ in range(mode.commands - len(commands))]
            time.sleep(moments.uniform(0, mode.seconds))
            if killed < kills:
                killed += _kill(moments.choice(commands), mode, moments)
            records, broken = store.read()
            unreadable += len(broken)
            for path in (store.path(one.spec) for one in records if one.status == "ok"):
                finished.setdefault(path, path.read_bytes())
        for command in commands:
            command.join()
        last = _start(store, mode, size)
        last.join()
    finally:
        for command in commands:
            command.kill()
            command.join()
    left = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    locks = {path for path in left if path.suffix == ".lock" and "command-" not in path.name}
    baselines = {path for path in left if path.match("baselines/[!.]*.json")}
    return Outcome(
        killed, 1, len(finished), sum(path not in left for path in finished),
        sum(path in left and left[path] != was for path, was in finished.items()),
        unreadable, len(left.keys() - finished.keys() - locks - baselines),
    )  # fmt: skip


def _kill(command: multiprocessing.Process, mode: Mode, moments: random.Random) -> bool:
    """Kill a command, or a process that it has started for runs; return whether it still ran."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(command.pid)
        victims = [process]
        for child in process.children(recursive=True) if mode.worker else ():
            with suppress(psutil.NoSuchProcess):
                victims += [child] * (mode.worker in " ".join(child.cmdline()))
        victim = moments.choice(victims)
        running = victim.status() != psutil.STATUS_ZOMBIE
        victim.send_signal(signal.SIGKILL)
        if victim is process:
            command.join()
        return running
    return False


def _start(store: Store, mode: Mode, size: Size) -> multiprocessing.Process:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    steps = ["--set", f"train.steps={size.steps}", "--set", f"train.evaluations={size.steps // 10}"]
    seeds = ["--seeds", ",".join(map(str, range(size.seeds)))]
    argv = [*CELLS, *steps, *seeds, *mode.options, "--store", str(store.folder)]
    # Not a daemon, which could not start workers.
    process = context.Process(target=_run, args=(argv,))
    process.start()
    return process


def _run(argv: list[str]) -> None:
    from harness.cli import main

    _measure_nothing()
    with suppress(SystemExit), Path(os.devnull).open("w") as sys.stdout:
        main(argv)


def _measure_nothing() -> None:
    """Give every run the same cost: measuring would take most of the time."""
    import harness.runner

    some = Quartiles(q1=1.0, median=1.0, q3=1.0)
    usage = Usage(
        seconds_per_1k_steps=some, tokens_per_second=some, peak_bytes=1, parameters=1, flops=1
    )
    cost = Cost(own=usage, softmax=None, time_ratio=None, inference_ratio=None)
    harness.runner.measure = lambda plan: cost


if __name__ == "__mp_main__":  # in the workers of a command
    _measure_nothing()

if __name__ == "__main__":
    name, kills, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    mode = MODES[name]._replace(seconds=pace * MODES[name].seconds)
    total = Outcome(0, 0, 0, 0, 0, 0, 0)
    while total.kills < kills:
        count = min(KILLS_PER_GRID, kills - total.kills)
        with tempfile.TemporaryDirectory() as folder:
            one = kill_at_random(Path(folder), mode, count, total.grids, Size(4, 60))
        total = Outcome(*map(sum, zip(total, one, strict=True)))
        sys.stdout.write(f"{name}: {total}\n")
        sys.stdout.flush()
