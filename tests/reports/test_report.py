"""`harness report` on a store of a suite."""

import json
import platform

import pandas as pd
import pytest

from harness import stores
from harness.cli import main
from harness.records import suites
from harness.records.results import TaskBaselines
from harness.records.store import BaselineStore, CostStore, Store
from tasks import BASELINES_VERSION
from tests.reports.conftest import ACCURACY, changed, make_cost, make_record, version_of_now


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
    in_store = "--store", str(store.folder)

    def run(*options):
        with pytest.raises(SystemExit) as ended:
            main(["report", *([] if "--store" in options else in_store), *options])
        return (ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def suite(tmp_path):
    return "--suite", str(tmp_path / "mine.toml")


@pytest.fixture
def built_in(monkeypatch, tmp_path):
    """Makes `mine` a suite that is built in."""
    monkeypatch.setattr(suites, "FOLDER", tmp_path)
    yield
    suites._built_in.cache_clear()


def answers_in(out):
    return {(line["row"], line["question"]): line for line in json.loads(out)["answers"]}


def test_a_report_writes_the_files_of_the_suites_that_are_named(call, suite, tmp_path):
    code, out, err = call(*suite, "--latex", "--out", str(tmp_path / "pages"))
    assert (code, err) == (0, "")
    names = {path.name for path in (tmp_path / "pages").iterdir()}
    of_suite = {"mine.md", "mine.csv", "mine-answers.csv", "mine.svg", "mine.png", "mine.tex"}
    assert of_suite | {"pairs.csv", "cost.md"} <= names and "runs.md" not in names
    # Later, without the option, the file is of the new records, and what a kill left is gone.
    (tmp_path / "pages" / "mine.tex").write_text("older")
    left = tmp_path / "pages" / f".mine.md.{platform.node()}.{2**22 + 1}.partial"
    left.write_text("")
    assert call(*suite, "--out", str(tmp_path / "pages"))[0] == 0
    assert (tmp_path / "pages" / "mine.tex").read_text() != "older" and not left.exists()
    pairs = pd.read_csv(tmp_path / "pages" / "pairs.csv").query("table == 'mine@1'")
    assert {*pairs["question"]} == {"recall", "copy"}
    assert "linear[chunk=8]" in out and "listops" not in out


def test_runs_with_changed_settings_are_another_question(call, suite_records, tmp_path, built_in):
    run, steps = suite_records[0], {"steps": 20, "warmup": 2}
    train = run.spec.train.model_copy(update=steps)
    name = "mqar@1, recipe mine@1/recall with train.steps=20, train.warmup=2"
    fields = {"name": name, "suite": "", "declared": "", "train": train, "grid": {}}
    question = run.spec.question.model_copy(update=fields)
    run = changed(run, "spec", question=question, values={}, role="")
    Store(tmp_path / "runs").write(run)
    code, out, err = call("--out", str(tmp_path / "pages"))
    page = (tmp_path / "pages" / "runs.md").read_text()
    assert (code, err) == (0, "") and "listops" in out
    assert "| mqar, recipe mine@1/recall, steps 20, warm-up steps 2 |" in page


def test_runs_of_a_user_are_among_published(call, suite_records, tmp_path, monkeypatch, built_in):
    monkeypatch.setattr(stores, "PUBLISHED", tmp_path / "runs")
    mine = Store(tmp_path / "other")
    for record in suite_records:
        if record.spec.attention == "softmax":
            fields = {"attention": "primal", "options": {"primal": {}}, "layers": ("primal",) * 2}
            versions = {"versions": {"primal": version_of_now("primal")}}
            mine.write(changed(record.model_copy(update=versions), "spec", **fields))
    asked = "--store", str(mine.folder), "--suite", "mine"
    rows = {row for row, _ in answers_in(call(*asked, "--json")[1])}
    assert rows == {"softmax", "primal", "linear[chunk=8]", "none"}
    out = call(*asked)[1]
    assert " ".join(out.split()).endswith("Your runs: primal; the others are published.")
    alone = answers_in(call(*asked, "--no-with-published", "--json")[1])
    assert {row for row, _ in alone} == {"primal"}
    assert call(*asked, "--compare", "primal,none")[0] == 0
    monkeypatch.setattr(stores, "PUBLISHED", tmp_path / "nowhere")
    assert call(*asked, "--with-published")[0] == 2


def test_variants_and_questions_are_filtered_after_all_are_compared(call, suite):
    every = answers_in(call(*suite, "--json")[1])
    options = "--attention", "primal,linear", "--questions", "recall", "--json"
    some = answers_in(call(*suite, *options)[1])
    assert {*some} == {("primal", "recall"), ("linear[chunk=8]", "recall")}
    assert all(line["rank_group"] == every[key]["rank_group"] for key, line in some.items())
    code, _, err = call(*suite, "--questions", "recal")
    assert code == 2 and "recall" in err


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
def test_a_suite_that_is_not_found_and_old_pages_are_warnings(call, tmp_path, unrendered):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "old-answers.csv").write_text("")
    code, _, err = call("--out", str(tmp_path / "pages"))
    assert code == 0 and "mine" in err and "--suite" in err
    assert "pages of old in" in err and "earlier report" in err
    assert not (tmp_path / "pages" / "mine.md").exists()
