"""Importing: only verified files, from folders, archives and files; and the status of the cache."""

import hashlib
import os
import re
import tarfile
import zipfile

import numpy as np
import pytest

from tasks.data import sources
from tasks.data.corpus import hold_out
from tasks.data.files import Archive, source_of
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tasks.lra.text import Text
from tests.tasks.conftest import change, change_layout, file_entry
from zoo.registry import UserError


@pytest.mark.parametrize("task", ["image", "retrieval", "text"])
def test_the_known_files_are_described_completely(task):
    source = source_of(task)
    assert source.origin.startswith("https://") and source.title and source.terms
    assert all(len(digest) == 64 for digest in source.arrays.values())
    if archive := source.public:
        assert archive.size > 80_000_000
        assert re.fullmatch("sha256:[0-9a-f]{64}", archive.digest)
        assert all(url.startswith("https://") for url in archive.mirrors)
    for file in (file for layout in source.layouts for file in layout.files):
        assert re.fullmatch("sha256:[0-9a-f]{64}|unpublished", file.digest)
        assert (file.size > 8_000_000) == (file.digest != "unpublished")


def test_all_arrays_but_those_of_retrieval_have_known_digests():
    assert [len(source_of(task).arrays) for task in ("image", "text", "retrieval")] == [4, 6, 0]
    assert source_of("retrieval").examples == {"train": 147_086, "dev": 18_090, "test": 17_437}
    assert [bool(source_of(task).public) for task in ("image", "text", "retrieval")] == [
        True, True, False,
    ]  # fmt: skip


def test_the_held_out_examples_are_fixed():
    targets = bytes([0] * 40 + [1] * 40)

    held = hold_out(np.frombuffer(targets, np.uint8))["dev"]
    assert held.tolist() == [3, 11, 13, 20, 48, 53, 59, 62]


def test_a_file_or_its_folder_may_be_given(images):
    by_folder = Image.import_files(images.folder, images.source)
    assert Image.import_files(images.folder / "images.npz", images.source) == by_folder


def test_an_archive_is_recognised_by_its_size_under_any_name(acl):
    path = (acl.folder / "aclImdb.tar.gz").rename(acl.folder / "download(1)")
    assert Text.import_files(path, acl.source).exists()


def remove_one(folder):
    (folder / "test.jsonl.xz").unlink()
    (folder / "train.jsonl.xz").write_bytes(b"not read")


def change_last_byte(folder):
    path = folder / "test.jsonl.xz"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def replace_by_pipe(folder):
    (folder / "train.jsonl.xz").unlink()
    os.mkfifo(folder / "train.jsonl.xz")


def pipe(folder):
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(
    ("prepare", "path", "message"),
    [
        (None, "train.jsonl.xz", r"one file of several; give the folder of train.* and test"),
        (None, "nowhere", r"nowhere does not exist; give the folder of train.jsonl.xz"),
        (lambda folder: (folder / "new").mkdir(), "new", r"new contains no known file; give the"),
        (lambda folder: (folder / "a").write_text("x"), "a", r"a is not a known file; give the"),
        (remove_one, "", r"contains no test.jsonl.xz; get it again"),
        (change_last_byte, "", r"test.jsonl.xz has SHA256 [0-9a-f]{64}, [0-9a-f]{64} expected"),
        (lambda folder: (folder / "train.jsonl.xz").write_bytes(b"x"), "", r"has 1 bytes, \d+ exp"),
        (replace_by_pipe, "", r"train.jsonl.xz is not a regular file; remove it"),
        (pipe, "pipe", r"pipe is not a regular file; remove it or give another PATH"),
    ],
)
def test_other_files_than_the_known_ones_are_an_error(reviews, home, prepare, path, message):
    if prepare:
        prepare(reviews.folder)
    with pytest.raises(UserError, match=message) as error:
        Text.import_files(reviews.folder / path, reviews.source)
    assert "\n" not in str(error.value) and not home.exists()


@pytest.mark.parametrize("content", [b"no archive at all", None, b""])
@pytest.mark.parametrize("task", [Text, Image])
def test_a_file_that_cannot_be_decoded_is_an_error(task, content, request, home):
    published = request.getfixturevalue("images" if task is Image else "reviews")
    file, *others = published.source.layouts[0].files
    path = published.folder / file.name
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    source = change_layout(published.source, files=(file_entry(path), *others))
    with pytest.raises(UserError, match=f"{path} cannot be decoded") as error:
        task.import_files(published.folder, source)
    assert "\n" not in str(error.value) and not home.exists()


def test_an_archive_is_verified_before_it_is_opened(acl, home):
    path = acl.folder / "aclImdb.tar.gz"
    content = path.read_bytes()
    path.write_bytes(b"not a tar" + content[9:])
    with pytest.raises(UserError, match=r"aclImdb.tar.gz has SHA256 .* expected; get it again"):
        Text.import_files(path, acl.source)
    path.write_bytes(content[:-1])
    with pytest.raises(UserError, match=rf"has {len(content) - 1} bytes, {len(content)} expected"):
        Text.import_files(path, acl.source)
    assert not home.exists()


def unverified(acl, path):
    """The source with an archive at `path` of which only the name is verified."""
    archive = acl.source.layouts[0].archives[0]
    archive = change(archive, name=path.name, size=0, digest="unpublished")
    return change_layout(acl.source, archives=(archive,), folders=())


def test_no_member_of_an_archive_is_extracted_or_followed(acl, tmp_path, monkeypatch):
    path = tmp_path / "deep" / "evil.tar.gz"
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("aclImdb/test/neg/9_1.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        archive.add(acl.folder / "aclImdb" / "test" / "neg" / "0_2.txt", "../escaped.txt")
        archive.add(acl.folder / "aclImdb", "../aclImdb")
    before = set(tmp_path.rglob("*"))
    made = Text.import_files(path, unverified(acl, path))
    assert set(tmp_path.rglob("*")) - before == {made, made.parent}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["train", "test/neg"], r"evil.tar.gz contains no test/pos; get it again"),
        (["train", "test", "test/neg"], r"evil.tar.gz contains test/neg/0_2.txt twice"),
        ([], r"evil.tar.gz cannot be decoded \(ReadError"),
    ],
)
def test_an_archive_with_too_few_or_too_many_members_is_an_error(
    acl, tmp_path, home, members, message
):
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(b"no tar")
    if members:
        with tarfile.open(path, "w:gz") as archive:
            for name in members:
                archive.add(acl.folder / "aclImdb" / name, name)
    with pytest.raises(UserError, match=message):
        Text.import_files(path, unverified(acl, path))
    assert not home.exists()


def test_a_failed_import_leaves_the_cache_as_it_was(reviews, home):
    Text.import_files(reviews.folder, reviews.source)
    before = [(path, path.read_bytes()) for path in home.iterdir()]
    (reviews.folder / "train.jsonl.xz").write_bytes(b"changed")
    with pytest.raises(UserError):
        Text.import_files(reviews.folder, reviews.source)
    assert [(path, path.read_bytes()) for path in home.iterdir()] == before


def test_importing_again_repairs_a_damaged_cache(images):
    path = Image.import_files(images.folder, images.source)
    content = path.read_bytes()
    path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="then run 'harness data fetch image'"):
        Image().load("test")
    assert Image.import_files(images.folder, images.source).read_bytes() == content


@pytest.mark.parametrize(("start", "method"), [(6, 1), (8, 99), (8, zipfile.ZIP_LZMA)])
def test_an_archive_that_cannot_be_unpacked_is_one_line(acl, start, method):
    """An encrypted one, one of an unknown method, and one that is not of the method it names."""
    path = acl.folder / "aclImdb.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("aclImdb/train/pos/0_7.txt", "text")
    content = bytearray(path.read_bytes())
    content[start] = content[content.index(b"PK\x01\x02") + start + 2] = method
    path.write_bytes(content)
    source = change_layout(acl.source, archives=(Archive(**file_entry(path).model_dump()),))
    with pytest.raises(UserError, match=r"aclImdb.zip.* cannot be decoded"):
        Text.import_files(path, source)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("image", "has 5 bytes, 47185241 expected"),
        ("listops", "'harness data'; the official files are those of listops-lra"),
        ("parity", "parity needs no files from 'harness data'; nothing to import"),
        ("imagee", "unknown task 'imagee'; did you mean 'image'"),
    ],
)
def test_import_data_accepts_the_real_files_of_imported_tasks_only(tmp_path, task, message):
    (tmp_path / "cifar10_gray_uint8.npz").write_bytes(b"short")
    with pytest.raises(UserError, match=message):
        sources.import_data(task, tmp_path)


def test_the_status_lists_what_is_cached_and_how_to_get_the_rest(images):
    path = Image.import_files(images.folder, images.source)
    ListOps(min_len=3, max_len=30, train=20, dev=5, test=5).load("dev")
    entries = {entry.task: entry for entry in sources.status()}
    assert entries["image"] == ("image", [path], "")
    assert len(entries["listops"].paths) == 1
    assert entries["text"].paths == []
    assert entries["text"].how_to_get.startswith("run 'harness data fetch text', or ")
    assert not any("\n" in entry.how_to_get for entry in entries.values())


def test_the_status_ignores_the_data_of_another_version(monkeypatch, images):
    Image.import_files(images.folder, images.source)
    monkeypatch.setattr(Image, "version", 2)
    assert next(entry for entry in sources.status() if entry.task == "image").paths == []


def test_each_setting_of_a_generated_task_has_its_own_data():
    sizes = {"min_len": 2, "max_len": 24, "train": 20, "dev": 2, "test": 2}
    settings = [ListOps(**sizes, seed=seed) for seed in (1, 0)]
    assert [task.is_cached() for task in settings] == [False, False]
    digests = [hashlib.sha256(task.generate()["train_values"]).digest() for task in settings]
    for _ in range(2):
        arrays = [task.arrays({"train_values": "uint8 n"})[0] for task in settings]
        assert [hashlib.sha256(array).digest() for array in arrays] == digests
    assert [task.is_cached() for task in settings] == [True, True]
