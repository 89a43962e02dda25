"""Published orderings, and what results say of them."""

import math

import pandas as pd
import pytest

from harness.records.suites import find
from reports import papers, validity
from reports.pages.suite import files
from reports.statistics import COLUMNS
from reports.unnamed import experiments
from reports.validity import compared, correlations, orderings, page, published
from tests.conftest import ROOT
from zoo.composition import Composition


def line(row, question, mean, half=1.0, better="higher", **more):
    return {"row": row, "question": question, "mean": mean, "low": mean - half,
            "high": mean + half, "better": better, "seeds": 3, "part": "", "solved": False,
            "rising": False, "trained": True, **more}  # fmt: skip


PROBE = ["row", "question", "probe", "trained", "mean", "low", "high", "better", "seeds"]

NONE = pd.DataFrame(columns=[*PROBE, "part", "solved", "rising"])

NO_PAIRS = pd.DataFrame(columns=[*COLUMNS, "probe"])


def found_in(*lines, probes=NONE, pairs=NO_PAIRS):
    return orderings(pd.DataFrame(lines), probes, pairs).set_index(["above", "below"])


def pair(question, first, second, low, high, probe=""):
    return {"table": "laptop@3", "question": question, "probe": probe, "metric": "any",
            "first": first, "second": second, "difference": (low + high) / 2, "low": low,
            "high": high, "p": 0.1, "p_holm": 0.1, "outdated": False}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "verdict"), [
    ({}, {"part": "trial, 1 seed", "seeds": 1}, "with one seed"),
    ({"part": "2 of 3 seeds", "seeds": 2}, {}, "reproduced"), ({}, {"seeds": 1}, "with one seed"),
    ({"seeds": 1}, {}, "with one seed"), ({"seeds": 2}, {"seeds": 2}, "reproduced"),
    ({"solved": True}, {"solved": True}, "not reproduced: both solve it"),
    ({"solved": True}, {"solved": False}, "reproduced"),
])  # fmt: skip
@pytest.mark.parametrize("probe", [False, True])
def test_an_order_needs_two_seeds_and_a_variant_below_the_ceiling(first, second, verdict, probe):
    names = ("taylor", "linear") if probe else ("delta", "gated-linear")
    question = "recall" if probe else "fuzzy"
    results = zip(names, (55.0, 39.0), (first, second), strict=True)
    lines = [line(row, question, mean, **more) for row, mean, more in results]
    probes = pd.DataFrame(lines).assign(probe="64 pairs in 256").reindex(columns=PROBE)
    assert found_in(*lines, probes=probes).loc[names, "verdict"] == verdict


@pytest.mark.parametrize(("first", "second", "better", "verdict", "ends"), [
    (55.0, 39.0, "higher", "reproduced", (14, 18)),
    (39.0, 55.0, "higher", "contradicted", (-18, -14)),
    (40.0, 39.0, "higher", "undecided", (-1, 3)), (3.0, 6.0, "lower", "reproduced", (1, 5)),
    (6.0, 3.0, "lower", "contradicted", (-5, -1)),
    (3.0, math.nan, "lower", "not run", (math.nan, math.nan)),
])  # fmt: skip
def test_an_order_is_reproduced_where_the_intervals_are_apart(first, second, better, verdict, ends):
    found = found_in(line("delta", "fuzzy", first, better=better),
                     line("gated-linear", "fuzzy", second, better=better, rising=True))  # fmt: skip
    assert {*found["question"]} == {"fuzzy"}
    one = found.loc[("delta", "gated-linear")]
    assert (one["verdict"], one["rising"]) == (verdict, ["gated-linear"] * (verdict != "not run"))
    assert (one["low"], one["high"]) == pytest.approx(ends, nan_ok=True)
    assert found.loc[("mesa", "delta"), "verdict"] == "not run"


@pytest.mark.parametrize(("better", "ends", "verdict", "expected"), [
    ("higher", (0.5, 1.5), "reproduced", (0.5, 1.5)),
    ("higher", (-1.5, -0.5), "contradicted", (-1.5, -0.5)),
    ("lower", (-1.5, -0.5), "reproduced", (0.5, 1.5)),
    ("lower", (-0.5, 1.5), "undecided", (-1.5, 0.5)),
])  # fmt: skip
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_interval_of_the_difference_decides(better, ends, verdict, expected, mirrored):
    rows = ["delta", "gated-linear"]
    first, second = rows[::-1] if mirrored else rows
    low, high = (-ends[1], -ends[0]) if mirrored else ends
    pairs = [pair("fuzzy", first, second, low, high), pair("copy", first, second, 5.0, 6.0)]
    lines = (line(row, "fuzzy", 40.0, better=better) for row in rows)
    found = found_in(*lines, pairs=pd.DataFrame(pairs)).loc[("delta", "gated-linear")]
    assert (found["low"], found["high"]) == expected and found["verdict"] == verdict


def test_an_order_whose_lower_variant_is_worse_than_a_convolution_is_marked():
    rows = {"softmax": 2.4, "linear": 2.7, "conv": 2.5}
    lines = [line(row, "language", mean, half=0.1, better="lower") for row, mean in rows.items()]
    for ends, below in (((0.1, 0.3), True), ((-0.3, -0.1), False), ((-0.1, 0.3), False)):
        found = found_in(*lines, pairs=pd.DataFrame([pair("language", "linear", "conv", *ends)]))
        of_pair = found.loc[("softmax", "linear")]
        assert (of_pair["verdict"], of_pair["below_control"]) == ("reproduced", below)


def test_an_order_of_a_probe_is_read_from_it():
    probes = pd.DataFrame([
        line("linear", "recall", 99.0, probe="32 pairs in 128"),
        line("taylor", "recall", 90.0, probe="64 pairs in 256"),
        line("linear", "recall", 10.0, probe="64 pairs in 256"),
    ]).reindex(columns=PROBE)  # fmt: skip
    lines = [line(row, "recall", 50.0) for row in ("taylor", "linear", "performer")]
    found = found_in(*lines, probes=probes)
    assert found.loc[("taylor", "linear"), "difference"] == 80
    assert found.loc[("softmax", "performer"), "verdict"] == "not run"
    pairs = [
        pair("recall", "taylor", "linear", -1.0, 2.0),
        pair("recall", "taylor", "linear", 79.5, 80.5, "64 pairs in 256"),
    ]
    found = found_in(*lines, probes=probes, pairs=pd.DataFrame(pairs)).loc[("taylor", "linear")]
    assert (found["low"], found["high"]) == (79.5, 80.5)


def test_every_published_ordering_and_table_is_of_variants_and_has_its_sources():
    assert len(published()) >= 14 and all(of["published"] and of["sources"] for of in published())
    pairs = [(of["above"], of["below"], of["question"], of.get("probe")) for of in published()]
    assert len({*pairs}) == len(pairs)
    tables = correlations(NONE, NONE)
    assert len(tables) >= 10 and (tables["rows"] == 0).all() and tables["tau"].isna().all()
    rows = {row for task in tables["task"] for row in papers.published(task=task)["attention"]}
    for row in rows.union(*(pair[:2] for pair in pairs)):
        Composition.parse(row.partition("[")[0])


@pytest.mark.parametrize(("order", "tau"), [
    ([0, 1, 2, 3, 4, 5], 1.0), ([5, 4, 3, 2, 1, 0], -1.0), ([1, 0, 2, 3, 4, 5], 13 / 15),
    ([0, 1, 2, 3, 4], math.nan),
])  # fmt: skip
def test_kendalls_tau_is_of_the_better_rows_first_and_needs_six_of_them(order, tau):
    task = "MAD fuzzy recall"
    (reference, table), *_ = [
        each for each in papers.published(task=task).groupby("reference", sort=False)
        if each[1]["value"].nunique() >= 6
    ]  # fmt: skip
    rows = table.drop_duplicates("value").sort_values("value")["attention"].head(6)
    unknown = [("mine", 9.0), ("retention-of-mine", math.nan)]
    means = [*zip(rows, map(float, order), strict=False), *unknown]
    found = correlations(pd.DataFrame(line(row, "fuzzy", mean) for row, mean in means), NONE)
    found = found[found["reference"] == reference].iloc[0]
    assert (found["rows"], found["tau"]) == (len(order), pytest.approx(tau, nan_ok=True))
    assert math.isnan(tau) or found["low"] <= found["tau"] <= found["high"]


@pytest.fixture
def of(suite_frames):
    """The tables of a suite with the questions of the orderings, of which one has results."""
    name, _, version = validity.suite().partition("@")
    both = zip(suite_frames.suite.questions, ("fuzzy", "parity"), strict=True)
    questions = tuple(question.model_copy(update={"name": new}) for question, new in both)
    fields = {"name": name, "version": int(version), "questions": questions}
    found = suite_frames.tables(suite=suite_frames.suite.model_copy(update=fields))
    means = {"delta": 50.0, "gated-linear": 70.0, "mesa": 51.0, "gated-delta": 20.0}
    answers = pd.DataFrame([line(row, "fuzzy", mean) for row, mean in means.items()])
    return found._replace(answers=answers, probes=NONE)


def test_the_page_counts_the_verdicts_of_the_questions_of_the_suite(of, monkeypatch):
    found, tables = compared(of)
    assert {*found["question"]} == {"fuzzy", "parity"} > {*tables["question"]} == {"fuzzy"}
    assert found["verdict"].value_counts().to_dict() == {
        "reproduced": 2, "undecided": 1, "contradicted": 1, "not run": 1,
    }  # fmt: skip
    text = page(of)
    assert (counts := validity.sentence(found)) in text and counts.startswith("5 orderings")
    (contradicted,) = [row for row in text.splitlines() if "no explanation yet" in row]
    assert "-20 [-22, -18]" in contradicted and "arxiv.org/abs/2406.06484" in contradicted
    # A contradiction alone has its explanation.
    explained = tuple({**of, "explanation": "An experiment."} for of in published())
    monkeypatch.setattr(validity, "published", lambda: explained)
    assert page(of).count("An experiment.") == 1
    other = tuple({**of, "incomparable": "Other sizes."} for of in published())
    monkeypatch.setattr(validity, "published", lambda: other)
    found = compared(of)[0]
    assert {*found["verdict"]} == {"not comparable", "not run"}
    assert "4 not comparable, 1 not run" in validity.sentence(found)
    assert page(of).count("not comparable: Other sizes.") == 4


def test_the_experiments_are_questions_of_the_suite_with_other_settings(of, suite_frames):
    notes = {
        "a": "wikitext, recipe laptop, bf16",
        "b": "wikitext, recipe laptop@3/language, positions learned",
        "c": "wikitext, recipe laptop@3/language, max len 512",
        "d": "wikitext, recipe laptop@1/language",
    }
    first = of.suite.questions[0]
    questions = [first.model_copy(update={"name": n, "note": text}) for n, text in notes.items()]
    answers = pd.DataFrame([
        {"question": name, "row": row, "text": "2.5", "interval": "[2, 3]", "seeds": 3,
         "mean": mean, "better": "lower", "status": "ok"}
        for name in notes for mean, row in ((2.5, name), (2.7, f"{name}2"))
    ])  # fmt: skip
    unnamed = of._replace(
        suite=of.suite.model_copy(update={"questions": tuple(questions)}), answers=answers[::-1],
        seeds=answers.assign(outdated=answers["row"] == "c"),
    )  # fmt: skip
    found = experiments(unnamed, "laptop@3")
    columns = ("row", "changes", "outdated")
    assert [tuple(line[name] for name in columns) for line in found] == [
        ("c", "language, max len 512", True), ("c2", "language, max len 512", False),
        ("b", "language, positions learned", False), ("b2", "language, positions learned", False),
    ]  # fmt: skip
    shown = suite_frames.tables()._replace(experiments=found)
    text = files(shown, latex=False)["mine.md"].decode()
    assert text.count("| 2.5 [2, 3] |") == 4 and "| c (outdated) |" in text


def test_results_of_another_version_of_the_suite_are_not_tested(of):
    other = of.suite.model_copy(update={"version": of.suite.version + 1})
    found, tables = compared(of._replace(suite=other))
    assert len(found) == len(published()) and {*found["verdict"]} == {"not run"}
    assert {*tables["rows"]} == {0}
    # They are of no older suite than the published one.
    name, _, version = validity.suite().partition("@")
    assert int(version) >= find(name).version


def test_every_contradiction_of_the_published_page_is_explained():
    text = (ROOT / "docs" / "validity.md").read_text("utf-8")
    assert "| verdict |" in text and "no explanation yet" not in text
