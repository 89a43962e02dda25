"""`harness report` on a store of a suite."""

import csv

import pytest

from harness.cli import main
from harness.records.baselines import TaskBaselines
from harness.records.store import BaselineStore, CostStore, Store
from tasks import BASELINES_VERSION
from tests.reports.conftest import ACCURACY, make_cost, make_record


@pytest.fixture
def call(suite_records, tmp_path, capsys):
    """Runs `harness report` on the records of a suite and on another; its code and output."""
    store = Store(tmp_path / "runs")
    for record in [*suite_records, *(make_record(seed=seed) for seed in (0, 1))]:
        store.write(record)
    for spec in {record.spec.task.name: record.spec.task for record in suite_records}.values():
        rules = TaskBaselines(
            spec=spec, version=BASELINES_VERSION, metric=ACCURACY, scores={"rule": 30.0},
            started=suite_records[0].started, environment=suite_records[0].environment,
        )  # fmt: skip
        BaselineStore.within(store.folder).write(rules)
    for length in (256, 512, 1024):
        CostStore.within(store.folder).write(make_cost("primal", length))

    def run(*options):
        with pytest.raises(SystemExit) as ended:
            main(["report", "--store", str(store.folder), *options])
        return (ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def suite(tmp_path):
    return "--suite", str(tmp_path / "mine.toml")


def test_a_report_writes_the_files_of_a_suite_and_leaves_its_runs_out_of_leaderboards(
    call, suite, tmp_path
):
    code, out, err = call(*suite, "--latex", "--out", str(tmp_path / "pages"))
    assert (code, err) == (0, "")
    names = {path.name for path in (tmp_path / "pages").iterdir()}
    of_suite = {"mine.md", "mine.csv", "mine-answers.csv", "mine.svg", "mine.png", "mine.tex"}
    assert of_suite | {"leaderboard.md", "pairs.csv", "cost.md"} <= names
    assert "mine@1" not in (tmp_path / "pages" / "leaderboard.md").read_text()
    with (tmp_path / "pages" / "pairs.csv").open() as file:
        pairs = [line for line in csv.DictReader(file) if line["table"] == "mine@1"]
    assert {line["question"] for line in pairs} == {"recall", "copy"}
    assert "linear[chunk=8]" in out and "listops" in out


def test_two_rows_are_compared_without_a_file(call, suite, tmp_path):
    code, out, err = call(*suite, "--compare", "softmax,primal")
    assert (code, err) == (0, "") and not (tmp_path / "runs" / "pairs.csv").exists()
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["mine@1,", "recall", "+27.9"], ["mine@1,", "copy", "-1.72"],
    ]  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("rows", ["softmax,primall", "softmax", "softmax,softmax", "a,b,c"])
def test_what_is_no_pair_of_rows_is_rejected(call, suite, rows):
    code, out, err = call(*suite, "--compare", rows)
    assert code == 2 and out == "" and err.count("\n") == 1


@pytest.mark.filterwarnings("always")
def test_a_suite_that_is_not_found_is_a_warning(call, tmp_path, unrendered):
    code, _, err = call("--out", str(tmp_path / "pages"))
    assert code == 0 and "mine" in err and "--suite" in err
    assert not (tmp_path / "pages" / "mine.md").exists()
