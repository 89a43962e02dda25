"""The cache: what is there is whole, whoever writes at once, and nothing damaged gets out."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import numpy as np
import pooch
import pytest

from tasks.data import cache
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tasks.lra.text import Text
from zoo.registry import UserError

ARRAYS = {"a": np.arange(5), "b": np.zeros((2, 3), np.uint8)}


def test_what_is_written_is_read(home):
    path = cache.write("set@1", ARRAYS)
    assert path.parent == home
    assert cache.find("set@1") == path
    found = cache.read("set@1", ["b", "a"], "x")
    assert [array.tolist() for array in found] == [ARRAYS["b"].tolist(), ARRAYS["a"].tolist()]


def test_the_cache_is_where_the_variable_says_or_in_the_users_cache(home, monkeypatch):
    assert cache.data_home() == home
    monkeypatch.delenv(cache.HOME_VARIABLE)
    assert cache.data_home() == Path(pooch.os_cache("attention-harness"))


def test_keys_that_look_alike_never_collide():
    keys = ["set@1", "set@11", "set@1[a=1]", "set@1[a=11]", "set@1[a=1,b=2]", "set@1[a=*]"]
    for number, key in enumerate(keys):
        cache.write(key, {"a": np.array(number)})
    assert [int(cache.read(key, ["a"], "x")[0]) for key in keys] == list(range(len(keys)))
    assert cache.find("set@1[a=?]") is None
    assert len(cache.find_all("set@1")) == 5


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_named_with_what_it_should_be_and_what_it_is(damage):
    path = cache.write("set@1", ARRAYS)
    good = path.read_bytes()
    middle = len(good) // 2
    bad = {
        "flip": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "cut": good[:middle],
        "empty": b"",
    }[damage]
    path.write_bytes(bad)
    with pytest.raises(UserError) as refused:
        cache.read("set@1", ["a"], "make it again")
    message = str(refused.value)
    assert message.startswith(f"{path} is damaged")
    assert hashlib.sha256(bad).hexdigest() in message
    assert hashlib.sha256(good).hexdigest() in message
    assert message.endswith("delete it, then make it again")


def test_nothing_is_generated_for_a_cache_that_takes_nothing(home, monkeypatch):
    def forbid(dir):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cache.tempfile, "TemporaryFile", forbid)
    monkeypatch.setattr(ListOps, "generate", lambda self: pytest.fail("generated"))
    with pytest.raises(
        UserError, match=r"cannot be written \(Permission denied\); set HARNESS_DATA"
    ):
        ListOps().load("train")


def test_nothing_is_converted_for_a_cache_that_takes_nothing(home, pictures, monkeypatch):
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(home / "below"))
    monkeypatch.setattr(Image, "convert", lambda files, rows: pytest.fail("converted"))
    with pytest.raises(
        UserError, match=r"below cannot be written \(Not a directory\); set HARNESS"
    ):
        Image.bring(pictures.folder, pictures.source)


def test_a_folder_that_may_not_be_searched_is_refused(home, monkeypatch):
    def forbid(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbid)
    with pytest.raises(
        UserError, match=r"cannot be written \(Permission denied\); set HARNESS_DATA"
    ):
        cache.require_writable()


def test_a_damaged_generated_set_is_refused_and_made_again_once_deleted(home):
    task = ListOps(min_len=3, max_len=30, train=20, dev=5, test=5)
    before = task.load("train")
    path = next(home.iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="delete it, then run the task: its data are generated"):
        task.load("train")
    path.unlink()
    assert task.load("train").sequences.equal(before.sequences)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_a_failed_write_leaves_the_cache_as_it_was(home, monkeypatch, error):
    cache.write("set@1", ARRAYS)
    before = sorted(home.iterdir())
    monkeypatch.setattr(np, "savez", _fail_half_way(error))
    with pytest.raises(type(error)) as raised:
        cache.write("other@1", ARRAYS)
    assert raised.value is error
    assert sorted(home.iterdir()) == before


def _fail_half_way(error):
    def fail(file, **arrays):
        file.write(b"half")
        raise error

    return fail


def test_a_killed_write_leaves_nothing_under_the_final_name(home):
    script = (
        "import sys, time, numpy as np; from tasks import cache\n"
        "def stall(file, **arrays):\n"
        "    file.write(b'half'); file.flush(); print('half', flush=True); time.sleep(60)\n"
        "np.savez = stall; cache.write('set@1', {})"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        writer.kill()
    assert cache.find("set@1") is None
    path = cache.write("set@1", ARRAYS)
    assert cache.find("set@1") == path


def test_two_processes_may_write_the_same_set_at_once(home):
    script = (
        "import numpy as np; from tasks import cache\n"
        "for _ in range(10): cache.write('set@1', {'a': np.arange(20_000)})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        if cache.find("set@1"):
            assert cache.read("set@1", ["a"], "x")[0][-1] == 19_999
        time.sleep(0.02)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(list(home.iterdir())) == 1


@pytest.mark.parametrize("values", [range(5), reversed(range(5))])
def test_what_is_written_last_takes_the_place_of_what_was_there(home, values):
    cache.write("set@1[a=1]", {"a": np.array(7)})
    for value in values:
        path = cache.write("set@1", {"a": np.array(value)})
        assert cache.find("set@1") == path
        assert cache.read("set@1", ["a"], "x") == [value]
    assert len(list(home.glob("*.npz"))) == 2
    assert cache.read("set@1[a=1]", ["a"], "x") == [7]


def test_a_write_that_fails_leaves_what_was_there(home, monkeypatch):
    path = cache.write("set@1", ARRAYS)
    monkeypatch.setattr(np, "savez", _fail_half_way(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        cache.write("set@1", {"a": np.arange(6)})
    assert list(home.iterdir()) == [path]


@pytest.mark.parametrize("newer", [0, 1])
def test_of_two_that_a_killed_process_left_the_newer_counts(home, newer):
    paths = [cache.write(f"set@{n}", {"a": np.array(n)}) for n in (0, 1)]
    for number, path in enumerate(paths):
        path = path.rename(home / f"both@1.{path.name.split('.')[-2]}.npz")
        os.utime(path, ns=(0, 10**18 + (number == newer)))
    assert cache.read("both@1", ["a"], "x") == [newer]


def test_a_reader_never_finds_nothing_while_two_processes_replace_each_others_file(home):
    cache.write("set@1", {"a": np.array(0)})
    script = (
        "import numpy as np; from tasks import cache\n"
        "for n in range(40): cache.write('set@1', {'a': np.array(n % 2)})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        assert cache.read("set@1", ["a"], "x")[0] in (0, 1)
    assert [writer.returncode for writer in writers] == [0, 0]
    cache.write("set@1", {"a": np.array(2)})
    assert len(list(home.glob("*.npz"))) == 1


def test_one_process_at_a_time_replaces_the_file_of_a_set(home):
    cache.write("set@1", {"a": np.array(0)})
    writer = threading.Thread(target=cache.write, args=("set@1", {"a": np.array(1)}))
    with filelock.FileLock(home / ".set@1.lock"):
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        assert cache.read("set@1", ["a"], "x") == [0]
    writer.join()
    assert cache.read("set@1", ["a"], "x") == [1]


def test_a_file_that_leads_nowhere_is_as_good_as_missing(home):
    path = cache.write("set@1", ARRAYS)
    path.rename(home / "elsewhere")
    path.symlink_to(home / "nowhere")
    with pytest.raises(UserError, match=r"set@1 is not in .*; get it"):
        cache.read("set@1", ["a"], "get it")


def test_a_set_that_may_not_be_read_is_there_all_the_same(monkeypatch):
    path = cache.write("set@1", ARRAYS)

    def forbid(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", forbid)
    with pytest.raises(UserError) as refused:
        cache.read("set@1", ["a"], "get it")
    assert str(refused.value) == f"{path} cannot be read (Permission denied); mend its permissions"


def test_a_listing_that_missed_a_file_as_it_was_replaced_is_made_again(home, monkeypatch):
    path, listed = cache.write("set@1", ARRAYS), []
    iterdir = Path.iterdir
    monkeypatch.setattr(
        Path, "iterdir", lambda self: iterdir(self) if listed else listed.append(self) or iter(())
    )
    assert cache.find("set@1") == path


def test_a_cache_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match=r"cannot be written .* set HARNESS_DATA to one that can"):
        cache.write("set@1", ARRAYS)


def test_a_cache_that_cannot_be_read_is_not_an_empty_one(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "file" / "below"))
    line = r"below cannot be read \(Not a directory\); set HARNESS_DATA to a folder that can"
    for look in (cache.find, cache.find_all):
        with pytest.raises(UserError, match=line):
            look("set@1")


def test_pickled_objects_are_never_read():
    packed = cache.write("set@1", {"a": np.array([{}], object)})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cache.read("set@1", ["a"], "x")
    assert packed.exists()


@pytest.mark.parametrize("made", ["imported", "generated"])
def test_a_full_disk_is_a_clear_line_and_leaves_the_cache_as_it_was(
    reviews, home, monkeypatch, made
):
    cache.write("set@1", ARRAYS)
    before = sorted(home.iterdir())

    def fill(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    message = rf"cannot be written to {home} \(No space left on device\); make room there"
    with pytest.raises(UserError, match=message):
        if made == "imported":
            Text.bring(reviews.folder, reviews.source)
        else:
            ListOps(min_len=3, max_len=30, train=20, dev=5, test=5).load("dev")
    assert sorted(home.iterdir()) == before


def test_two_processes_may_import_the_same_set_at_once(pictures, home):
    script = (
        "from pathlib import Path; from tasks.data.files import *; from tasks.lra.image import Image\n"
        f"for _ in range(5): Image.bring(Path({str(pictures.folder)!r}), {pictures.source!r})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [path.name.split(".")[0] for path in home.iterdir()] == ["image@1"]
    assert len(Image(train=180, dev=20, test=30).load("train")) == 180
