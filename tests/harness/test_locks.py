"""Locks of runs: held by one process, released with it; files that are written atomically."""

import errno
import os
import platform
import subprocess
import sys

import filelock
import pytest

from harness.records.files import write_all
from harness.records.locks import Locks
from tests.conftest import ROOT
from tests.harness.specs import POINT, raising
from zoo.registry import UserError

HOLD = """
import sys
from pathlib import Path
from harness.records.locks import Locks
lock = Locks(Path(sys.argv[1])).acquire("name", threads=2, steps=9)
lock.report(phase="train")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path) -> Locks:
    return Locks(tmp_path)


def acquire(locks):
    return locks.acquire("name", threads=1, steps=10)


def test_a_lock_ends_with_its_process_however_that_ends(locks, tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    assert acquire(locks) is None and locks.is_held("name")
    state = locks.state("name")
    assert (state.pid, state.threads, state.phase, state.step) == (process.pid, 2, "train", 0)
    assert state.is_of_this_host and not state.is_of_this_process
    assert locks.running_here() == 1
    process.kill()
    process.communicate()
    assert not locks.is_held("name") and locks.running_here() == 0
    # What the dead process wrote is still there, and its successor replaces it.
    assert locks.states() == {"name": state}
    taken = acquire(locks)
    assert locks.state("name").is_of_this_process
    other = taken.state.model_copy(update={"host": "another"})
    assert not other.is_of_this_host and not other.is_of_this_process
    assert acquire(locks) is None
    taken.release(keep_state=False)
    assert locks.states() == {}


def test_the_step_is_written_from_time_to_time_and_a_phase_at_once(locks, monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr("harness.records.locks.time.monotonic", lambda: seconds[0])
    lock, points = acquire(locks), [POINT.model_copy(update={"step": step}) for step in (1, 2, 3)]
    lock.report(point=points[0])
    assert (lock.state.step, locks.state("name").step) == (1, 0)
    seconds[0] += 3
    lock.report(point=points[1])
    assert locks.state("name") == lock.state and lock.state.point == points[1]
    lock.report(point=points[2])
    lock.report(phase="test")
    assert (locks.state("name").phase, locks.state("name").step) == ("test", 3)


def test_a_run_does_not_depend_on_its_state(locks, monkeypatch):
    lock = acquire(locks)
    monkeypatch.setattr(os, "fsync", raising(OSError("disk full")))
    lock.report(phase="train")
    assert locks.state("name").phase == "start"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": 1}'])
def test_a_damaged_state_is_ignored(locks, content):
    locks.folder.mkdir()
    (locks.folder / "name.json").write_text(content)
    assert locks.state("name") is None and locks.states() == {}


def test_a_file_system_without_locks_is_an_error_of_one_line(locks, monkeypatch):
    refuse = raising(OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(UserError, match=r"cannot be locked \(No locks available\); give a --store"):
        acquire(locks)


@pytest.fixture
def ended() -> int:
    """A process that no longer runs."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(
    plan, store, run_here, interrupted, ended
):
    finished, unfinished, running = (plan(seed=seed) for seed in range(3))
    run_here(finished)
    interrupted(unfinished)
    folder, host = store.locks.folder, platform.node()
    for plan_ in (finished, unfinished, running):  # states of killed processes
        lock = store.locks.acquire(plan_.file_name, threads=1, steps=4)
        lock.release(keep_state=True)
    store.path(running).with_suffix(".checkpoint").touch()
    expected = {path for path in store.folder.rglob("*") if path.is_file()}
    expected |= {store.folder / "weights" / "x" / f".a.{host}.{os.getpid()}.partial"}
    expected |= {store.folder / f".a.another-{host}.{ended}.partial", store.folder / ".a.partial"}
    removed = {
        store.checkpoint(finished),  # killed between the record and the end of the run
        folder / f"{finished.file_name}.json",
        *(below / f".a.json.{host}.{ended}.partial" for below in (
            store.folder, folder, store.folder / "studies", store.folder / "weights" / "x",
        )),
    }  # fmt: skip
    for path in expected | removed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    store.remove_leftovers()
    left = {path for path in store.folder.rglob("*") if path.is_file()}
    assert left == expected - removed


def test_a_checkpoint_that_a_process_uses_is_no_leftover(plan, store, run_here):
    record = run_here(plan())
    checkpoint, name = store.checkpoint(record.spec), record.spec.file_name
    checkpoint.touch()  # of a repetition
    lock = store.locks.acquire(name, threads=1, steps=4)
    store.remove_leftovers()
    assert checkpoint.exists() and store.locks.state(name) is not None
    lock.release(keep_state=True)
    store.remove_leftovers()
    assert not checkpoint.exists() and store.locks.state(name) is None


def test_writing_replaces_the_files_and_leaves_no_other(tmp_path):
    changed, other = (tmp_path / "pages" / name for name in ("a.md", "b.md"))
    write_all({changed: b"old", other: b"same"})
    paths = write_all({changed: b"new", other: b"same"})
    assert sorted((tmp_path / "pages").iterdir()) == paths == [changed, other]
    assert [path.read_bytes() for path in paths] == [b"new", b"same"]


def test_no_file_changes_unless_all_can_be_written_and_the_error_names_the_file(tmp_path):
    path, folder = tmp_path / "a.md", tmp_path / "b.md"
    path.write_bytes(b"old")
    folder.mkdir()
    with pytest.raises(OSError) as caught:
        write_all({path: b"new", folder: b"new", tmp_path / "c.md": b"new"})
    assert caught.value.filename == str(folder)
    assert path.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [path, folder]
