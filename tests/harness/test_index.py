"""The index of a store: what it says is what the records say, whatever happens to either."""

import os

import pytest

from harness.records import overview as index
from harness.records.overview import overview
from harness.records.store import Store
from harness.runner import failure
from tests.harness.specs import raising
from zoo.registry import UserError

OLD = 10**18


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """The names of the files that are read."""
    names, real = [], Store.read_file

    def read_file(self, name):
        names.append(name)
        return real(self, name)

    monkeypatch.setattr(Store, "read_file", read_file)
    return names


@pytest.fixture
def names(plan, store) -> list[str]:
    """Two failed runs, written long ago."""
    paths = [store.write(failure(plan(seed=seed), store, f"boom {seed}")) for seed in (0, 1)]
    for path in paths:
        os.utime(path, ns=(OLD, OLD))
    return [path.name for path in paths]


def reasons(store) -> list[str]:
    return [one.reason for one in index.summaries(store).values()]


@pytest.mark.parametrize(("reason", "modified"), [("crash", OLD), ("boom 2", OLD + 1)])
def test_a_file_of_another_size_or_time_is_read_again(store, names, reads, plan, reason, modified):
    for _ in range(2):
        assert reasons(store) == ["boom 0", "boom 1"]
        assert reads == names
    path = store.write(failure(plan(seed=0), store, reason))
    os.utime(path, ns=(modified, modified))
    (store.folder / names[1]).unlink()
    assert reasons(store) == [reason] and reads == [*names, names[0]]
    assert reasons(store) == [reason] and len(reads) == 3


def test_a_file_that_was_written_just_now_is_read_each_time(store, names, reads):
    os.utime(store.folder / names[0])
    for _ in range(2):
        assert reasons(store) == ["boom 0", "boom 1"]
    assert reads == [*names, names[0]]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"code": "", "files": {"x.json": 1}}', b"\xff"])
def test_a_damaged_index_and_one_of_other_code_are_made_again(
    store, names, reads, monkeypatch, content
):
    index.summaries(store)
    (store.folder / index.NAME).write_bytes(content)
    assert reasons(store) == ["boom 0", "boom 1"] and reads == names * 2
    monkeypatch.setattr(index, "_code", lambda: "other")
    assert reasons(store) == ["boom 0", "boom 1"] and reads == names * 3


def test_a_pipe_in_place_of_the_index_is_not_opened(store, names):
    os.mkfifo(store.folder / index.NAME)
    assert reasons(store) == ["boom 0", "boom 1"]


def test_a_store_that_cannot_be_written_is_read(store, names, monkeypatch):
    monkeypatch.setattr(index, "write_atomic", raising(PermissionError()))
    assert reasons(store) == ["boom 0", "boom 1"]


def test_a_file_that_is_no_record_is_not_believed_to_be_one_later(store, names):
    path = store.folder / "other.json"
    path.write_text("{}")
    os.utime(path, ns=(OLD, OLD))
    for _ in range(2):
        found = overview(store)
        assert [bad.path for bad in found.broken] == [path] and len(found.failed) == 2


def test_a_link_to_nothing_and_a_link_to_a_record_are_told_apart(store, names):
    (store.folder / "nothing.json").symlink_to("nowhere")
    target = store.folder / "target"
    (store.folder / names[0]).rename(target)
    (store.folder / names[0]).symlink_to(target)
    assert [one.status for one in index.summaries(store).values()] == ["failed", "failed", None]


def test_a_store_that_may_not_be_listed_is_an_error_and_not_empty(store, names, call, monkeypatch):
    refuse = raising(PermissionError(13, "Permission denied", "runs"))
    monkeypatch.setattr("harness.records.store.os.scandir", refuse)
    with pytest.raises(UserError, match="cannot be listed"):
        store.read()
    for command in (["status"], ["report"], ["run", "--remeasure"]):
        code, _, err = call(*command)
        assert code == 2 and len(err.splitlines()) == 1 and "cannot be listed" in err


def test_records_without_curves_differ_in_nothing_else(store, plan, run_here):
    record = run_here(plan())
    (short,) = store.read(lambda one: one.without_curve)[0]
    assert short.curve == record.curve[-1:] and len(record.curve) > 1
    assert short.model_copy(update={"curve": record.curve}) == record
