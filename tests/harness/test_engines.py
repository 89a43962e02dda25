"""Engines and commands whose processes are killed or interrupted, and runs equal to others."""

import concurrent.futures
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from importlib.util import find_spec

import psutil
import pytest

from harness.cli import main
from harness.engines import Resources, names, start
from harness.engines.local import Processes, visible_gpus
from harness.environment import use_threads
from harness.records.store import Store
from tests.conftest import ROOT
from tests.harness.calls import start_a_process
from tests.harness.conftest import DEADLINE, SMALL

CELLS = ["run", "--budget", "smoke", "--precision", "fp32", "--no-cost"]
CELLS += ["--set", "softmax.backend=sdpa"]  # without a trial, whose result may change
CELLS += ["--set", "train.steps=120", "--set", "train.evaluations=10", *SMALL]

NEEDS = {"slurm": "submitit", "ray": "ray"}


@pytest.fixture
def grid(store, interruptible, monkeypatch, capfd):
    # `disturb` does something to the processes. Returns the exit code, and what all wrote.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)

    def run(engine: str, variants: list[str], disturb: Callable[[psutil.Process], None], *more):
        options = ["--engine", engine, "--workers", "2", "--threads", "1", "-a", ",".join(variants)]
        ended = threading.Event()
        with ThreadPoolExecutor(1) as threads, pytest.raises(SystemExit) as end:
            disturbed = threads.submit(lambda: disturb(wait_for_checkpoint(store, ended)))
            try:
                main([*CELLS, *options, *more, "--store", str(store.folder)])
            finally:
                ended.set()
        disturbed.result()
        return (end.value.code, *capfd.readouterr())

    return run


def wait_for_checkpoint(store: Store, ended: threading.Event) -> psutil.Process:
    # It is suspended in its training.
    while not ended.wait(0.05):
        for name, state in store.locks.states().items():
            saved = (store.folder / f"{name}.checkpoint").exists()
            if not saved or state.phase != "train" or not store.locks.is_held(name):
                continue
            with suppress(psutil.NoSuchProcess):  # it has ended
                process = stop(psutil.Process(state.pid))
                if store.locks.is_held(name) and store.locks.state(name).phase == "train":
                    return process
                process.resume()  # the training had ended
    raise AssertionError("no run has written a checkpoint")


def wait_until(process: psutil.Process, *statuses: str) -> psutil.Process:
    with suppress(psutil.NoSuchProcess):
        while process.status() not in (psutil.STATUS_ZOMBIE, *statuses):
            time.sleep(0.01)
    return process


def stop(process: psutil.Process) -> psutil.Process:
    # Until it has stopped it would act on a signal.
    process.suspend()
    return wait_until(process, psutil.STATUS_STOPPED)


def kill(process: psutil.Process) -> None:
    # Until it has ended it holds its lock.
    process.kill()
    wait_until(process)


@pytest.mark.slow
@pytest.mark.parametrize("engine", names())
def test_a_grid_goes_on_when_a_process_of_it_is_killed(grid, store, engine):
    if find_spec(NEEDS.get(engine, "torch")) is None:
        pytest.skip(f"--engine {engine} needs the extra {engine!r}")
    code, out, err = grid(engine, ["softmax"], kill, "--json")
    # No process writes anything else to stdout.
    assert code == 0 and [run["status"] for run in json.loads(out)["runs"]] == ["ok"], err
    (record,), broken = store.read()
    assert (record.status, record.environment.threads, broken) == ("ok", 1, [])


@pytest.mark.slow
def test_an_interrupt_ends_all_workers_and_the_same_command_continues(grid, store):
    others, workers = {*multiprocessing.active_children()}, []

    def interrupt(process):
        workers.extend({*multiprocessing.active_children()} - others)
        # A terminal sends Ctrl-C to all processes.
        for worker in workers:
            os.kill(worker.pid, signal.SIGINT)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        process.resume()
        assert process.pid in [worker.pid for worker in workers]

    code, _, err = grid("local", ["softmax", "none"], interrupt)
    assert (code, err) == (130, "harness: interrupted; the same command continues\n")
    assert len(workers) == 2 and not any(worker.is_alive() for worker in workers)
    assert "interrupted" in {record.status for record in store.read()[0]}
    with use_threads(1), pytest.raises(SystemExit) as end:
        main([*CELLS, "-a", "softmax,none", "--store", str(store.folder)])
    assert end.value.code == 0 and {record.status for record in store.read()[0]} == {"ok"}


@pytest.mark.parametrize(("resources", "runs", "threads"), [
    ({"workers": 0}, 1, 9), ({"workers": 2}, 2, 4), ({"workers": 99}, 99, 1),
    ({"workers": 2, "threads": 3}, 2, 3), ({"workers": 2, "engine": "slurm"}, 2, 1),
])  # fmt: skip
def test_runs_at_once_share_the_threads_of_the_machine(resources, runs, threads, monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 9)
    found = Resources(**resources)
    assert (found.runs_at_once, found.threads_of_run) == (runs, threads)


def test_each_call_has_a_process_of_its_own_and_one_gpu_in_turn(monkeypatch):
    with Processes(["0", "3"]) as processes:
        # Functions of Python: a process imports no module of tests.
        pids = [call.result() for call in [processes.submit(os.getpid) for _ in range(3)]]
        assert len({*pids, os.getpid()}) == 4
        monkeypatch.setenv("OF_A_TEST", "b")  # the processes have the environment of now
        names = ("CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "OF_A_TEST")
        calls = [processes.submit(os.getenv, name) for name in names]
        assert [call.result() for call in calls] == ["0", "3", "b"]
        monkeypatch.syspath_prepend(str(ROOT))  # for the module of the function
        assert processes.submit(start_a_process).result() == 0
        with pytest.raises(BrokenExecutor, match="it was ended by SIGABRT"):
            processes.submit(os.abort).result()
        assert processes.submit(os.getpid).result() != os.getpid()


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_end_of_an_engine_ends_its_calls(interrupted, monkeypatch):
    executor, second = Processes(), [KeyboardInterrupt()] * interrupted
    calls = [executor.submit(time.sleep, 2 * DEADLINE) for _ in range(2)]
    workers = [*executor.running.values()]

    def wait(futures):
        if second:
            raise second.pop()
        return concurrent.futures.wait(futures)

    monkeypatch.setattr("harness.engines.local.wait", wait)
    if interrupted:
        for worker in workers:  # SIGTERM has no effect on a process that has stopped
            stop(psutil.Process(worker.pid))
    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
        executor.shutdown()
    assert not any(worker.is_alive() for worker in workers)
    name = "SIGKILL" if interrupted else "SIGTERM"
    assert [str(call.exception(0)) for call in calls] == [f"it was ended by {name}"] * 2


def test_the_gpus_are_those_of_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert visible_gpus() == ["4", "7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    executor = start(Resources(workers=2, device="cuda"), tmp_path)
    assert isinstance(executor, Processes) and [*executor.calls] == ["0", "1"]
    assert start(Resources(workers=1), tmp_path) is None
    assert isinstance(start(Resources(workers=1, isolated=True), tmp_path), Processes)
