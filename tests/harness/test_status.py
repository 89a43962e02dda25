"""The state of a store, while commands run and after they have ended."""

import json
import os

import pytest

from harness.records.locks import State
from harness.records.overview import overview
from harness.runner import failure, run


@pytest.fixture
def mixed(plan, store, callback, unmeasured, interrupt_at):
    """A store with a cell of each kind: done, running, interrupted, failed and waiting."""
    done, running, interrupted, failed, waiting = (plan(seed=seed) for seed in range(5))
    run(done, store, callback)
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(interrupted, store, callback)
    store.write(failure(failed, store, "boom"))
    lock = store.locks.acquire(running.spec.file_name, threads=1, steps=4)
    lock.report(phase="train", step=2)
    names = [one.spec.file_name for one in (done, running, interrupted, failed, waiting)]
    with store.locks.announce(names):
        yield names
    lock.release(keep_state=False)


def test_the_command_says_the_same_and_changes_nothing(store, mixed, call):
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    code, out, err = call("status")
    assert {path: path.read_bytes() for path in before} == before
    first, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("1 of 5 runs done, 1 running, 1 failed, about")
    assert first.endswith("; 1 interrupted, 1 waiting")
    assert [line.split()[:2] for line in lines] == [
        ["running", mixed[1]], ["interrupted", mixed[2]], ["failed", mixed[3]],
        ["waiting", mixed[4]],
    ]  # fmt: skip
    assert "train, step 2/4; process" in lines[0] and lines[2].endswith("boom")
    found = json.loads(call("status", "--json")[1])
    assert found["done"] == 1
    # Half of the running cell, the interrupted one and the waiting one, at the seconds of a cell.
    assert found["seconds_left"] == pytest.approx(2.5 * overview(store).done[mixed[0]].seconds)
    assert [[row["status"], row["name"]] for row in found["rows"]] == [
        line.split()[:2] for line in lines
    ]
    assert [found["rows"][0]["state"][key] for key in ("step", "steps")] == [2, 4]
    assert found["rows"][2]["reason"] == "boom"


def test_a_run_that_was_killed_is_interrupted_and_its_command_waits_for_nothing(store):
    store.locks.folder.mkdir(parents=True)
    state = State(host="vm", pid=1, since="2030-01-01T00:00:00+00:00", threads=1, step=7, steps=9)
    (store.locks.folder / "cell.json").write_text(state.model_dump_json())
    (store.locks.folder / "command-vm-1-1.cells").write_text('["cell", "other"]')
    found = overview(store)
    assert (found.interrupted, found.waiting, found.running) == ({"cell": state}, [], {})


@pytest.mark.filterwarnings("always")
def test_no_text_of_a_store_reaches_the_terminal_as_a_command(store, plan, call):
    store.write(failure(plan(), store, "\x1b]0;title\x07 boom\n\x9b31m"))
    state = State(
        host="\x1b[2J", pid=1, since="2030-01-01T00:00:00+00:00", threads=1, step=7, steps=9
    )
    store.locks.folder.mkdir(parents=True)
    (store.locks.folder / "cell\x1b[1m.json").write_text(state.model_dump_json())
    (store.folder / "other\x1b[1m\udcff.json").write_text("{}")
    code, out, err = call("status")
    assert code == 0 and len(err.splitlines()) == 1 and len(out.splitlines()) == 3
    assert all(line.isprintable() for line in [*out.splitlines(), *err.splitlines()])
    assert r"\x1b]0;title\x07 boom\n\x9b31m" in out and r"other\x1b[1m\udcff.json" in err


@pytest.mark.filterwarnings("always")
def test_pipes_in_a_store_block_nothing(call, store):
    store.locks.folder.mkdir(parents=True)
    for name in (".index", ".locks/a.json", ".locks/command-a.cells", "a.json"):
        os.mkfifo(store.folder / name)
    code, out, err = call("status")
    assert (code, err.count("\n")) == (0, 1) and out.startswith("0 of 0 runs done")
