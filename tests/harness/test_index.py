"""The state of a store, while commands run and after."""

import json
import os

import pytest

from harness.records.overview import Entry, overview
from harness.runner import failure, run
from tests.harness.specs import STATE, raising
from zoo.registry import UserError


@pytest.fixture
def failed(plan, store) -> list[str]:
    """The names of two failed runs."""
    return [store.write(failure(plan(seed=seed), store, f"boom {seed}")).stem for seed in (0, 1)]


def test_lines_and_files_have_the_same_state(store, failed, call):
    found = overview(store)
    assert found == ([Entry("failed", name, f"boom {n}") for n, name in enumerate(failed)], [])
    assert call("pack", "--out", str(store.folder))[0] == 0
    assert not [*store.folder.glob("*.json")] and overview(store) == found


def test_links_files_that_are_no_record_and_edited_ones_are_told_apart(store, failed):
    (store.folder / "nothing.json").symlink_to("nowhere")
    (store.folder / "empty.json").write_text("{}")
    target = store.folder / "target"
    (store.folder / f"{failed[0]}.json").rename(target)
    (store.folder / f"{failed[0]}.json").symlink_to(target)
    edited = store.folder / f"{failed[1]}.json"
    edited.write_text(edited.read_text().replace("boom", "bang"))
    entries, broken = overview(store)
    assert [entry.name for entry in entries] == failed[:1]
    assert {bad.path.stem for bad in broken} == {"nothing", "empty", failed[1]}


def test_a_store_that_may_not_be_listed_is_rejected(store, failed, rejected, monkeypatch):
    refuse = raising(PermissionError(13, "Permission denied", "runs"))
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(UserError, match="cannot be listed"):
        store.read()
    for command in (["status"], ["report"], ["cost", "--rerun"]):
        assert "cannot be listed" in rejected(*command)


def test_records_without_curves_have_their_scores_on_dev_and_differ_in_nothing_else(
    store, plan, run_here
):
    record = run_here(plan())
    (short,) = store.read(lambda record: record.without_curve)[0]
    assert short.curve == [p for p in record.curve if p.dev is not None or p == record.curve[-1]]
    assert short.model_copy(update={"curve": record.curve}) == record


@pytest.fixture
def mixed(plan, store, callback, outcomes, interrupt_at):
    """A store with a run of each kind: done, running, interrupted and failed."""
    done, running, interrupted, failed = (plan(seed=seed) for seed in range(4))
    run(done, store, callback)
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(interrupted, store, callback)
    store.write(failure(failed, store, "boom"))
    lock = store.locks.acquire(running.file_name, threads=1, steps=4)
    lock.report(phase="train")
    yield [plan.file_name for plan in (done, running, interrupted, failed)]
    lock.release(keep_state=False)


def test_the_command_says_the_same_and_changes_nothing(store, mixed, call):
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    code, out, err = call("status")
    assert {path: path.read_bytes() for path in before} == before
    first, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("1 of 4 runs done, 1 running, 1 failed; 1 interrupted")
    assert [line.split()[:2] for line in lines] == [
        ["running", mixed[1]], ["interrupted", mixed[2]], ["failed", mixed[3]],
    ]  # fmt: skip
    assert f"process {os.getpid()} of" in lines[0] and lines[2].endswith("boom")
    found = json.loads(call("status", "--json")[1])
    assert found["done"] == 1
    assert [[row["status"], row["name"]] for row in found["rows"]] == [
        line.split()[:2] for line in lines
    ]
    assert found["rows"][0]["state"]["pid"] == os.getpid()
    assert found["rows"][2]["reason"] == "boom"


def test_a_run_that_was_killed_is_interrupted(store):
    store.locks.folder.mkdir(parents=True)
    (store.locks.folder / "name.json").write_text(STATE.model_dump_json())
    assert overview(store) == ([Entry("interrupted", "name", state=STATE)], [])


@pytest.mark.filterwarnings("always")
def test_no_text_of_a_store_reaches_the_terminal_as_a_command(store, plan, call):
    store.write(failure(plan(), store, "\x1b]0;title\x07 boom\n\x9b31m"))
    state = STATE.model_copy(update={"host": "\x1b[2J"})
    store.locks.folder.mkdir(parents=True)
    (store.locks.folder / "name\x1b[1m.json").write_text(state.model_dump_json())
    (store.folder / "other\x1b[1m\udcff.json").write_text("{}")
    code, out, err = call("status")
    assert code == 0 and len(err.splitlines()) == 1 and len(out.splitlines()) == 3
    assert all(line.isprintable() for line in [*out.splitlines(), *err.splitlines()])
    assert r"\x1b]0;title\x07 boom\n\x9b31m" in out and r"other\x1b[1m\udcff.json" in err


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("always")
def test_pipes_in_a_store_block_nothing(call, store):
    store.locks.folder.mkdir(parents=True)
    for name in (".locks/a.json", "a.json"):
        os.mkfifo(store.folder / name)
    code, out, err = call("status")
    assert (code, err.count("\n")) == (0, 1) and out.startswith("0 of 0 runs done")
    assert "a.json is not a record and is left out: it is not a regular file" in err
