"""The cache: files are complete, whoever writes at once, and damaged or other ones are errors."""

import errno
import os
import threading
import time
from pathlib import Path

import filelock
import numpy as np
import pooch
import pytest

from tasks.data import cache
from tasks.data.corpus import Corpus
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tests.conftest import one_line
from tests.harness.specs import raising
from zoo.registry import UserError

ARRAYS = {"a": np.arange(5), "b": np.zeros((2, 3), np.uint8)}
TREES = {"min_len": 0, "max_len": 4, "train": 3, "dev": 1, "test": 1}


@pytest.fixture
def digits(monkeypatch):
    """Trees of one token: numba would compile the drawing of others for seconds."""
    drawn = Corpus.of([bytes([token]) for token in range(1, 11)], range(10))
    monkeypatch.setattr(ListOps, "draw", lambda task, block: drawn)


def value(key: str) -> int:
    return int(cache.read(key, {"a": "int64"}, "get it")[0])


def test_what_is_written_is_read_from_where_the_variable_says(home, monkeypatch):
    path = cache.write("set@1", ARRAYS)
    assert path.parent == home == cache.data_home() and cache.find("set@1") == path
    arrays = cache.read("set@1", {"b": "uint8 n 3", "a": "int64 m"}, "get it")
    assert np.array_equal(arrays[0], ARRAYS["b"]) and np.array_equal(arrays[1], ARRAYS["a"])
    monkeypatch.delenv(cache.HOME_VARIABLE)
    assert cache.data_home() == Path(pooch.os_cache("attention-harness"))


def test_similar_keys_never_collide_and_the_last_content_counts():
    keys = ["set@1", "set@11", "set@1[a=1]", "set@1[a=11]", "set@1[a=1,b=2]", "set@1[a=*]"]
    for number, key in [(9, "set@1"), *enumerate(keys)]:
        cache.write(key, {"a": np.array(number)})
    assert [value(key) for key in keys] == list(range(len(keys)))
    assert cache.find("set@1[a=?]") is None and len(cache.find_all("set@1")) == 5


def test_a_damaged_file_is_never_misread(home):
    path = cache.write("set@1", ARRAYS)
    good, accepted = path.read_bytes(), 0
    places = range(0, len(good), 7)  # each bit of a byte in turn
    flips = [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in places]
    for content in [*flips, *(good[:i] for i in range(0, len(good), 25))]:
        path.write_bytes(content)
        try:
            arrays = cache.read("set@1", {"a": "int64 n", "b": "uint8 n m"}, "make it again")
            assert all(map(np.array_equal, arrays, ARRAYS.values()))
            accepted += 1
        except UserError as error:
            assert str(error).endswith("; delete it, then make it again")
            assert "\n" not in str(error)
    assert accepted < len(flips) // 4  # dates and attributes of members are not used
    # A header that hides the end of its array.
    path = cache.write("set@2", {"a": np.arange(20_000)})
    path.write_bytes(path.read_bytes().replace(b"(20000,)", b"(10000,)"))
    with one_line("set@2.npz", "a.npy"):
        cache.read("set@2", {"a": "int64 n"}, "make it again")


@pytest.mark.parametrize("arrays", [
    {"c": "int64 n"}, {"a": "uint8 n"}, {"a": "int64 n 2"}, {"b": "uint8 n 3", "a": "int64 n"},
])  # fmt: skip
def test_a_valid_file_with_other_arrays_or_without_permission_is_an_error(arrays, monkeypatch):
    path = cache.write("set@1", ARRAYS)
    with one_line(path, [*arrays][-1], "make it again"):
        cache.read("set@1", arrays, "make it again")
    monkeypatch.setattr(Path, "open", raising(PermissionError(errno.EACCES, "no permission")))
    with one_line(path, "no permission"):
        cache.read("set@1", arrays, "make it again")


@pytest.mark.parametrize("make", [
    os.mkfifo, lambda path: path.symlink_to(path.parent / "nowhere"),
])  # fmt: skip
def test_a_pipe_or_a_broken_link_named_like_a_data_file_is_an_error(home, make):
    home.mkdir()
    make(home / "set@1.npz")
    with one_line("set@1"):
        value("set@1")


def test_nothing_is_made_for_a_cache_that_cannot_be_written(home, images, monkeypatch, tmp_path):
    home.write_text("a file")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(home / "below"))
    monkeypatch.setattr(ListOps, "generate", lambda self, workers: pytest.fail("generated"))
    monkeypatch.setattr(Image, "convert", lambda files: pytest.fail("converted"))
    for use in (
        lambda: cache.write("set@1", ARRAYS),
        lambda: Image.import_files(tmp_path / "packed"),
        lambda: ListOps(**TREES).load("train"),
    ):
        with one_line(home / "below", "HARNESS_DATA"):
            use()


@pytest.mark.parametrize("key", ["set@1", "other@1"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_cache_as_it_was(home, monkeypatch, error, key):
    def savez(file, **arrays):
        file.write(b"half")
        raise error

    path = cache.write("set@1", ARRAYS)
    for name, age in (("old", 4000), ("new", 3000)):  # nobody writes the old one any more
        (home / f".{name}.partial").touch()
        os.utime(home / f".{name}.partial", (time.time() - age,) * 2)
    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises((UserError, KeyboardInterrupt)):
        cache.write(key, {"a": np.arange(6)})
    assert {*home.iterdir()} == {path, home / ".new.partial"}


def test_one_process_at_a_time_generates_a_set(home, digits, monkeypatch):
    trees = ListOps(**TREES)
    trees.load("dev")
    (path,) = home.glob("*.npz")
    content = path.read_bytes()
    path.unlink()
    loaded, waits, acquire = [], threading.Event(), filelock.FileLock.acquire
    file = home / f".{trees.key}.computing.lock"

    def wait(lock, *arguments, **options):
        assert lock.lock_file == str(file)
        waits.set()
        return acquire(lock, *arguments, **options)

    monkeypatch.setattr(ListOps, "generate", None)
    other = threading.Thread(target=lambda: loaded.append(trees.load("dev")))
    with filelock.FileLock(file), monkeypatch.context() as patch:
        patch.setattr(filelock.FileLock, "acquire", wait)
        other.start()
        assert waits.wait(60)
        path.write_bytes(content)
    other.join()
    assert len(loaded) == 1


class Plugged(ListOps):
    """A task of another package: its version need not change with its code."""


def test_data_of_a_plug_in_are_generated_again_for_other_code(home, digits, monkeypatch):
    mine, ours = Plugged(**TREES), ListOps(**TREES)
    mine.load("train")
    assert mine.is_cached() and not ours.is_cached() and ours.cache_key == ours.key
    assert [path.parent for path in cache.find_all(f"listops@{ListOps.version}")] == [home]
    monkeypatch.setattr("inspect.getsource", lambda module: "other code")
    assert not mine.is_cached()
