"""Grids in several processes: deaths, interrupts, equality to the bit with a run in one process."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from harness.cli import main
from harness.engines import Resources
from harness.engines.local import Workers, create, visible_gpus
from harness.environment import use_threads
from harness.records.store import Store
from harness.runner import NoProgress
from tests.harness.conftest import DEADLINE, SMALL

ROOT = Path(__file__).parents[2]
VARIANTS = ["softmax", "none"]
CELLS = ["run", "--budget", "smoke", "--precision", "fp32", "--no-cost"]
CELLS += ["--set", "softmax.backend=sdpa"]  # without a trial, whose result may change
CELLS += ["--set", "train.steps=120", "--set", "train.evaluations=10", *SMALL]

NEEDS = {"slurm": "submitit", "ray": "ray"}


@pytest.fixture
def start(data_home, store):
    """Starts the command on the store with two workers; ended, with its group, after the test."""
    started = []

    def run(engine: str, *variants: str) -> subprocess.Popen:
        options = ["--engine", engine, "--workers", "2", "--threads", "1"]
        options += ["-a", ",".join(variants)]
        command = [sys.executable, "-m", "harness.cli", *CELLS, *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_DATA": str(data_home)}
        inherited = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited]))
        started.append(
            subprocess.Popen(
                [*command, "--store", str(store.folder)], env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                # The process that runs the tests may ignore SIGINT, which its children inherit.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )
        )  # fmt: skip
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_checkpoint(store: Store) -> int:
    """The process of a run that has a checkpoint and is in its training; it is suspended there."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        for name, state in store.locks.states().items():
            saved = (store.folder / f"{name}.checkpoint").exists()
            if not saved or state.phase != "train" or not store.locks.is_held(name):
                continue
            process = psutil.Process(state.pid)
            process.suspend()
            if store.locks.is_held(name) and store.locks.state(name).phase == "train":
                return state.pid
            process.resume()  # the training had ended
        time.sleep(0.05)
    raise AssertionError("no run has written a checkpoint")


def kill(pid: int) -> None:
    """End a process, and wait until it holds no lock any more."""
    process = psutil.Process(pid)
    process.kill()
    with suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)


def outcomes(store: Store) -> dict:
    """Everything in the records of a store that does not depend on the clock."""
    records, broken = store.read()
    assert not broken and {record.status for record in records} == {"ok"}
    return {
        record.spec.attention: (
            [point.model_copy(update={"seconds": 0.0}) for point in record.curve],
            record.final.model_copy(update={"train_seconds": 0.0, "seconds": 0.0}),
            record.environment.threads,
        )
        for record in records
    }


def run_here(store: Store) -> None:
    """The same cells in this process."""
    with use_threads(1), pytest.raises(SystemExit) as end:
        main([*CELLS, "-a", ",".join(VARIANTS), "--store", str(store.folder)])
    assert end.value.code == 0


@pytest.fixture(scope="module")
def expected(trees_home, tmp_path_factory) -> dict:
    """The outcomes of the cells in this process, without a break."""
    store = Store(tmp_path_factory.mktemp("expected"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_DATA", str(trees_home))
        run_here(store)
    return outcomes(store)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_a_grid_goes_on_when_a_process_of_it_is_killed(start, store, expected, engine):
    if find_spec(NEEDS[engine]) is None:
        pytest.skip(f"--engine {engine} needs the extra {engine!r}")
    process = start(engine, "softmax")
    kill(wait_for_checkpoint(store))
    _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, "")
    assert outcomes(store) == {"softmax": expected["softmax"]}


@pytest.mark.slow
def test_workers_survive_each_other_and_end_with_their_parent(start, store, expected):
    process = start("local", *VARIANTS)
    kill(wait_for_checkpoint(store))
    pid = wait_for_checkpoint(store)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert pid in [worker.pid for worker in workers]
    # A terminal sends Ctrl-C to all processes.
    os.killpg(process.pid, signal.SIGINT)
    psutil.Process(pid).resume()
    _, err = process.communicate(timeout=DEADLINE)
    assert err == "harness: interrupted; the same command continues\n"
    assert not psutil.wait_procs(workers, timeout=DEADLINE)[1]
    assert "interrupted" in {record.status for record in store.read()[0]}
    run_here(store)
    assert outcomes(store) == expected


@pytest.mark.parametrize(("workers", "threads", "share"), [(2, 0, 4), (99, 0, 1), (2, 3, 3)])
def test_workers_share_the_threads_of_the_machine(workers, threads, share, monkeypatch, tmp_path):
    monkeypatch.setattr("harness.engines.local.torch.get_num_threads", lambda: 9)
    pool = create(Resources(workers=workers, threads=threads), tmp_path, lambda spec: NoProgress())
    assert isinstance(pool, Workers) and pool.threads == share


def test_workers_share_the_gpus_in_turn(monkeypatch):
    assert Workers(5, 1, ["0", "3"]).free_gpus == ["0", "3", "0", "3", "0"]
    assert Workers(2, 1).free_gpus == ["", ""]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert visible_gpus() == ["4", "7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_gpus() == ["0", "1"]
