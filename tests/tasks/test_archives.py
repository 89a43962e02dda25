"""What may be given to an import: folders, archives, files; anything else is refused by name."""

import errno
import hashlib
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.data import cache
from tasks.lra.image import Image
from tasks.lra.text import Text
from zoo.registry import UserError


def test_a_file_or_its_folder_may_be_given(pictures):
    by_folder = Image.bring(pictures.folder, pictures.source)
    by_file = Image.bring(pictures.folder / "pictures.npz", pictures.source)
    assert by_folder == by_file


def test_one_file_of_several_is_refused_with_the_list(reviews, home):
    with pytest.raises(
        UserError, match=r"one file of several; give the folder of train.* and test"
    ):
        Text.bring(reviews.folder / "train.jsonl.xz", reviews.source)
    assert not home.exists()


def test_a_path_that_does_not_exist_is_refused(pictures, tmp_path):
    with pytest.raises(UserError, match=r"nowhere does not exist; give the folder of pictures.npz"):
        Image.bring(tmp_path / "nowhere", pictures.source)


def test_a_folder_without_a_known_file_is_refused(reviews, home):
    (reviews.folder / "test.jsonl.xz").unlink()
    (reviews.folder / "train.jsonl.xz").write_bytes(b"never looked at")
    with pytest.raises(UserError, match=r"holds no test.jsonl.xz; get it again"):
        Text.bring(reviews.folder, reviews.source)
    assert not home.exists()


def test_a_short_file_is_refused_with_both_sizes(reviews, home):
    path = reviews.folder / "train.jsonl.xz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    message = rf"{path} has {len(whole) - 10} bytes, {len(whole)} expected"
    with pytest.raises(UserError, match=message):
        Text.bring(reviews.folder, reviews.source)
    assert not home.exists()


def test_a_changed_file_is_refused_with_both_digests(reviews, home):
    path = reviews.folder / "test.jsonl.xz"
    whole = path.read_bytes()
    bad = whole[:-1] + bytes([whole[-1] ^ 1])
    path.write_bytes(bad)
    digests = [hashlib.sha256(data).hexdigest() for data in (bad, whole)]
    with pytest.raises(UserError, match=f"{path} has SHA256 {digests[0]}, {digests[1]} expected"):
        Text.bring(reviews.folder, reviews.source)
    assert not home.exists()


def test_a_folder_of_other_things_is_refused_with_what_is_known(reviews, tmp_path, home):
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"empty holds no file that is known; .* train.jsonl.xz and"
    ):
        Text.bring(tmp_path / "empty", reviews.source)
    (tmp_path / "empty" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes.txt has no name that is known; give"):
        Text.bring(tmp_path / "empty" / "notes.txt", reviews.source)
    assert not home.exists()


def test_an_archive_is_known_by_its_size_under_any_name(acl):
    path = (acl.folder / "aclImdb.tar.gz").rename(acl.folder / "download(1)")
    assert Text.bring(path, acl.source).exists()


def test_an_archive_that_is_not_the_published_one_is_refused_before_it_is_opened(acl, home):
    path = acl.folder / "aclImdb.tar.gz"
    whole = path.read_bytes()
    path.write_bytes(b"not a tar" + whole[9:])
    with pytest.raises(UserError, match=r"aclImdb.tar.gz has SHA256 .* expected; get it again"):
        Text.bring(path, acl.source)
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=rf"has {len(whole) - 1} bytes, {len(whole)} expected"):
        Text.bring(path, acl.source)
    assert not home.exists()


def unverified(acl, path):
    """The source of `acl` with an archive at `path` of which nothing is published but the name."""
    archive = replace(acl.source.editions[0].archives[0], name=path.name, size=0)
    edition = replace(
        acl.source.editions[0], archives=(replace(archive, digest="unpublished"),), folders=()
    )
    return replace(acl.source, editions=(edition,))


def test_nothing_of_an_archive_is_written_outside_or_followed(acl, tmp_path, home, monkeypatch):
    # Wherever one might extract, what climbs two folders up is still seen.
    deep = tmp_path / "some" / "where"
    (deep / "here").mkdir(parents=True)
    monkeypatch.chdir(deep)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setenv(cache.HOME_VARIABLE, str(home := deep / "cache"))
    path = deep / "here" / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("aclImdb/test/neg/9_1.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        archive.add(acl.folder / "aclImdb" / "test" / "neg" / "0_2.txt", "../../escaped.txt")
        archive.add(acl.folder / "aclImdb", "../aclImdb")
    before = sorted(tmp_path.rglob("*"))
    Text.bring(path, unverified(acl, path))
    after = set(tmp_path.rglob("*")) - {home, *home.iterdir()}
    assert sorted(after) == before


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["train", "test/neg"], r"evil.tar.gz holds no test/pos; get it again"),
        (["train", "test", "test/neg"], r"evil.tar.gz holds test/neg/0_2.txt twice"),
    ],
)
def test_an_archive_with_too_little_or_too_much_is_refused(acl, tmp_path, home, members, message):
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in members:
            archive.add(acl.folder / "aclImdb" / name, name)
    with pytest.raises(UserError, match=message):
        Text.bring(path, unverified(acl, path))
    assert not home.exists()


@pytest.mark.parametrize("content", [b"no tar", b""])
def test_an_archive_that_is_none_is_refused(acl, tmp_path, home, content):
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"evil.tar.gz cannot be decoded \(ReadError"):
        Text.bring(path, unverified(acl, path))
    assert not home.exists()


@pytest.mark.parametrize("method", ["open", "iterdir", "exists"])
def test_what_the_system_will_not_read_is_refused_in_a_line(acl, home, monkeypatch, method):
    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(
        UserError, match=r"aclImdb.* cannot be read \(Permission denied\)"
    ) as refused:
        Text.bring(acl.folder / "aclImdb", acl.source)
    monkeypatch.undo()
    assert "\n" not in str(refused.value)
    assert not list(home.glob("*"))
