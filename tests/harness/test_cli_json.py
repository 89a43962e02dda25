"""`--json`: one document on stdout, with the numbers of the table, and nothing else there."""

import csv
import json
import math
from pathlib import Path

import pytest
import typer

from harness.cli.process import Answer, add_command, invoke
from harness.records.store import CostStore
from tests.reports.conftest import make_cost, make_record


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
