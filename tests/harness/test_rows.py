"""A row of a suite as one file: packed from a store, verified, and trained again."""

import json
import math
import shutil
from dataclasses import replace

import pytest

from harness import rows
from harness.records import suites
from harness.records.answers import CorrectAnswers
from harness.records.files import file_lines, line_of
from harness.records.record import Record
from harness.records.store import CertificateStore, CostStore, Store
from tests.certificates import committed
from tests.harness.test_suites import SUITE
from tests.reports.conftest import make_cost, make_record

ROW = "primal[rank=8]"
PACK = ("pack", "--suite", "mine", "--attention", ROW)


@pytest.fixture(autouse=True)
def suite(tmp_path, monkeypatch):
    # Without costs.
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "mine.toml").write_text(f'published = ["A paper"]\n{SUITE}')
    monkeypatch.setattr(suites, "FOLDER", tmp_path / "suites")
    suites._built_in.cache_clear()
    yield
    suites._built_in.cache_clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("made") / "runs"


@pytest.fixture
def runs(made, store, output) -> Store:
    if not made.exists():
        arguments = ("run", "--suite", "mine", "--attention", "primal", "--no-cost")
        output(*arguments, "--threads", "1")
        shutil.copytree(store.folder, made)
    shutil.copytree(made, store.folder, dirs_exist_ok=True)
    return store


@pytest.fixture
def packed(runs, output, tmp_path):
    output(*PACK, "--out", str(tmp_path / "out"))
    return tmp_path / "out" / "mine@3" / "primal-rank-8.jsonl"


def rewrite(path, change, select=lambda number, line: number == 0) -> None:
    # Under the name and with a checksum of the new content.
    texts = []
    for number, line in enumerate(file_lines(path)):
        tree = json.loads(line.text)
        if select(number, line.text):
            change(tree)
        record = Record.model_validate(tree)
        texts.append(line_of("run", record.spec.file_name, record.model_dump_json()))
    path.write_text("".join(texts))


def results(call, path, *options) -> dict[str, bool]:
    code, out, err = call("check", str(path), "--json", *options)
    found = {row["check"].partition(" ")[0]: row["passed"] for row in json.loads(out)["rows"]}
    assert err == "" or "ok" in err
    assert code == (not all(found.values()))
    return found


def test_a_packed_row_has_its_runs_and_passes_every_check(packed, store, call):
    assert {line.name for line in file_lines(packed)} == {*store.entries()}
    assert Store(packed.parents[1]).read() == store.read()
    assert results(call, packed, "--repeat", "2") == dict.fromkeys(
        ("questions", "data", "row", "complete", "code", "costs", "certificate", "repeat"), True
    )


def test_costs_and_certificates_of_the_row_are_in_its_file(runs, store, output, tmp_path):
    cost = make_cost("primal", 256)
    spec = cost.spec.model_copy(update={"overrides": {"primal.rank": 8}})
    CostStore.within(store.folder).write(cost.model_copy(update={"spec": spec}))
    CostStore.within(store.folder).write(make_cost("primal", 512))
    for name in ("primal", "softmax"):
        CertificateStore.within(store.folder).write(committed()[name])
    out = tmp_path / "out"
    output(*PACK, "--out", str(out))
    lines = file_lines(out / "mine@3" / "primal-rank-8.jsonl")
    certificate, cost, *kinds = (line.kind for line in lines)
    assert (certificate, cost, {*kinds}) == ("certificate", "cost", {"run"}) and len(kinds) >= 8
    assert [*CertificateStore.within(out).by_variant()] == ["primal"]


@pytest.mark.parametrize(
    ("role", "which"), [("trial", "grid"), ("trial", "beyond"), ("final", "grid")]
)
def test_a_row_that_lacks_a_run_is_not_packed(role, which, packed, store, rejected, call):
    runs = [run for run in store.read()[0] if run.spec.role == role]
    # The trial of the last rate beyond the grid, or a run at a rate of the grid.
    far = {run.spec.id: abs(math.log(run.spec.train.lr / 3e-3)) for run in runs}
    run = sorted(runs, key=lambda run: far[run.spec.id])[-1 if which == "beyond" else 0]
    store.path(run.spec).unlink()
    before = packed.read_bytes()
    assert "is not complete, it lacks" in rejected(*PACK, "--out", str(packed.parents[1]))
    assert packed.read_bytes() == before
    lines = (line for line in file_lines(packed) if line.name != run.spec.file_name)
    packed.write_text("".join(line_of(*line[2:5]) for line in lines))
    assert [check for check, passed in results(call, packed).items() if not passed] == ["complete"]
    assert "has no run of row 'linformer' of mine@3" in rejected(*PACK[:-1], "linformer")
    assert "give both" in rejected(*PACK[:3])


@pytest.mark.parametrize(
    ("forms", "complete"), [(["Mine"], True), (["Mine", "Mine, causal"], False)]
)
def test_a_row_that_is_not_installed_has_the_forms_of_its_certificate(forms, complete, runs):
    # One question is causal, and the row has no run of it.
    row, primal = rows.of_store(suites.find("mine"), ROW, runs.folder, ""), committed()["primal"]
    changes = {"attention": "Mine", "layers": ("Mine",), "options": {}, "overrides": {}}
    own = [run.model_copy(update={"spec": run.spec.model_copy(update=changes)})
           for run in row.runs if run.spec.question.name == "hard"]  # fmt: skip
    checks = tuple(primal.results[0].model_copy(update={"form": form}) for form in forms)
    certificate = primal.model_copy(update={"variant": "Mine", "results": checks})
    found = rows.verify(replace(row, label="Mine", runs=own, certificates=[certificate]))
    assert {of.check: of.passed for of in found}["complete"] == complete


@pytest.mark.parametrize(("check", "change"), [
    ("questions", lambda run: run["spec"]["question"].update(declared="0" * 16)),
    ("data", lambda run: run["spec"]["data"].update(train="0" * 64)),
    ("code", lambda run: run["versions"].update(primal="0.0")),
])  # fmt: skip
def test_a_run_of_another_question_data_or_code_is_noticed(check, change, packed, call):
    rewrite(packed, change)
    assert not results(call, packed)[check]


def test_a_score_that_training_does_not_give_is_noticed(packed, call):
    def perfect(run) -> None:
        sample = CorrectAnswers.model_validate(run["final"]["sample"])
        sizes = [size for size, count in sample.clusters for _ in range(count)]
        run["final"]["sample"] = CorrectAnswers.pack([True] * sample.count, sizes).model_dump()
        run["final"]["score"] = 100.0

    rewrite(packed, perfect, lambda number, text: '"role":"final"' in text)
    found = results(call, packed, "--repeat", "2")
    assert [check for check, passed in found.items() if not passed] == ["repeat"]


@pytest.mark.parametrize(("commit", "right", "passed"), [
    ("abc1234", range(30), True), ("abc1234", range(10, 40), False),
    ("def5678", range(10, 40), True), ("def5678", range(30, 40), False),
])  # fmt: skip
def test_answers_are_equal_at_one_commit_and_in_the_interval_at_others(
    monkeypatch, commit, right, passed
):
    def of(commit, right):
        return make_record(commit=commit, correct=[number in right for number in range(40)])

    monkeypatch.setattr(rows, "run", lambda *_: of("abc1234", range(30)))
    assert rows._repeated(of(commit, right)).passed == passed


def test_a_cost_of_another_row_and_missing_costs_are_noticed(packed, call, tmp_path):
    record = make_cost("softmax", 256)
    text = line_of("cost", record.spec.file_name, record.model_dump_json())
    packed.write_text(text + packed.read_text())
    (tmp_path / "suites" / "mine.toml").write_text(SUITE)
    suites._built_in.cache_clear()
    found = results(call, packed)
    assert [check for check, passed in found.items() if not passed] == ["row", "costs"]


def test_a_file_that_is_not_a_row_is_rejected(packed, rejected):
    text = packed.read_text()
    other = packed.with_name("other.jsonl")
    for path, content, message in (
        (packed, "{}\n", "line 1: it is not a line of a record"), (packed, "", "(it is empty)"),
        (packed, text.replace("0", "1", 1), "it was edited"),
        (packed, line_of("study", "x", "{}"), "is a study; a row has run, cost"),
        (other, text, "name it mine@3/primal-rank-8.jsonl"),
    ):  # fmt: skip
        path.write_text(content)
        assert message in rejected("check", str(path))
    other.unlink()
    assert "(it cannot be read: No such file or directory)" in rejected("check", str(other))


def test_a_store_that_is_packed_into_itself_has_lines_in_place_of_files(runs, store, output):
    before, folder = store.read(), str(store.folder)
    CostStore.within(store.folder).write(make_cost("softmax", 256))
    output("pack", "--out", folder)
    assert not [*store.folder.rglob("*.json")] and store.read() == before
    again = before[0][0].model_copy(update={"started": "2026-01-02T00:00:00+00:00"})
    store.write(again)
    output("pack", "--out", folder)
    assert store.read()[0] == [again, *before[0][1:]]
    costs = CostStore.within(store.folder).read()[0]
    assert [cost.spec.attention for cost in costs] == ["softmax"]
