"""docs/add_a_task.md: its examples run."""

import csv
import re
import shlex
from pathlib import Path

import pytest

from harness.cli import main
from tasks.baselines import compute
from tasks.conformance import Subject, checks_for, run
from tasks.contract import SPLITS

PAGE = (Path(__file__).parents[2] / "docs" / "add_a_task.md").read_text("utf-8")
EXAMPLES = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Path("my.csv").open("w", newline="") as file:
        rows = [(f"{'fine' if i % 2 else 'poor'} film, {i}", "ab"[i % 2]) for i in range(600)]
        csv.writer(file).writerows([("text", "label"), *rows])


def test_the_table_example_prints_its_first_text(table, capsys):
    exec(EXAMPLES[1][1], {})
    assert capsys.readouterr().out == "480 2 a ['poor film, 0']\n"


def test_the_own_task_has_splits_and_baselines():
    namespace = {"__name__": "my_package"}
    exec(EXAMPLES[2][1], namespace)
    task = namespace["Repeated"](train=500)
    assert task.options == {"max_len": 32, "train": 500, "dev": 200, "test": 200, "seed": 0}
    splits = {name: task.load(name) for name in SPLITS}
    assert [len(split) for split in splits.values()] == [500, 200, 200]
    assert compute(task, splits).keys() > {"majority", "bag of tokens"}
    for name in ("Repeated", "RepeatedSoFar"):
        subject = Subject(name, namespace[name], {"train": 500})
        results = [run(check, subject) for check in checks_for(subject, fast=True)]
        assert len(results) > 5 and [r.check for r in results if not r.passed] == []


# Without trials of precisions and of implementations of softmax.
SHORTER = (
    "--store results --no-cost --set table.max_len=64 --precision fp32 --set softmax.backend=sdpa"
)


@pytest.mark.slow
def test_the_command_writes_a_record_of_each_variant(table):
    language, command = EXAMPLES[0]
    assert language == "bash"
    with pytest.raises(SystemExit) as end:
        main([*shlex.split(command)[1:], *shlex.split(SHORTER)])
    assert end.value.code == 0
    assert len(list(Path("results").glob("table-*.json"))) == 2
