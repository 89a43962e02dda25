"""The page of findings: which published accuracies a shallow model reaches."""

import pytest

from harness.records.baselines import ShallowModel, ShallowStudy, read_studies, write_study
from harness.records.record import Environment
from reports.pages.findings import REFERENCE, explain, findings
from zoo.registry import UserError


def study(*tests, task="listops@1[test=60000]", size=2000):
    """Models `first 1 token` and so on, with these test accuracies."""
    names = [model for name, model in REFERENCE if name == "listops"]
    models = tuple(
        ShallowModel(name=name, dev=test, test=test, seconds=1.0)
        for name, test in zip(names, tests, strict=False)
    )
    environment = Environment(
        device="a CPU", threads=1, memory_gib=1.0, system="Linux", versions={}, commit="abc"
    )
    return ShallowStudy(
        task=task, sizes={"train": 10, "dev": 10, "test": size}, models=models,
        digests={"train": "a", "dev": "b", "test": "c"}, started="2026-01-01T00:00:00+00:00",
        environment=environment,
    )  # fmt: skip


def test_a_published_accuracy_has_the_simplest_model_whose_interval_reaches_it():
    reached = explain(study(0.2, 0.366, 0.7)).set_index("attention")["model"]
    # 20.0 of 2,000 ends at 21.8; 36.6 at 38.7.
    assert reached["performer"] == reached["reformer"] == "first 1 token"
    assert reached["softmax"] == reached["primal"] == "first 2 tokens"
    assert {*explain(study(0.1))["model"]} == {"none"}


def test_a_larger_test_split_reaches_less():
    small, large = (explain(study(0.366, size=size)) for size in (2000, 60_000))
    assert small["model"].iloc[-1] != "none" == large["model"].iloc[-1]


def test_only_accuracies_on_the_version_of_the_task_are_explained():
    assert explain(study(0.9, task="listops@2")).empty


@pytest.mark.parametrize(("accuracy", "agrees"), [(0.364, "yes"), (0.34, "yes"), (0.30, "no")])
def test_a_figure_agrees_where_both_intervals_overlap(accuracy, agrees):
    (line,) = (row for row in findings([study(accuracy)]).splitlines() if "| 36.4 |" in row)
    assert f"| {agrees} |" in line


def test_the_records_of_studies_are_read_as_they_were_written(tmp_path):
    one = study(0.3, 0.4)
    assert write_study(tmp_path, one).name == "listops.json"
    assert read_studies(tmp_path) == [one]
    (tmp_path / "text.json").write_text("{}")
    with pytest.raises(UserError, match=r"text.json is not a record of shallow models"):
        read_studies(tmp_path)
