"""Published numbers: results, costs and shallow models beside them."""

import hashlib
from importlib import resources

import pandas as pd
import pytest

from harness.records.frame import of_costs
from harness.records.results import ShallowModel, ShallowStudy
from harness.records.suites import find
from reports import papers
from reports.pages.findings import REFERENCE, explain, findings
from reports.papers import means, published, results, section
from tests.reports.conftest import changed, make_cost, make_record, snapshot

DIGESTS = {
    "d4rl_return.csv": "90235261101b9797", "lra_accuracy.csv": "0e1b18f435e623fb",
    "lra_cost.csv": "5efd4c9f39c233b9", "mad_accuracy.csv": "7e6e2d688315dc72",
    "mechanisms.csv": "00c531e24612b300", "uea_accuracy.csv": "89d57c4ea4789050",
}  # fmt: skip
"""Of tables that were compared with their papers, line by line; two averages of Chen et al. are
misprinted."""

LRA = find("chen2023-lra")


def test_the_published_tables_are_those_that_were_compared_with_the_paper():
    folder = resources.files("reports").joinpath("published")
    files = [file for file in folder.iterdir() if file.name.endswith(".csv")]
    assert {of.name: hashlib.sha256(of.read_bytes()).hexdigest()[:16] for of in files} == DIGESTS


@pytest.mark.parametrize(("key", "attention", "expected"), [
    ("text@3", "softmax", {"%": "65.0", "s/1K steps": "694.8", "GB": "21.24"}),
    ("retrieval@1", "softmax+primal", {"%": "81.0", "s/1K steps": "546.5", "GB": "18.59"}),
    ("image@1", "yoso", {"%": "39.8"}),
    ("uea-pems-sf@1", "softmax+primal", {"%": "90.2"}),
    ("text@3[max_len=512]", "softmax", {}), ("text@1", "softmax", {}),
    ("text@3", "softmax-lib", {}),
])  # fmt: skip
def test_published_numbers_belong_to_the_published_task_and_variant_alone(key, attention, expected):
    found = published(task=key, attention=attention)
    found = found[found["reference"].str.startswith("Chen")]
    assert dict(zip(found["unit"], found["printed"], strict=True)) == expected


def beside(*answers, suite=LRA, key="{}@1"):
    """The results of runs: question, attention, mean and half the width of its interval."""
    found = pd.DataFrame(answers, columns=["question", "row", "mean", "half"])
    found = found.assign(
        attention=found["row"], low=found["mean"] - found["half"], seeds=1, status="ok",
        high=found["mean"] + found["half"], text=found["mean"].astype(str), interval="[a, b]",
    )  # fmt: skip
    runs = found[["question", "row"]].assign(
        task=found["question"].map(key.format), status="ok", best_on_test=found["mean"] + 1
    )
    return results(found, runs, suite)


# 37.3 was printed, for 37.25 to 37.35.
@pytest.mark.parametrize(("mean", "position"), [
    (35.2, "within"), (35.1, "above"), (39.4, "within"), (39.5, "below"),
])  # fmt: skip
def test_the_published_number_is_within_above_or_below_the_interval(mean, position):
    (line,) = beside(("listops", "primal", mean, 2.1)).to_dict("records")
    assert (line["published"], line["published_is"]) == (37.3, position)
    assert line["best_on_test"] == mean + 1


@pytest.mark.parametrize(("key", "table"), [("{}@2", "lra"), ("{}@1", "series")])
def test_another_task_or_table_has_no_published_number(key, table):
    found = beside(("listops", "primal", 40.0, 1.0), suite=find(f"chen2023-{table}"), key=key)
    assert found["published"].isna().all() and found["published_is"].tolist() == [""]


def test_of_several_sources_the_first_one_that_has_a_number_counts():
    suite = LRA.model_copy(update={"published": ("Of nothing, Table 1", *LRA.published)})
    (line,) = beside(("listops", "primal", 40.0, 1.0), suite=suite).to_dict("records")
    assert (line["published"], line["published_in"]) == (37.3, LRA.published[0])
    assert "published in" not in section(beside(("listops", "primal", 40.0, 1.0)), LRA)
    # Two numbers of the second table have this task and variant, too.
    others = find("chen2023-cost").published
    both = suite.model_copy(update={"published": (*LRA.published, *others)})
    found = beside(("listops", "primal", 40.0, 1.0), suite=both)
    text = section(found, both)
    assert f"| 37.3 | below | {LRA.published[0]} |" in text
    assert all(name in text for name in both.published)


def test_means_are_over_the_questions_that_have_both_or_over_a_whole_table():
    listops = ("listops", "primal", 40.0, 1.0)
    # 43.0 was published for image.
    (mean,) = means(beside(listops, ("image", "primal", 50.0, 1.0)), LRA).to_dict("records")
    assert mean == {"questions": 2, "here": 45.0, "published": pytest.approx((37.3 + 43.0) / 2)}
    assert means(beside(listops), LRA).empty
    suite = find("chen2023-d4rl")
    lines = [(question.name, "softmax", 70.0, 1.0) for question in suite.questions]
    (mean,) = means(beside(*lines, suite=suite), suite).to_dict("records")
    assert mean == {"questions": 9, "here": 70.0, "published": 72.2}
    assert means(beside(*lines[1:], suite=suite), suite).empty


def test_the_page_has_every_result_and_the_questions_without_runs():
    text = section(beside(("listops", "primal", 40.0, 1.0), ("image", "softmax", 50.0, 1.0)), LRA)
    assert "| listops | primal | 1 | 40.0 [a, b] | 41.0 | 37.3 | below |" in text
    assert "| image | softmax | 1 | 50.0 [a, b] | 51.0 | 38.2 | below |" in text
    assert "for want of data or time: Text, Retrieval, Pathfinder." in text


COST = find("chen2023-cost")
NAIVE, SDPA = ({"softmax": {"backend": kind}} for kind in ("naive", "sdpa"))


def cost(attention="primal", seconds=0.0113, ratio: float | None = 0.5, reference="sdpa", **spec):
    record = make_cost(attention, 2000, seconds=seconds, ratio=ratio or 1.0, batch=32, **spec)
    if record.measured is None:
        return record
    changes = {"reference": reference, "peak_bytes": 10**9, "memory_ratio": 2.0}
    nothing = {"ratio": None, "memory_ratio": None, "reference": ""}
    without = {} if ratio else {**nothing, "no_ratio": "softmax is out of memory"}
    return changed(record, "measured", **changes | without)


def naive(**changes):
    return cost("softmax", **{"seconds": 0.2, "ratio": 4.0, "options": NAIVE, **changes})


def steps(*costs, task="listops@1", others=()):
    """The costs beside published ones; the first is of softmax by its formula."""
    names = [cost.spec.attention for cost in costs]
    wanted = pd.DataFrame({
        "question": "listops", "row": ["softmax[backend=naive]", *names[1:]], "attention": names,
        "task": task, "shape": [cost.spec.shape for cost in costs],
    })  # fmt: skip
    return papers.step_costs(wanted, of_costs([*costs, *others]))


# Two ratios to one softmax are divided, those to two are not.
@pytest.mark.parametrize(("reference", "expected"), [("sdpa", 0.125), ("naive", 0.0113 / 0.2)])
def test_a_ratio_to_naive_softmax_is_that_of_two_ratios_to_one_softmax(reference, expected):
    _, primal = steps(naive(reference=reference), cost()).to_dict("records")
    assert primal["time_over_first"] == pytest.approx(expected)
    assert (primal["time"], primal["memory"]) == (pytest.approx(11.3), 1.0)
    assert (primal["ratio"], primal["memory_ratio"]) == (0.5, 2.0)


def test_the_page_the_table_and_the_terminal_of_costs_are_the_approved_ones():
    out = cost("linear", status="out_of_memory", reason="64 GiB were asked for")
    others = [cost("softmax", options=SDPA), cost("yoso"), cost("nystrom", ratio=None), out]
    found = steps(naive(), cost(), *others)
    files = papers.step_files(found, COST)
    snapshot("chen2023-cost.md", files["chen2023-cost.md"].decode())
    snapshot("chen2023-cost.csv", files["chen2023-cost.csv"].decode())
    snapshot("chen2023-cost.txt", papers.step_text(found) + "\n")
    assert papers.step_lines(found)[1]["task"] == "listops@1"


def test_without_a_first_row_nothing_is_over_it():
    found = steps(naive(status="out_of_memory"), cost(ratio=None), task="text@3")
    assert found[["time_over_first", "memory_over_first"]].isna().all(axis=None)
    assert found["published_time"].tolist() == [694.8, 93.6]


def test_the_machine_with_most_steps_is_shown_and_nothing_of_other_shapes():
    other = [cost(machine="other", seconds=1.0), cost(machine="other", seconds=1.0, dim=128)]
    found = steps(naive(), cost(), others=other)
    assert [*found["machine"]] == ["CPU"] * 2
    assert papers.step_costs(found[["shape"]], of_costs([cost(dim=32)])).empty


def study(*tests, task="listops@1[test=60000]", size=2000):
    named = zip([model for name, model in REFERENCE if name == "listops"], tests, strict=False)
    models = [ShallowModel(name=name, dev=test, test=test, seconds=1.0) for name, test in named]
    return ShallowStudy(
        task=task, sizes={"train": 10, "dev": 10, "test": size}, models=tuple(models),
        digests={"train": "a", "dev": "b", "test": "c"}, started="2026-01-01T00:00:00+00:00",
        environment=make_record().environment,
    )  # fmt: skip


def test_a_published_accuracy_has_the_simplest_model_whose_interval_reaches_it():
    reached = explain(study(0.2, 0.366, 0.7))
    reached = reached[reached["reference"].str.startswith("Chen")]
    reached = reached.set_index("attention")["model"]
    # 20.0 of 2,000 ends at 21.8; 36.6 at 38.7.
    assert reached["performer"] == reached["reformer"] == "first 1 token"
    assert reached["softmax"] == reached["primal"] == "first 2 tokens"
    assert {*explain(study(0.1))["model"]} == {"none"}
    # A larger test split reaches less.
    small, large = (explain(study(0.366, size=size)) for size in (2000, 60_000))
    assert small["model"].iloc[-1] != "none" == large["model"].iloc[-1]


@pytest.mark.parametrize(("accuracy", "agrees"), [(0.364, "yes"), (0.34, "yes"), (0.30, "no")])
def test_a_figure_agrees_where_both_intervals_overlap(accuracy, agrees):
    (line,) = (row for row in findings([study(accuracy)]).splitlines() if "| 36.4 |" in row)
    assert f"| {agrees} |" in line
