"""`harness data`: what its commands print, and their exit codes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.data import sources
from tasks.data.sources import CachedTask
from tasks.lra.text import Text
from tasks.registry import tasks
from tests.harness.conftest import TREES


@pytest.fixture
def reviews(tmp_path, monkeypatch) -> Path:
    for name in ("train/neg/0_1", "train/pos/0_9", "test/neg/0_1", "test/pos/0_9"):
        review = tmp_path / "aclImdb" / f"{name}.txt"
        review.parent.mkdir(parents=True)
        review.write_text("So so.")
    source = replace(Text.source, arrays={}, examples={"train": 2, "test": 2})
    monkeypatch.setattr(Text, "source", source)
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "cache"))
    return tmp_path / "aclImdb"


def test_an_import_prints_its_file_and_a_cache_that_is_a_file_is_rejected(
    output, rejected, reviews, tmp_path, monkeypatch
):
    out = output("data", "import", "text", str(reviews))
    with np.load(out.removeprefix("imported: ").strip(), allow_pickle=False) as arrays:
        assert arrays["train_targets"].tolist() == [0, 1]
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "notes.txt"))
    for argv in (["list"], ["import", "text", str(reviews)]):
        line = rejected("data", *argv)
        assert line.startswith(f"harness: HARNESS_DATA={tmp_path / 'notes.txt'} is a file; ")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("verb", "options"), [("present", ["--offline"]), ("fetched", [])])
def test_fetch_prints_the_file_and_the_terms(call, monkeypatch, tmp_path, verb, options):
    def fetch(task, progress, offline):
        progress("reviews.tar.gz", 1, 2)
        assert (task, offline) == ("text", bool(options))
        return sources.Fetched(path=tmp_path / "text.npz", terms="cite us", present=offline)

    monkeypatch.setattr(sources, "fetch_data", fetch)
    # No bar where there is no terminal.
    out = f"{verb}: {tmp_path / 'text.npz'}\nterms: cite us\n"
    assert call("data", "fetch", "text", *options) == (0, out, "")


def test_a_line_for_each_data_set_says_where_it_is_or_how_to_get_it(call, rejected, data_home):
    tasks.find("listops")(**TREES).load("test")
    # Other processes of these tests add files.
    present = [*data_home.glob("listops*.npz")]
    code, out, err = call("data", "list")
    cached = {name for name, task in tasks.items() if issubclass(task, CachedTask)}
    lines = {line.partition(": ")[0]: line for line in out.splitlines()}
    assert (code, err, {*lines}) == (0, "", cached)
    assert "harness data import image PATH" in lines["image"]
    assert present and all(f"listops: {path}\n" in out for path in present)
    # Nothing is downloaded of a source without an address.
    remedy = "run 'harness data import retrieval PATH'"
    assert remedy in lines["retrieval"] and remedy in rejected("data", "fetch", "retrieval")
    rows = json.loads(call("data", "list", "--json")[1])["rows"]
    assert {row["task"] for row in rows} == cached
    assert all(row["paths"] or row["how_to_get"] for row in rows)
