"""Commands that share a store, whose processes are killed at random moments and started again."""

import multiprocessing
import os
import random
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.records.store import Store
from tests.harness.conftest import SMALL

PRELOADED = (__name__, "harness.cli.runs", "harness.grid", "reports.leaderboard", "torch._dynamo")
"""Modules that a process would import again between two kills."""

SEEDS, KILLS = 2, 4

CELLS = ["run", "-a", "softmax,none", "--budget", "smoke", "--precision", "fp32", "--no-cost"]
CELLS += ["--set", "softmax.backend=sdpa"]  # without a trial, whose result may change
CELLS += ["--set", "train.steps=30", "--set", "train.evaluations=3", "--seeds", "0,1"]
CELLS += ["--threads", "1", *SMALL]


class Grid(NamedTuple):
    """What was left of a grid after some kills.

    Attributes:
        kills: processes that were running and were killed.
        cells: runs that finished.
        lost: finished runs whose record disappeared later.
        repeated: finished runs whose record was replaced later.
        unreadable: files that were not records, at any time.
        leftovers: files that are neither records, baselines nor locks, after another command.
    """

    kills: int
    cells: int
    lost: int
    repeated: int
    unreadable: int
    leftovers: int


def complete(store: Store, commands: int, kills: int, moments: random.Random) -> Grid:
    """Run commands at once until all runs are finished, killing some, and then one more."""
    running: list[multiprocessing.Process] = []
    finished: dict[Path, bytes] = {}
    killed = unreadable = 0
    try:
        while len(finished) < 2 * SEEDS:
            running = [command for command in running if command.is_alive()]
            running += [start(store) for _ in range(commands - len(running))]
            time.sleep(moments.uniform(0, 0.5))
            if killed < kills:
                victim = moments.choice(running)
                killed += victim.is_alive()
                victim.kill()
                victim.join()
            records, broken = store.read()
            unreadable += len(broken)
            for path in (store.path(one.spec) for one in records if one.status == "ok"):
                finished.setdefault(path, path.read_bytes())
        for command in running:
            command.join()
        running = [start(store)]
        running[0].join()
    finally:
        for command in running:
            command.kill()
            command.join()
    left = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    locks = {path for path in left if path.suffix == ".lock" and "command-" not in path.name}
    baselines = {path for path in left if path.match("baselines/[!.]*.json")}
    return Grid(
        killed, len(finished), sum(path not in left for path in finished),
        sum(path in left and left[path] != was for path, was in finished.items()),
        unreadable, len(left.keys() - finished.keys() - locks - baselines),
    )  # fmt: skip


def start(store: Store) -> multiprocessing.Process:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    process = context.Process(target=run, args=(store.folder,))
    process.start()
    return process


def run(folder: Path) -> None:
    from harness.cli import main

    with suppress(SystemExit), Path(os.devnull).open("w") as sys.stdout:
        main([*CELLS, "--store", str(folder)])


@pytest.mark.slow
@pytest.mark.parametrize("commands", [1, 4])
def test_every_cell_ends_once_however_often_processes_are_killed(tmp_path, data_home, commands):
    moments, kills, grids = random.Random(0), 0, count()
    while kills < KILLS:
        grid = complete(Store(tmp_path / f"{next(grids)}"), commands, KILLS - kills, moments)
        expected = Grid(grid.kills, cells=4, lost=0, repeated=0, unreadable=0, leftovers=0)
        assert grid == expected
        kills += grid.kills
