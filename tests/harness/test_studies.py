"""The command `harness study`: records, pages, options and errors of every study."""

import json
from dataclasses import dataclass

import pandas as pd
import pytest

from harness import studies
from harness.records.results import StudyRecord, frame_of, table_of
from harness.records.store import StudyStore
from harness.studies import Section, Study, Table
from reports.store import write_study
from tests.harness.conftest import SMALL
from tests.reports.conftest import make_record

KEPT = ["--budget", "smoke", "--precision", "fp32", "--keep-checkpoints", *SMALL]

OPTIONS = {
    "ksvd": ["--dim", "8", "--tokens", "8", "--rank", "2", "--steps", "2", "--seeds", "0,1",
             "--losses", "ksvd,task", "--traces", "data"],
    "spectrum": ["--samples", "2"],
}  # fmt: skip


@pytest.fixture
def trained(output, store) -> str:
    # A run with saved weights.
    output("run", "-a", "softmax+primal", "--no-cost", *KEPT)
    (path,) = store.folder.glob("*.json")
    return path.stem


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", studies.names())
def test_a_study_computes_once_and_writes_its_page_its_table_and_its_figure(
    output, store, request, monkeypatch, name
):
    if name == "spectrum":
        request.getfixturevalue("trained")
    out = output("study", name, *OPTIONS.get(name, ()), "--json")
    document = json.loads(out)
    files = {path.name for path in store.folder.glob("[a-z]*.*") if path.suffix != ".json"}
    assert files == {f"{name}.{kind}" for kind in ("md", "csv", "png", "svg")}
    (record,), broken = StudyStore.within(store.folder).read()
    assert [*document["rows"][0]] == [*record.table] and not broken
    assert len(pd.read_csv(store.folder / f"{name}.csv")) == len(document["rows"])
    path = StudyStore.within(store.folder).path(record.spec)
    before = path.stat().st_mtime_ns
    output("study", name, *OPTIONS.get(name, ()))
    assert path.stat().st_mtime_ns == before
    if name == "ksvd":  # takes the least time
        output("study", name, *OPTIONS[name], "--rerun")
        assert path.stat().st_mtime_ns > before
    if name != "spectrum":  # which is of runs, and these are of the code of now
        before = path.stat().st_mtime_ns
        other = {"primal": "0"}
        monkeypatch.setattr(f"harness.studies.{name}.majors_of", lambda names: other)
        output("study", name, *OPTIONS.get(name, ()))
        assert path.stat().st_mtime_ns > before


@pytest.mark.slow
def test_the_studies_of_a_trained_model_are_of_its_layers(output, trained, store):
    out = output("study", "ksvd", "--run", trained, "--json")
    rows = pd.DataFrame(json.loads(out)["rows"])
    assert set(rows["inputs"]) == {"listops softmax+primal, layer 2"} and rows["step"].min() == 0
    # The run was repeated after its study.
    (record,) = [r for r in StudyStore.within(store.folder).read()[0] if r.spec.study == "ksvd"]
    old = record.model_copy(update={"started": "2000-01-01T00:00:00+00:00"})
    path = StudyStore.within(store.folder).write(old)
    output("study", "ksvd", "--run", trained)
    assert "2000-01-01" not in path.read_text("utf-8")


def test_other_options_replace_the_result_of_the_same_subject(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Count(Study):
        name, head = "count", "# Count\n"
        number: int

        def tables(self, store):
            rows = [{"of": "all", "number": n, "mean": (n / 3)} for n in range(self.number)]
            return [Table("numbers", {"number": self.number}, lambda: rows)]

        @classmethod
        def sections(cls, frame):
            yield Section("a|b", frame.assign(range=[(1.0, 0.5, 2.0)] * len(frame)), "text <b>")

        @classmethod
        def panels(cls, frame):
            return ()

    for number in (2, 3):
        rows, _ = write_study(Count(number=number, store=tmp_path))
        assert len(rows) == number
    page = (tmp_path / "count.md").read_text("utf-8")
    assert page.startswith(
        "# Count\n\n## a&#124;b\n\ntext &lt;b&gt;\n\n| of | number | mean | range |"
    )
    assert page.endswith("| all | 2 | 0.667 | 1.00 [0.500, 2.00] |\n")
    assert len(StudyStore.within(tmp_path).read()[0]) == 1


def test_a_table_has_a_value_once_that_all_rows_have():
    rows = [{"a": "x", "b": 1, "c": None}, {"a": "x", "b": 2, "c": 0.5}]
    table = table_of(rows)
    assert table == {"a": "x", "b": (1, 2), "c": (None, 0.5)}
    spec = {"study": "s", "subject": "t", "options": {}}
    shared = {"spec": spec, "started": "2026-11-25T00:00:00+00:00", "environment": None}
    assert frame_of([StudyRecord(table=table, **shared)] * 2)["a"].tolist() == ["x"] * 4
    assert table_of(rows[:1]) == {"a": ("x",), "b": (1,), "c": (None,)}
    for wrong in ({"a": (1, 2), "b": (1,)}, {"a": 1}):
        with pytest.raises(ValueError, match="no length, or several"):
            StudyRecord(table=wrong, **shared)


def test_a_run_without_weights_or_with_a_damaged_record_is_rejected(rejected, store):
    path = store.write(make_record("none"))
    assert f"run '{path.stem}' has no saved weights" in rejected("study", "spectrum", path.name)
    folder = store.folder / "weights" / path.stem
    folder.mkdir(parents=True)
    (folder / "step-00000000.pt").touch()
    path.write_text("{}")
    assert "is not a record" in rejected("study", "spectrum", path.name)
