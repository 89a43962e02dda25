"""Files that are written atomically."""

import errno
import os

import pytest

from harness.records.baselines import read_studies
from harness.records.certificate import FOLDER, read_certificates
from harness.records.files import write_all
from tests.harness.specs import raising
from zoo.registry import UserError


def test_writing_replaces_the_files_and_leaves_no_other(tmp_path):
    one, other = (tmp_path / "pages" / name for name in ("a.md", "b.md"))
    write_all({one: b"old", other: b"same"})
    paths = write_all({one: b"new", other: b"same"})
    assert sorted((tmp_path / "pages").iterdir()) == paths == [one, other]
    assert [path.read_bytes() for path in paths] == [b"new", b"same"]


def test_a_failed_write_leaves_the_old_file_and_no_partial_one(tmp_path, monkeypatch):
    (path,) = write_all({tmp_path / "a.md": b"old"})
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_all({path: b"new"})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_changes_unless_all_can_be_written_and_the_error_names_the_file(tmp_path):
    path, folder = tmp_path / "a.md", tmp_path / "b.md"
    path.write_bytes(b"old")
    folder.mkdir()
    with pytest.raises(OSError) as caught:
        write_all({path: b"new", folder: b"new", tmp_path / "c.md": b"new"})
    assert caught.value.filename == str(folder)
    assert path.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [path, folder]


def test_a_named_pipe_is_neither_a_study_nor_a_certificate(tmp_path):
    (tmp_path / FOLDER).mkdir()
    for folder in (tmp_path, tmp_path / FOLDER):
        os.mkfifo(folder / "x.json")
    with pytest.raises(UserError, match=r"x.json is not a record of shallow models"):
        read_studies(tmp_path)
    with pytest.raises(UserError, match=r"x.json is not a certificate"):
        read_certificates(tmp_path)
