"""`harness check`, `harness data` and `--json`: lines, documents and exit codes."""

import csv
import json
import logging
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

from harness.cli.process import Answer, add_command, invoke
from harness.records.store import CostStore
from tasks.data import sources
from tasks.data.sources import CachedTask
from tasks.lra.text import Text
from tasks.registry import tasks
from tests.harness.conftest import TREES
from tests.reports.conftest import make_cost, make_record
from zoo.conformance import Check, Outcome
from zoo.variants import variants


@pytest.fixture
def checks(monkeypatch):
    pair = (
        Check("none", "ever", lambda _: Outcome(True, "so"), lambda _: True),
        Check("none", "never", lambda _: Outcome(False, "not today"), lambda _: True, fast=False),
    )
    monkeypatch.setattr("zoo.conformance.CHECKS", pair)


def test_every_check_is_a_line_and_the_failed_ones_are_summed_up(call, checks):
    code, out, _ = call("check", "softmax")
    assert code == 1
    *lines, summary = out.splitlines()
    assert [re.sub(r"\d+\.\d s", "# s", line) for line in lines] == [
        "1 of 4   # s  ok   softmax: ever: so",
        "2 of 4   # s  FAIL softmax: never: not today",
        "3 of 4   # s  ok   softmax, causal: ever: so",
        "4 of 4   # s  FAIL softmax, causal: never: not today",
    ]
    assert summary.startswith("2 of 4 checks fail, in ")
    assert summary.endswith(" s: softmax: never; softmax, causal: never")


@pytest.mark.parametrize(("options", "selected"), [
    (["--fast"], ["ever"]), (["--only", "never, ever"], ["ever", "never"]),
    (["--only", "never", "--only", "ever"], ["ever", "never"]),
], ids=" ".join)  # fmt: skip
def test_checks_are_selected_by_tier_and_by_name(call, checks, options, selected):
    code, out, _ = call("check", "softmax", "--json", *options)
    rows = json.loads(out)["rows"]
    assert [row["check"] for row in rows] == selected * 2 and code == ("never" in selected)
    assert rows[0].pop("seconds") >= 0 and rows[0] == {
        "variant": "softmax", "group": "none", "check": "ever", "detail": "so", "passed": True,
        "expected_failure": "",
    }  # fmt: skip


def test_an_expected_failure_is_named_and_one_that_passes_fails(call, checks, monkeypatch):
    declared = {"ever": "it once failed", "never": "always"}
    monkeypatch.setattr(variants.find("none"), "expected_failures", declared)
    code, out, _ = call("check", "none")
    assert code == 1
    assert "FAIL none: ever: so [passes, but is declared in expected_failures: it once" in out
    assert "ok   none: never: not today [expected failure: always]" in out


def test_what_pytorch_logs_during_a_check_is_not_printed(call, monkeypatch, caplog):
    log = logging.getLogger("torch.any")
    check = Check("none", "logs", lambda _: Outcome(bool(log.error("x")), "no"), lambda _: True)
    monkeypatch.setattr("zoo.conformance.CHECKS", (check,))
    assert call("check", "softmax")[0] == 1 and "x" not in caplog.messages
    log.error("after the command")
    assert caplog.messages[-1] == "after the command"


def test_a_task_is_checked_as_a_variant_is(call, rejected, tmp_path, monkeypatch):
    code, out, _ = call("check", "s3", "--set", "s3.train=30", "--json", "--fast")
    rows = json.loads(out)["rows"]
    assert code == 0 and {row["task"] for row in rows} == {"s3"}
    assert {"determinism", "distinct splits"} < {row["check"] for row in rows}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "leaking_task.py").write_text(
        "from tasks.synthetic.copying import Copying\n"
        "class Leaking(Copying):\n"
        "    def load(self, split):\n"
        "        return super().load('train')\n"
        "class Exits(Copying):\n"
        "    def load(self, split):\n"
        "        raise SystemExit(0)\n"
    )
    code, out, _ = call("check", "leaking_task:Leaking", "--only", "distinct splits")
    assert code == 1 and "FAIL Leaking: distinct splits: 100.0% of dev is in train" in out
    assert "'Exits' cannot be built (SystemExit: 0)" in rejected("check", "leaking_task:Exits")


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


def document(text):
    # Fails on a second document, and on numbers that are not of JSON.
    return json.loads(text, parse_constant=pytest.fail)


def test_a_document_is_alone_on_stdout_with_finite_numbers_and_no_control_character(capsys):
    content = {"a": [math.nan, -math.inf, Path("x"), 0.1, "\x1b[2J\x9b"]}

    def command(store: Path = Path("runs")) -> Answer:
        """Print the progress and the outcome."""
        print("progress")
        return Answer("a table\x1b", content, 3)

    app = typer.Typer()
    add_command(app, command)
    assert invoke(app, "x", []) == 3
    assert capsys.readouterr() == ("progress\na table\\x1b\n", "")
    assert invoke(app, "x", ["--json"]) == 3
    text, errors = capsys.readouterr()
    assert document(text)["a"] == [None, None, "x", 0.1, "\x1b[2J\x9b"] and errors == "progress\n"
    assert "\x1b" not in text


def test_a_report_gives_the_lines_of_its_csv_files_and_its_paths(call, store, tmp_path):
    for attention in ("softmax", "none"):
        store.write(make_record(attention))
        CostStore.within(store.folder).write(make_cost(attention, 256))
    code, text, err = call("report", "--out", str(tmp_path / "pages"), "--json")
    found = document(text)
    assert code == 0 and err.splitlines() == found["files"]
    assert all(Path(file).is_file() for file in found["files"])
    lines = [*csv.DictReader((tmp_path / "pages" / "cost.csv").read_text().splitlines())]
    assert len(lines) == len(found["costs"]) > 1
    for line, row in zip(lines, found["costs"], strict=True):
        assert line.keys() <= row.keys()
        numbers = {name: value for name, value in row.items()
                   if type(value) in (int, float) and name in line}  # fmt: skip
        assert len(numbers) > 2 and numbers == {name: float(line[name]) for name in numbers}
    lines = [*csv.DictReader((tmp_path / "pages" / "runs.csv").read_text().splitlines())]
    means = {row["row"]: row["mean"] for row in found["answers"]}
    assert {line["row"]: float(line["bidirectional.listops"]) for line in lines} == means
    assert {*means} == {"softmax", "none"} and found["answers"][0]["title"] == "listops"
