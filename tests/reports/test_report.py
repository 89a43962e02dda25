"""`harness report` on a store of a suite."""

import json
import platform
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pandas as pd
import pytest

from harness import stores
from harness.cli import main
from harness.records import suites
from harness.records.results import TaskBaselines
from harness.records.spec import flags_of
from harness.records.store import BaselineStore, CertificateStore, CostStore, Store
from reports.incomplete import as_typed
from reports.pages.suite import terminal
from reports.store import matrix_of
from tasks import BASELINES_VERSION
from tests.certificates import committed
from tests.reports.conftest import ACCURACY, changed, make_cost, make_record, version_of_now

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture
def call(suite_records, tmp_path, capsys):
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
    monkeypatch.setattr(suites, "FOLDER", tmp_path)
    yield
    suites._built_in.cache_clear()


def answers_in(out):
    return {(line["row"], line["question"]): line for line in json.loads(out)["answers"]}


def test_a_report_writes_the_files_of_the_suites_that_are_named(call, suite, tmp_path):
    pages = tmp_path / "pages"
    code, out, err = call(*suite, "--latex", "--out", str(pages))
    assert (code, err) == (0, "")
    names = {path.name for path in pages.iterdir()}
    of_suite = {"mine.md", "mine.csv", "mine-answers.csv", "mine.svg", "mine.png", "mine.tex"}
    assert of_suite | {"pairs.csv", "cost.md"} <= names and "runs.md" not in names
    # Later, without the option, the file is of the new records, and what a kill left is gone.
    (pages / "mine.tex").write_text("older")
    left = pages / f".mine.md.{platform.node()}.{2**22 + 1}.partial"
    left.write_text("")
    assert call(*suite, "--out", str(pages))[0] == 0
    assert (pages / "mine.tex").read_text() != "older" and not left.exists()
    pairs = pd.read_csv(pages / "pairs.csv").query("table == 'mine@1'")
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


def test_variants_and_questions_are_filtered_after_all_are_compared(
    call, suite, suite_records, tmp_path
):
    every = answers_in(call(*suite, "--json")[1])
    options = "--attention", "primal,linear", "--questions", "recall", "--json"
    some = answers_in(call(*suite, *options)[1])
    assert {*some} == {("primal", "recall"), ("linear[chunk=8]", "recall")}
    assert all(line["rank_group"] == every[key]["rank_group"] for key, line in some.items())
    code, _, err = call(*suite, "--questions", "recal")
    assert code == 2 and "recall" in err
    # The name of a row is that row alone.
    for record in suite_records:
        if record.spec.attention == "linear":
            plain = {"options": {"linear": {}}, "overrides": {}}
            Store(tmp_path / "runs").write(changed(record, "spec", **plain))
    for name in ("linear", "linear[chunk=8]"):
        assert {row for row, _ in answers_in(call(*suite, "-a", name, "--json")[1])} == {name}


def test_published_rows_are_compared_without_a_store_unless_one_is_named(
    call, tmp_path_factory, monkeypatch
):
    folder = tmp_path_factory.mktemp("empty")
    monkeypatch.chdir(folder)
    asked = "--suite", "laptop", "--compare", "gated-delta,delta"
    code, out, _ = call(*asked, "--store", "runs")
    assert code == 0 and "gated-delta" in out and not [*folder.iterdir()]
    code, _, err = call(*asked, "--store", "nowhere")
    assert code == 2 and "nowhere" in err


def test_two_rows_are_compared_without_a_file(call, suite, tmp_path):
    code, out, err = call(*suite, "--compare", "softmax,primal")
    assert (code, err) == (0, "") and not (tmp_path / "runs" / "pairs.csv").exists()
    lines = [line.split()[:2] for line in out.splitlines()[1:]]
    assert lines == [["recall", "+27.9"], ["copy", "-1.72"]]
    more = "--compare", "softmax,primal", "--compare", "softmax,none", "--questions", "copy"
    several = call(*suite, *more)[1]
    assert "copy" in several and "recall" not in several and "for claims together" in several
    for rows in ("softmax,primall", "softmax", "softmax,softmax"):
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


@pytest.fixture
def mine(call, suite_records, tmp_path, monkeypatch, built_in):
    """Options for two of three seeds of a class on recall, beside the published runs."""
    monkeypatch.setattr("reports.figures.style.images", lambda *_: {})
    monkeypatch.setattr(stores, "PUBLISHED", tmp_path / "runs")
    mine = Store(tmp_path / "mine")
    for record in suite_records:
        if (record.spec.attention, record.spec.question.name) == ("softmax", "recall"):
            fields = {"attention": "Mine", "options": {"Mine": {}}, "layers": ("Mine",) * 2}
            of_class = record.model_copy(update={"versions": {"Mine": "sha256:1"}})
            if record.spec.seed != 3:
                mine.write(changed(of_class, "spec", **fields))
    return "--store", str(mine.folder), "--suite", "mine"


def test_a_run_of_a_suite_ends_with_its_rows_beside_the_published_softmax(call, mine):
    of = matrix_of(suites.find("mine"), Path(mine[1]), "mine")
    assert {*of.answers["row"]} == {"Mine", "softmax"} and of.added == ("Mine", "softmax")
    assert "No baselines" not in terminal(of) and [*of.marks] == ["Mine"]


def notes_in(out):
    return re.findall(r"(?:\* |No run of )Mine.*", " ".join(out.split()))


def test_a_row_that_lacks_seeds_or_checks_is_marked_with_the_command_that_makes_them(call, mine):
    store = mine[1]
    command = f"harness run --suite mine --questions recall --store {store} --attention MODULE:Mine"
    code, out, _ = call(*mine, "--attention", "Mine,primal", "--questions", "recall")
    lines = out.splitlines()
    assert code == 0 and "Mine *     98.0 2 of 3 seeds" in lines and "primal     70.2" in lines
    at = lines.index("* Mine lacks recall: 2 of 3 seeds; no checks. Complete it:")
    assert lines[at + 1].strip() == command
    missing = {row: of["missing"] for (row, _), of in answers_in(call(*mine, "--json")[1]).items()}
    assert {row for row, text in missing.items() if text} == {"Mine"}
    certificate = committed()["softmax"].model_copy(
        update={"variant": "Mine", "version": "sha256:1"}
    )
    certificates = CertificateStore.within(Path(store))
    for changes, marks in (({"partial": True}, 1), ({"version": "sha256:2"}, 1), ({}, 0)):
        certificates.write(certificate.model_copy(update=changes))
        assert call(*mine)[1].count("no checks") == marks
    notes = notes_in(call(*mine, "--questions", "recall,copy")[1])
    assert notes[0].startswith("* Mine lacks recall: 2 of 3 seeds; copy: not run. Complete it")


def test_a_variant_that_is_named_is_never_left_out_without_a_word(call, mine, monkeypatch):
    out = call(*mine, "--attention", "Mine,primal", "--questions", "copy")[1]
    assert notes_in(out)[0].startswith("No run of Mine; make them: harness run --suite mine --qu")
    out = call(*mine, "--attention", "primal,yoso")[1]
    assert "No run of yoso; make them: harness run --suite mine" in " ".join(out.split())
    assert call(*mine, "--attention", "yoso")[0] == call(*mine, "--attention", "primal,x")[0] == 2
    points = [EntryPoint("Mine", "my.module:Mine", "zoo.variants")]
    monkeypatch.setattr("reports.store.entry_points", lambda group: points)
    assert notes_in(call(*mine)[1])[0].endswith("--attention my.module:Mine")
    assert as_typed("conv+A-b+A", {"A": "m:A"}) == "conv+MODULE:A-b+m:A"
    flags = flags_of("A[match=parameters,rank=8]", "m:A")
    assert flags == "--attention m:A --match parameters --set A.rank=8"


def test_a_comparison_gives_the_seeds_and_sizes_of_both(call, mine, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_VARIANTS", "")
    monkeypatch.syspath_prepend(tmp_path)
    source = "from zoo.variants.none import NoAttention\nclass Mine(NoAttention):\n    pass\n"
    (tmp_path / "own_mine.py").write_text(source)
    (note,) = notes_in(call(*mine, "--compare", "primal,own_mine:Mine")[1])
    assert note.startswith("* Mine lacks recall: 2 of 3") and note.endswith("own_mine:Mine")
    out = call(*mine, "--compare", "Mine,primal")[1]
    (line,) = (line for line in out.splitlines() if line.startswith("recall "))
    assert line.split()[-9:] == ["2", "/", "3", "123,456", "/", "123,456", "–", "/", "–"]
    assert notes_in(out)[0].startswith("* Mine lacks recall: 2 of 3 seeds")
    (of,) = json.loads(call(*mine, "--compare", "primal,Mine", "--json")[1])
    assert (of["seeds.first"], of["seeds.second"], of["parameters.second"]) == (3, 2, 123_456)
