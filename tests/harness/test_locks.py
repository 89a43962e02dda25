"""Locks of runs, the state of a store while commands run and after, and its files."""

import errno
import json
import os
import platform
import subprocess
import sys

import filelock
import pytest

from harness.records.files import write_all
from harness.records.locks import Locks
from harness.records.store import Entry, overview
from harness.runner import failure
from tests.conftest import ROOT, one_line
from tests.harness.specs import POINT, STATE, Clock, raising
from tests.reports.conftest import make_record

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


def test_inside_unused_no_other_takes_the_lock(locks):
    acquire(locks).release(keep_state=False)
    with locks.unused("name") as unused:
        assert unused and acquire(locks) is None
    assert acquire(locks)


def test_a_lock_ends_with_its_process_however_that_ends(locks, tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    assert acquire(locks) is None and locks.is_held("name") and locks.running_here() == 1
    state = locks.state("name")
    assert (state.pid, state.threads, state.phase, state.step) == (process.pid, 2, "train", 0)
    assert state.is_of_this_host
    process.kill()
    process.communicate()
    assert not locks.is_held("name") and locks.running_here() == 0
    # What the dead process wrote is still there, and its successor replaces it.
    assert locks.states() == {"name": state}
    taken = acquire(locks)
    assert locks.state("name").pid == os.getpid()
    assert not taken.state.model_copy(update={"host": "another"}).is_of_this_host
    taken.release(keep_state=False)
    assert locks.states() == {}


def test_the_step_is_written_from_time_to_time_and_a_phase_at_once(locks, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("harness.records.locks.time.monotonic", clock)
    clock.now = 100.0
    lock, points = acquire(locks), [POINT.model_copy(update={"step": step}) for step in (1, 2, 3)]
    lock.report(point=points[0])
    assert (lock.state.step, locks.state("name").step) == (1, 0)
    clock.now += 3
    lock.report(point=points[1])
    assert locks.state("name") == lock.state and lock.state.point == points[1]
    lock.report(point=points[2])
    lock.report(phase="test")
    assert (locks.state("name").phase, locks.state("name").step) == ("test", 3)
    # A run does not depend on its state.
    monkeypatch.setattr(os, "fsync", raising(OSError("disk full")))
    lock.report(phase="costs")
    assert locks.state("name").phase == "test"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": 1}', None])
def test_a_damaged_state_or_a_pipe_is_ignored(locks, content):
    locks.folder.mkdir()
    path = locks.folder / "name.json"
    os.mkfifo(path) if content is None else path.write_text(content)
    assert locks.state("name") is None and locks.states() == {}


def test_a_file_system_without_locks_is_an_error_of_one_line(locks, monkeypatch):
    refuse = raising(OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with one_line("cannot be locked (No locks available); give a --store"):
        acquire(locks)


def test_only_leftovers_of_killed_processes_are_removed(tiny, store, run_here, interrupted):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    finished, unfinished = (tiny(seed=seed) for seed in range(2))
    run_here(finished)
    interrupted(unfinished)
    folder, host, dead = store.locks.folder, platform.node(), process.pid
    for spec in (finished, unfinished):  # states of killed processes
        store.locks.acquire(spec.file_name, threads=1, steps=4).release(keep_state=True)
    weights = store.folder / "weights" / "x"
    expected = {path for path in store.folder.rglob("*") if path.is_file()}
    expected |= {weights / f".a.{host}.{os.getpid()}.partial", store.folder / ".a.partial"}
    expected |= {store.folder / f".a.another-{host}.{dead}.partial"}
    removed = {
        store.checkpoint(finished),  # killed between the record and the end of the run
        folder / f"{finished.file_name}.json",
        *(below / f".a.json.{host}.{dead}.partial" for below in (
            store.folder, folder, store.folder / "studies", weights,
        )),
    }  # fmt: skip
    for path in expected | removed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    store.remove_leftovers()
    left = {path for path in store.folder.rglob("*") if path.is_file()}
    assert left == expected - removed


def test_a_checkpoint_that_a_process_uses_is_no_leftover(store):
    record = make_record()
    checkpoint, name = store.write(record) and store.checkpoint(record.spec), record.spec.file_name
    checkpoint.touch()  # of a repetition
    lock = store.locks.acquire(name, threads=1, steps=4)
    for is_used in (True, False):
        store.remove_leftovers()
        assert checkpoint.exists() == is_used == (store.locks.state(name) is not None)
        lock.release(keep_state=True)


def test_no_file_changes_unless_all_can_be_written_and_the_error_names_the_file(tmp_path):
    path, folder = tmp_path / "a.md", tmp_path / "b.md"
    path.write_bytes(b"old")
    folder.mkdir()
    with pytest.raises(OSError) as caught:
        write_all({path: b"new", folder: b"new", tmp_path / "c.md": b"new"})
    assert caught.value.filename == str(folder) and path.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [path, folder]


@pytest.fixture
def failed(tiny, store) -> list[str]:
    return [store.write(failure(tiny(seed=seed), store, f"boom {seed}")).stem for seed in (0, 1)]


def test_lines_and_files_have_the_same_state(store, failed, output):
    found = overview(store)
    assert found == ([Entry("failed", name, f"boom {n}") for n, name in enumerate(failed)], [])
    output("pack", "--out", str(store.folder))
    assert not [*store.folder.glob("*.json")] and overview(store) == found


def test_a_store_that_may_not_be_listed_is_rejected(store, failed, rejected, monkeypatch):
    monkeypatch.setattr("os.scandir", raising(PermissionError(13, "Permission denied", "runs")))
    for command in (["status"], ["report"], ["cost", "--rerun"]):
        assert "cannot be listed" in rejected(*command)


def test_the_command_says_the_same_and_changes_nothing(tiny, store, interrupted, call):
    done, running, failed = (tiny(seed=seed) for seed in (0, 1, 3))
    ended = interrupted(tiny(seed=2))
    store.write(make_record().model_copy(update={"spec": done}))
    store.write(failure(failed, store, "boom"))
    lock = store.locks.acquire(running.file_name, threads=1, steps=4)
    lock.report(phase="train")
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    code, out, err = call("status")
    assert {path: path.read_bytes() for path in before} == before
    first, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("1 of 4 runs done, 1 running, 1 failed; 1 interrupted")
    expected = [("running", running), ("interrupted", ended), ("failed", failed)]
    expected = [[status, spec.file_name] for status, spec in expected]
    assert [line.split()[:2] for line in lines] == expected
    assert f"process {os.getpid()} of" in lines[0] and lines[2].endswith("boom")
    assert lines[0].endswith("; train, step 0 of 4") and "step" not in lines[1]
    found = json.loads(call("status", "--json")[1])
    assert found["done"] == 1
    assert [[row["status"], row["name"]] for row in found["rows"]] == expected
    assert found["rows"][0]["state"]["pid"] == os.getpid() and found["rows"][2]["reason"] == "boom"


@pytest.mark.filterwarnings("always")
def test_no_text_of_a_store_reaches_the_terminal_as_a_command(store, tiny, call):
    store.write(failure(tiny(), store, "\x1b]0;title\x07 boom\n\x9b31m"))
    # A run that was killed is interrupted.
    state = STATE.model_copy(update={"host": "\x1b[2J"})
    store.locks.folder.mkdir(parents=True)
    (store.locks.folder / "name\x1b[1m.json").write_text(state.model_dump_json())
    assert Entry("interrupted", "name\x1b[1m", state=state) in overview(store)[0]
    (store.folder / "other\x1b[1m\udcff.json").write_text("{}")
    code, out, err = call("status")
    assert code == 0 and len(err.splitlines()) == 1 and len(out.splitlines()) == 3
    assert all(line.isprintable() for line in [*out.splitlines(), *err.splitlines()])
    assert r"\x1b]0;title\x07 boom\n\x9b31m" in out and r"other\x1b[1m\udcff.json" in err
