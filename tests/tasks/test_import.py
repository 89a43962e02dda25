"""Importing: only verified files, from folders, archives and files; and the status of the cache."""

import io
import os
import re
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tasks.data import sources
from tasks.data.corpus import in_split
from tasks.data.files import Member
from tasks.data.sources import ImportedTask, import_all
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tasks.lra.text import Text
from tasks.registry import tasks
from tests.tasks.conftest import packed_reviews
from zoo.registry import UserError

IMPORTED = [name for name, task in tasks.items() if issubclass(task, ImportedTask)]


@pytest.mark.parametrize("name", IMPORTED)
def test_a_source_is_declared_completely(name):
    source = tasks.find(name).source
    assert source.origin.startswith("https://") and source.title and source.terms and source.give
    assert source.examples.keys() <= {"train", "dev", "test"} and re.compile(source.pattern)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in source.arrays.values())
    for file in source.files:
        assert re.fullmatch("sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}", file.digest)
        assert not file.url or (file.url.startswith("https://") and file.size > 100_000)
    assert bool(source.downloads) == bool(source.arrays)  # what is downloaded can be verified
    archives = {"image": 1, "text": 1, "wikitext": 1, "listops-lra": 0, "pathfinder-lra": 0}
    assert name not in archives or len(source.downloads) == archives[name]


def test_the_held_out_examples_are_fixed():
    targets = np.repeat(np.arange(2, dtype=np.uint8), 40)
    assert in_split(targets, "dev").tolist() == [3, 11, 13, 20, 48, 53, 59, 62]


@pytest.mark.parametrize(
    "place", ["official", "official/aclImdb", "official/aclImdb_v1.tar.gz", "renamed", "w.zip"]
)
def test_the_official_files_give_the_same_data_at_any_level_packed_or_not(reviews, tmp_path, place):
    content = Text.import_files(packed_reviews(tmp_path / "packed")).read_bytes()
    (reviews / "test/neg/.DS_Store").write_bytes(b"\xff")  # of a file manager
    if place == "renamed":
        (reviews.parent / "aclImdb_v1.tar.gz").rename(tmp_path / place)
    if place == "w.zip":
        with zipfile.ZipFile(tmp_path / place, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in reviews.rglob("*"):
                archive.write(path, path.relative_to(reviews.parent))
    assert Text.import_files(tmp_path / place).read_bytes() == content


def replace_by_pipe(folder: Path) -> None:
    (folder / "test/neg/0_2.txt").unlink()
    os.mkfifo(folder / "test/neg/0_2.txt")


def write(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "path", "message"),
    [
        (None, "nowhere", "nowhere does not exist; give the folder of imdb_train"),
        (lambda f: (f / "new").mkdir(), "new", "new contains no known file; give the folder of"),
        (write("a", b"x"), "a", r"a cannot be decoded \(ReadError"),
        (lambda f: os.mkfifo(f / "pipe"), "pipe", "pipe is not a regular file; remove it or give"),
        (replace_by_pipe, "", "0_2.txt is not a regular file; remove it"),
        (write("../aclImdb_v1.tar.gz", b"x"), "../aclImdb_v1.tar.gz", r"has 1 bytes, \d+ expected"),
    ],
)
def test_other_files_than_the_known_ones_are_one_line_and_nothing_is_cached(
    reviews, rejected, damage, path, message
):
    if damage:
        damage(reviews)
    rejected(Text, reviews / path, message)


def test_known_files_are_verified_before_they_are_opened(reviews, images, tmp_path, rejected):
    for task, path in (
        (Text, reviews.parent / "aclImdb_v1.tar.gz"),
        (Image, tmp_path / "packed" / "cifar10_gray_uint8.npz"),
    ):
        path.write_bytes(b"not a tar" + path.read_bytes()[9:])
        rejected(task, path, f"{path.name} has SHA256 .* expected; get it again")
        path.write_bytes(path.read_bytes()[:-1])
        rejected(task, path, rf"{path.name} has \d+ bytes, \d+ expected")


def test_no_member_of_an_archive_is_extracted_or_followed(reviews, tmp_path, monkeypatch):
    path = tmp_path / "deep" / "evil.tar.gz"
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    with tarfile.open(path, "w:gz") as archive:
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE), 9):
            link = tarfile.TarInfo(f"aclImdb/test/neg/{number}_1.txt")
            link.type, link.linkname = kind, "/etc/hostname"
            archive.addfile(link)
        archive.add(reviews / "test" / "neg" / "0_2.txt", "../escaped.txt")
        archive.add(reviews, "../aclImdb")
    before = set(tmp_path.rglob("*"))
    written = Text.import_files(path)
    assert set(tmp_path.rglob("*")) - before == {written, written.parent}


def test_a_file_that_an_archive_has_twice_is_an_error(reviews, rejected, tmp_path):
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        for name in ("train", "test", "test/neg"):
            archive.add(reviews / name, name)
    rejected(Text, tmp_path / "evil.tar.gz", r"evil.tar.gz contains test/neg/0_2.txt twice")


def test_a_line_and_a_file_of_any_length_do_not_fill_the_memory():
    with pytest.raises(UserError, match="x, line 2 has more than 5 bytes; get it again"):
        [*Member("x", "x", io.BytesIO(b"1234\n123456")).lines(5)]
    with pytest.raises(UserError, match="x has more than 5 bytes; get it again"):
        Member("x", "x", io.BytesIO(b"123456")).read(5)


def test_a_failed_import_leaves_the_cache_as_it_was_and_another_repairs_it(reviews, home):
    path = Text.import_files(reviews)
    content = path.read_bytes()
    (reviews / "test/neg/0_2.txt").write_bytes(b"changed")
    with pytest.raises(UserError):
        Text.import_files(reviews)
    assert [*home.iterdir()] == [path] and path.read_bytes() == content
    path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="then run 'harness data import text PATH'"):
        Text(train=36, dev=4, test=6).load("test")
    assert Text.import_files(reviews.parent / "aclImdb_v1.tar.gz").read_bytes() == content


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("image", "has 5 bytes, 47185241 expected"),
        ("listops", "'harness data'; the official files are for listops-lra"),
        ("parity", "parity needs no files from 'harness data'; nothing to import"),
        ("imagee", "unknown task 'imagee'; did you mean 'image'"),
        ("uea", "has no file of uea-ethanol-concentration, uea-face"),
    ],
)
def test_only_the_real_files_of_imported_tasks_are_imported(tmp_path, task, message):
    (tmp_path / "cifar10_gray_uint8.npz").write_bytes(b"short")
    with pytest.raises(UserError, match=message):
        import_all(task, tmp_path)


def test_the_status_lists_what_is_cached_and_how_to_get_the_rest(images, tmp_path, monkeypatch):
    path = Image.import_files(tmp_path / "packed")
    ListOps(min_len=3, max_len=30, train=20, dev=5, test=5).load("dev")
    entries = {entry.task: entry for entry in sources.status()}
    assert entries["image"] == ("image", [path], "")
    assert len(entries["listops"].paths) == 1
    assert entries["text"].paths == []
    assert entries["text"].how_to_get.startswith("run 'harness data fetch text', or ")
    assert not any("\n" in entry.how_to_get for entry in entries.values())
    monkeypatch.setattr(Image, "version", 2)
    assert next(entry for entry in sources.status() if entry.task == "image").paths == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("image", "run 'harness data fetch image', or 'harness data import image PATH' with"),
        ("retrieval", "run 'harness data import retrieval PATH' with the folder of lra_release"),
    ],
)
def test_missing_data_are_an_error_with_command_and_public_original(name, message):
    task = tasks.find(name)
    with pytest.raises(UserError, match=message) as error:
        task().load("train")
    assert task.source.origin in str(error.value) and "\n" not in str(error.value)
