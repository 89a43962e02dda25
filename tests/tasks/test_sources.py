"""Importing and caching: nothing unverified gets in, and nothing damaged gets out."""

import hashlib
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest

from tasks import cache, sources
from tasks.known import source_of
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tasks.lra.text import Text
from zoo.registry import Refused

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
    with pytest.raises(Refused) as refused:
        cache.read("set@1", ["a"], "make it again")
    message = str(refused.value)
    assert message.startswith(f"{path} is damaged")
    assert hashlib.sha256(bad).hexdigest() in message
    assert hashlib.sha256(good).hexdigest() in message
    assert message.endswith("delete it, then make it again")


def test_a_damaged_generated_set_is_refused_and_made_again_once_deleted(home):
    task = ListOps(min_len=3, max_len=30, train=20, dev=5, test=5)
    before = task.load("train")
    path = next(home.iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Refused, match="delete it, then use it: it is generated on first use"):
        task.load("train")
    path.unlink()
    assert task.load("train").documents.equal(before.documents)


def test_a_failed_write_leaves_the_cache_as_it_was(home, monkeypatch):
    cache.write("set@1", ARRAYS)
    before = sorted(home.iterdir())
    monkeypatch.setattr(np, "savez", _fail_half_way)
    with pytest.raises(OSError, match="disk full"):
        cache.write("other@1", ARRAYS)
    assert sorted(home.iterdir()) == before


def _fail_half_way(file, **arrays):
    file.write(b"half")
    raise OSError("disk full")


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


def test_a_cache_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(Refused, match=r"cannot be written .* set HARNESS_DATA to one that can"):
        cache.write("set@1", ARRAYS)


def test_pickled_objects_are_never_read():
    packed = cache.write("set@1", {"a": np.array([{}], object)})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cache.read("set@1", ["a"], "x")
    assert packed.exists()


def test_the_known_files_are_stated_in_full():
    for task in ("image", "text"):
        source = source_of(task)
        assert source.origin.startswith("https://")
        assert source.title and source.terms
        for file in source.files:
            assert file.size > 8_000_000
            assert all(len(known) == 64 for known in (file.sha256, *file.contents.values()))
            assert file.rows


def test_a_file_or_its_folder_may_be_given(pictures):
    by_folder = Image.bring(pictures.folder, pictures.source)
    by_file = Image.bring(pictures.folder / "pictures.npz", pictures.source)
    assert by_folder == by_file


def test_one_file_of_several_is_refused_with_the_list(reviews, home):
    with pytest.raises(Refused, match=r"one file of several; give the folder of train.* and test"):
        Text.bring(reviews.folder / "train.jsonl.xz", reviews.source)
    assert not home.exists()


def test_a_path_that_does_not_exist_is_refused(pictures, tmp_path):
    with pytest.raises(Refused, match=r"nowhere does not exist; give the folder of pictures.npz"):
        Image.bring(tmp_path / "nowhere", pictures.source)


def test_a_folder_without_a_known_file_is_refused(reviews, home):
    (reviews.folder / "test.jsonl.xz").unlink()
    with pytest.raises(Refused, match=r"test.jsonl.xz cannot be read \(No such file"):
        Text.bring(reviews.folder, reviews.source)
    assert not home.exists()


def test_a_short_file_is_refused_with_both_sizes(reviews, home):
    path = reviews.folder / "train.jsonl.xz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    message = rf"{path} has {len(whole) - 10} bytes, {len(whole)} expected"
    with pytest.raises(Refused, match=message):
        Text.bring(reviews.folder, reviews.source)
    assert not home.exists()


def test_a_changed_file_is_refused_with_both_digests(reviews, home):
    path = reviews.folder / "test.jsonl.xz"
    whole = path.read_bytes()
    bad = whole[:-1] + bytes([whole[-1] ^ 1])
    path.write_bytes(bad)
    digests = [hashlib.sha256(data).hexdigest() for data in (bad, whole)]
    with pytest.raises(Refused, match=f"{path} has SHA-256 {digests[0]}, {digests[1]} expected"):
        Text.bring(reviews.folder, reviews.source)
    assert not home.exists()


@pytest.mark.parametrize(
    "packed", [b"no archive at all", None, b""], ids=["foreign", "cut", "empty"]
)
@pytest.mark.parametrize("task", [Text, Image])
def test_a_file_that_cannot_be_decoded_is_refused(task, packed, pictures_or_reviews, home):
    archive = pictures_or_reviews(task)
    file, *rest = archive.source.files
    path = archive.folder / file.name
    if packed is None:
        packed = path.read_bytes()[:-30]
    path.write_bytes(packed)
    known = replace(file, size=len(packed), sha256=hashlib.sha256(packed).hexdigest())
    with pytest.raises(Refused, match=f"{path} cannot be decoded") as refused:
        task.bring(archive.folder, replace(archive.source, files=(known, *rest)))
    assert "\n" not in str(refused.value)
    assert not home.exists()


@pytest.fixture
def pictures_or_reviews(request):
    return lambda task: request.getfixturevalue("pictures" if task is Image else "reviews")


def test_a_failed_import_keeps_what_was_imported_before(reviews, home):
    Text.bring(reviews.folder, reviews.source)
    before = [(path, path.read_bytes()) for path in home.iterdir()]
    (reviews.folder / "train.jsonl.xz").write_bytes(b"spoiled")
    with pytest.raises(Refused):
        Text.bring(reviews.folder, reviews.source)
    assert [(path, path.read_bytes()) for path in home.iterdir()] == before


def test_importing_again_mends_a_damaged_cache(pictures):
    path = Image.bring(pictures.folder, pictures.source)
    good = path.read_bytes()
    path.write_bytes(b"damaged")
    with pytest.raises(Refused, match="then run 'harness data import image PATH'"):
        Image().load("test")
    assert Image.bring(pictures.folder, pictures.source).read_bytes() == good


def test_only_known_files_pass_for_the_real_ones(pictures):
    (pictures.folder / "cifar10_gray_uint8.npz").write_bytes(b"short")
    with pytest.raises(Refused, match="has 5 bytes, 47185241 expected"):
        sources.import_data("image", pictures.folder)


def test_there_is_nothing_to_import_for_a_generated_task(tmp_path):
    with pytest.raises(Refused, match="listops is generated on first use; nothing to import"):
        sources.import_data("listops", tmp_path)


def test_an_unknown_task_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(Refused, match="unknown task 'imagee'; did you mean 'image'"):
        sources.import_data("imagee", tmp_path)


def test_the_status_tells_what_is_there_and_how_to_get_the_rest(pictures):
    path = Image.bring(pictures.folder, pictures.source)
    ListOps(min_len=3, max_len=30, train=20, dev=5, test=5).load("dev")
    found = {holding.task: holding for holding in sources.status()}
    assert found["image"] == ("image", [path], "")
    assert len(found["listops"].paths) == 1
    assert found["text"].paths == []
    assert found["text"].remedy.startswith("run 'harness data import text PATH'")
    assert "\n" not in found["text"].remedy


def test_the_status_ignores_the_data_of_another_version(monkeypatch, pictures):
    Image.bring(pictures.folder, pictures.source)
    monkeypatch.setattr(Image, "version", 2)
    assert next(h for h in sources.status() if h.task == "image").paths == []
