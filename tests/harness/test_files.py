"""Files that are written atomically."""

import os

import pytest

from harness.records.files import write_all


def full(_):
    raise OSError("disk full")


def test_writing_replaces_the_files_and_leaves_no_other(tmp_path):
    write_all(tmp_path / "pages", {"a.md": b"old", "b.md": b"same"})
    paths = write_all(tmp_path / "pages", {"a.md": b"new", "b.md": b"same"})
    assert sorted((tmp_path / "pages").iterdir()) == paths
    assert [path.read_bytes() for path in paths] == [b"new", b"same"]


def test_a_failed_write_leaves_the_old_file_and_no_partial_one(tmp_path, monkeypatch):
    (path,) = write_all(tmp_path, {"a.md": b"old"})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_all(tmp_path, {"a.md": b"new"})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
