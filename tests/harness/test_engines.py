"""Grids in several processes: deaths, interrupts, equality to the bit with a run in one process."""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
def grid(store, interruptible, monkeypatch, capfd):
    """Runs variants in two processes while `disturb` does something to them.

    Returns the exit code, and what all processes wrote to stdout and stderr.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)

    def run(engine: str, variants: list[str], disturb: Callable[[], None], *more: str):
        options = ["--engine", engine, "--workers", "2", "--threads", "1", "-a", ",".join(variants)]
        with ThreadPoolExecutor(1) as threads, pytest.raises(SystemExit) as end:
            disturbed = threads.submit(disturb)
            main([*CELLS, *options, *more, "--store", str(store.folder)])
        disturbed.result()
        return (end.value.code, *capfd.readouterr())

    return run


def wait_for_checkpoint(store: Store) -> psutil.Process:
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
                return process
            process.resume()  # the training had ended
        time.sleep(0.05)
    raise AssertionError("no run has written a checkpoint")


def kill(process: psutil.Process) -> None:
    """End a process, and wait until it holds no lock any more."""
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
    """The same runs in this process."""
    with use_threads(1), pytest.raises(SystemExit) as end:
        main([*CELLS, "-a", ",".join(VARIANTS), "--store", str(store.folder)])
    assert end.value.code == 0


@pytest.fixture(scope="module")
def expected(shared_data, tmp_path_factory) -> dict:
    """The outcomes of the runs in this process, without a break."""
    store = Store(tmp_path_factory.mktemp("expected"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_DATA", str(shared_data))
        run_here(store)
    return outcomes(store)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "slurm", "ray"])
def test_a_grid_goes_on_when_a_process_of_it_is_killed(grid, store, expected, engine):
    if find_spec(NEEDS.get(engine, "torch")) is None:
        pytest.skip(f"--engine {engine} needs the extra {engine!r}")
    code, out, err = grid(engine, ["softmax"], lambda: kill(wait_for_checkpoint(store)), "--json")
    # No process writes anything else to stdout.
    assert code == 0 and [run["status"] for run in json.loads(out)["runs"]] == ["ok"], err
    assert outcomes(store) == {"softmax": expected["softmax"]}


@pytest.mark.slow
def test_an_interrupt_ends_all_workers_and_the_same_command_continues(grid, store, expected):
    others, workers = {*multiprocessing.active_children()}, []

    def interrupt():
        process = wait_for_checkpoint(store)
        workers.extend({*multiprocessing.active_children()} - others)
        # A terminal sends Ctrl-C to all processes.
        for worker in workers:
            os.kill(worker.pid, signal.SIGINT)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        process.resume()
        assert process.pid in [worker.pid for worker in workers]

    code, _, err = grid("local", VARIANTS, interrupt)
    assert (code, err) == (130, "harness: interrupted; the same command continues\n")
    assert len(workers) == 2 and not any(worker.is_alive() for worker in workers)
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


PLUG_IN = """
import os
from zoo.contract import Traits
from zoo.projected import ProjectedAttention

class Foreign(ProjectedAttention):
    "Fails, and says in which process."

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)

    def attend(self, q, k, v, mask):
        raise RuntimeError(f"process {os.getpid()}")
"""


@pytest.mark.slow
def test_every_run_of_a_plug_in_has_a_process_of_its_own(call, store, install):
    folder = install({"zoo.variants": {"foreign": "foreign_attention:Foreign"}})
    (folder / "foreign_attention.py").write_text(PLUG_IN)
    argv = ["run", "-a", "foreign", "-t", "majority", "--budget", "smoke", "--seeds", "0,1"]
    assert call(*argv)[0] == 1
    reasons = [record.reason for record in store.read()[0]]
    assert len(set(reasons)) == 2 and f"RuntimeError: process {os.getpid()}" not in reasons
    assert all(reason.startswith("RuntimeError: process ") for reason in reasons)
