"""`harness data`: what its commands print, and their exit codes."""

from pathlib import Path

import numpy as np
import pytest

from tasks.data import download
from tasks.data.files import File, Layout, Source
from tasks.lra.text import Text


@pytest.fixture
def reviews(tmp_path, monkeypatch) -> Path:
    """A folder of four reviews, which the task accepts, and an empty cache."""
    folders = ("train/neg", "train/pos", "test/neg", "test/pos")
    for folder in folders:
        rating = 1 if folder.endswith("neg") else 9
        review = tmp_path / "aclImdb" / folder / f"0_{rating}.txt"
        review.parent.mkdir(parents=True)
        review.write_text("So so.")
    source = Source(
        title="t", origin="https://example.org", terms="cite us", arrays={},
        examples={"train": 2, "test": 2},
        layouts=(Layout(name="folders", files=tuple(File(name=name) for name in folders)),),
    )  # fmt: skip
    monkeypatch.setattr(Text, "source", classmethod(lambda cls: source))
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "cache"))
    return tmp_path / "aclImdb"


def test_an_import_prints_the_file_in_the_cache(call, reviews):
    code, out, err = call("data", "import", "text", str(reviews))
    assert (code, err) == (0, "")
    with np.load(out.removeprefix("imported: ").strip(), allow_pickle=False) as arrays:
        assert arrays["train_targets"].tolist() == [0, 1]


def test_importing_what_does_not_exist_is_rejected(call, tmp_path):
    code, _, err = call("data", "import", "image", str(tmp_path / "none"))
    assert code == 2 and err.count("\n") == 1 and "does not exist" in err


@pytest.mark.parametrize("argv", [("list",), ("import", "text", ".")], ids=repr)
def test_a_cache_that_is_a_file_is_rejected(call, reviews, tmp_path, monkeypatch, argv):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "notes.txt"))
    monkeypatch.chdir(reviews)
    code, out, err = call("data", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"harness: HARNESS_DATA={tmp_path / 'notes.txt'} is a file; ")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("present", [True, False])
def test_fetch_prints_the_file_and_the_terms(call, monkeypatch, tmp_path, present):
    def fetch(task, progress, offline):
        progress("reviews.tar.gz", 1, 2)
        assert (task, offline) == ("text", present)
        return download.Fetched(path=tmp_path / "text.npz", terms="cite us", present=present)

    monkeypatch.setattr(download, "fetch_data", fetch)
    verb = "present" if present else "fetched"
    argv = ("data", "fetch", "text", *(["--offline"] if present else []))
    # No bar where there is no terminal.
    assert call(*argv) == (0, f"{verb}: {tmp_path / 'text.npz'}\nterms: cite us\n", "")


def test_fetching_without_a_download_or_a_source_is_rejected(call, reviews):
    code, out, err = call("data", "fetch", "retrieval")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "run 'harness data import retrieval PATH'" in err


def test_list_names_the_official_archive_of_retrieval_and_its_origin(call, reviews):
    code, out, _ = call("data", "list")
    (line,) = [line for line in out.splitlines() if line.startswith("retrieval: ")]
    assert code == 0 and "run 'harness data import retrieval PATH' with the folder of lra" in line
    assert line.endswith("https://storage.googleapis.com/long-range-arena/lra_release.gz")
