"""Commands that share a store, whose processes are killed at random moments and started again."""

import multiprocessing
import os
import random
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from harness.records.store import Store
from tests.harness.conftest import SMALL

PRELOADED = (__name__, "harness.runs", "harness.grid", "reports.leaderboard", "torch._dynamo")
"""Modules that a process would import again between two kills."""

COMMANDS, SEEDS, KILLS = 3, 2, 4

CELLS = ["run", "-a", "softmax,none", "--budget", "smoke", "--precision", "fp32", "--no-cost"]
CELLS += ["--set", "softmax.backend=sdpa"]  # without a trial, whose result may change
CELLS += ["--set", "train.steps=30", "--set", "train.evaluations=3", "--seeds", "0,1"]
CELLS += ["--threads", "1", *SMALL]


def complete(store: Store, kills: int, moments: random.Random) -> int:
    """Run commands at once until all runs are finished, killing some, and then one more.

    Returns the number of processes that were killed while they ran.
    """
    running: list[multiprocessing.Process] = []
    finished: dict[Path, bytes] = {}
    killed = 0
    try:
        while len(finished) < 2 * SEEDS:
            running = [command for command in running if command.is_alive()]
            running += [start(store) for _ in range(COMMANDS - len(running))]
            time.sleep(moments.uniform(0, 0.5))
            if killed < kills:
                victim = moments.choice(running)
                killed += victim.is_alive()
                victim.kill()
                victim.join()
            records, broken = store.read()
            assert not broken
            for path in (store.path(record.spec) for record in records if record.status == "ok"):
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
    locks = {path for path in left if path.suffix == ".lock"}
    baselines = {path for path in left if path.match("baselines/[!.]*.json")}
    # No record was lost, or replaced by a repetition's; and nothing else is left.
    assert {path: left.get(path) for path in finished} == finished and len(finished) == 2 * SEEDS
    assert left.keys() == finished.keys() | locks | baselines
    return killed


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
def test_every_cell_ends_once_however_often_processes_are_killed(tmp_path, data_home):
    moments, kills, grids = random.Random(0), 0, count()
    while kills < KILLS:
        kills += complete(Store(tmp_path / f"{next(grids)}"), KILLS - kills, moments)
