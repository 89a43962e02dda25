"""The leaderboard of runs of no suite: numbers, comparisons, page, CSV file and terminal."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from pydantic import ValidationError

from harness.records import frame
from harness.records.answers import ClusterValues
from harness.records.cost import CostRecord
from harness.records.record import Record
from harness.records.store import Broken
from reports.leaderboard import files, leaderboard, table, terminal
from tasks import metrics
from tests.reports.conftest import changed, costs_of, csv_lines, make_record, snapshot

EXAMPLES = 1000
HARD = np.random.default_rng(0).random(EXAMPLES)


def of(records, costs=(), **scores):
    """The leaderboard of records whose tasks have these baselines."""
    runs = frame.of_records(records, costs)
    scores = scores or {"majority": 17.0, "chance": 10.0}
    rules = pd.DataFrame([
        {"data": data, "name": name, "score": score}
        for data in runs.get("data", pd.Series()).unique() for name, score in scores.items()
    ], columns=["data", "name", "score"])  # fmt: skip
    return leaderboard(runs, rules)


def rows_of(records, **scores):
    return of(records, **scores).rows.set_index("row")


def compared(attention, accuracy, **changes):
    """Three runs of a variant of about that accuracy, or one of each, on the same examples."""
    accuracies = [accuracy] * 3 if isinstance(accuracy, float) else accuracy
    shifts = [
        0.01 * np.random.default_rng(seed).random(EXAMPLES) for seed in range(len(accuracies))
    ]
    return [
        make_record(attention, seed=seed, is_baseline=attention == "identity",
                    correct=(HARD + shifts[seed] < level).tolist(), **changes)
        for seed, level in enumerate(accuracies)
    ]  # fmt: skip


def test_a_row_has_the_mean_over_seeds_and_the_cost_that_they_share():
    runs = [
        make_record("primal", seed=n, accuracy=accuracy)
        for n, accuracy in enumerate((0.50, 0.54, 0.52))
    ]
    row = of(runs, costs_of(runs[1], seconds=0.02, mib=20)).rows.set_index("row").loc["primal"]
    assert row[["seeds", "runs", "run_seeds"]].tolist() == [3, 3, "0 1 2"]
    assert row[["mean", "dev"]].tolist() == pytest.approx([52, 53])
    # A little less than Student's with two degrees of freedom, 52 +- 4.97 points.
    assert [row["low"], row["high"]] == pytest.approx([47.787, 56.185], abs=1e-3)
    seconds = row[["step_seconds.q1", "step_seconds", "step_seconds.q3"]].tolist()
    assert seconds == pytest.approx([0.018, 0.020, 0.024])
    assert [row["memory_ratio"], row["time_ratio"]] == pytest.approx([20 / 400, 0.1])
    assert row[["parameters", "reference"]].tolist() == [123_456, "naive"]
    outside = of(runs, costs_of(make_record("primal", threads=3))).rows
    assert outside["step_seconds"].isna().all()


ONE, NOT, SOME = "one seed", "no stored test answers", "seeds at a baseline"

STANDINGS = {
    "separable": {"a": (0.8, "A", "", 0), "b": (0.795, "A", "", 0), "c": (0.7, "B", "", 0)},
    "baselines": {
        "above": (0.8, "A", "", 0), "near": (0.63, "", SOME, 0), "below": (0.3, "B", "", 3),
    },
    "a model without attention": {
        "a": (0.9, "A", "", 0), "b": (0.803, "", SOME, 1), "identity": (0.8, "B", "", -1),
    },
    "one seed": {"a": (0.8, "A", "", 0), "b": (0.7, "B", "", 0), "single": ([0.9], "", ONE, 0)},
    "five seeds, one at a baseline": {
        "a": ([0.9] * 5, "A", "", 0), "part": ([*[0.8] * 4, 0.6], "B", "", 1),
        "whole": ([0.6] * 5, "", SOME, 5),
    },
    "three seeds, one at a baseline": {
        "a": (0.8, "A", "", 0), "b": (0.7, "B", "", 0), "part": ([0.8, 0.8, 0.6], "", SOME, 1),
    },
}  # fmt: skip
"""Accuracies of rows, and what is found: group, what keeps a row from being compared, and the seeds
at the strongest baseline, -1 for a baseline."""


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("case", STANDINGS)
def test_rows_are_compared_with_each_other_and_with_baselines(case):
    rows = STANDINGS[case]
    runs = [run for name, (accuracy, *_) in rows.items() for run in compared(name, accuracy)]
    found = rows_of(runs, **{"bag of tokens": 60.0, "chance": 10.0})
    columns = ["rank_group", "not_compared", "seeds_at_baseline"]
    assert found[columns].fillna(-1).agg(list, axis=1).to_dict() == {
        name: of for name, (_, *of) in rows.items()
    }
    best = found["best"].dropna()
    assert best.index.tolist() == [n for n in found.index if not rows[n][2]]
    assert best.sum() == pytest.approx(100) and best.is_monotonic_decreasing


def test_a_row_answers_if_its_interval_is_above_every_baseline_and_model_without_attention():
    runs = (
        compared("a", 0.9) + compared("b", 0.803) + compared("identity", 0.8) + compared("c", 0.3)
    )
    found = rows_of(runs, rule=60.0)
    assert found["answered"].to_dict() == {"a": True, "b": False, "identity": False, "c": False}
    assert found.loc[["a", "identity"], "baseline"].tolist() == ["identity", "rule"]
    # Without baselines of the task nothing is known.
    found = leaderboard(frame.of_records(runs), pd.DataFrame(columns=["data", "name", "score"]))
    assert not found.rows["answered"].any() and not found.rows["at_baseline"].any()
    assert {*found.rows["not_compared"]} == {"no baseline"} and found.pairs.empty
    assert f"baselines/{found.runs['data'].iloc[0]}.json is missing" in terminal(found)


SIZES = (10, 30, 5, 15) * 10


def language(attention: str, seed: int, nats, metric="bits-per-byte", **fields) -> Record:
    """A run whose clusters have these mean losses."""
    sums = tuple(mean * size for mean, size in zip(nats, SIZES, strict=True))
    return scored(attention, seed, metric, metric, ClusterValues(sizes=SIZES, sums=sums), **fields)


def control(attention: str, seed: int, returns, **fields) -> Record:
    """A run of those returns; a random policy has -20, an expert 180."""
    sample = ClusterValues(sizes=(1,) * 12, sums=tuple((value + 20) / 2 for value in returns))
    fields = {"task": "control", **fields}
    return scored(attention, seed, "normalised-return", "squared-error", sample, **fields)


def scored(attention, seed, metric, dev_metric, sample, **fields) -> Record:
    record, metric = make_record(attention, seed=seed, **fields), metrics.find(metric).metric
    score = {"sample": sample, "score": metric.value(sample.mean), "dev": 0.3}
    dev = metrics.find(dev_metric).metric
    return record.model_copy(update={
        "final": record.final.model_copy(update=score), "metric": metric,
        "dev_metric": None if dev == metric else dev,
    })  # fmt: skip


RNG = np.random.default_rng(0)
LOSSES = [
    language(name, seed, level + RNG.normal(0, 0.01, len(SIZES)))
    for name, level in {"softmax": 1.2, "linear": 1.3, "worse": 1.5, "none": 2.2}.items()
    for seed in range(3)
]
RETURNS = [
    control(name, seed, level + RNG.normal(0, 3, 12))
    for name, level in {"primal": 120.0, "softmax": 20.0, "none": 10.0}.items()
    for seed in range(3)
]
METRICS = {
    "losses": (LOSSES, {"unigram": 4.3, "3-grams": 1.4 / math.log(2)},
               {"softmax": True, "linear": True, "worse": False, "none": False}, 1.2 / math.log(2)),
    "returns": (RETURNS, {"trajectories of the file": 40.0, "random policy": -0.04},
                {"primal": True, "softmax": False, "none": False}, 70),
}  # fmt: skip


def test_rows_without_answers_and_with_answers_to_other_examples_are_not_compared():
    old = [make_record("old", seed=n, accuracy=0.9) for n in range(3)]
    fewer = [make_record("z", seed=n, correct=[True, True, True, False] * 50) for n in range(2)]
    found = of(compared("a", 0.8) + compared("b", 0.7) + old + fewer)
    assert found.rows.set_index("row")["not_compared"].to_dict() == {
        "a": "", "b": "", "old": "no stored test answers", "z": "answers to other test examples",
    }  # fmt: skip
    pairs = found.pairs[["table", "question", "first", "second"]].values.tolist()
    assert pairs == [["leaderboard", found.rows["question"].iloc[0], "a", "b"]]


def test_a_loss_at_that_of_a_model_without_attention_is_compared_and_no_evidence_of_attention():
    records = [
        language(name, seed, level + np.random.default_rng(seed).normal(0, 0.01, len(SIZES)),
                 is_baseline=name == "identity")
        for name, level in {"softmax": 1.2, "linear": 1.3, "identity": 1.3}.items()
        for seed in range(3)
    ]  # fmt: skip
    rows = of(records, unigram=4.3).rows.set_index("row")
    assert rows["not_compared"].to_dict() == {"softmax": "", "linear": "", "identity": ""}
    assert rows["answered"].to_dict() == {"softmax": True, "linear": False, "identity": False}


@pytest.mark.parametrize("kind", METRICS)
def test_other_metrics_have_their_order_intervals_and_baselines(kind):
    records, rules, answered, level = METRICS[kind]
    found = of(records[::-1], **rules)
    rows = found.rows.set_index("row")
    assert rows["answered"].to_dict() == answered and [*rows.index] == [*answered]
    first = rows.iloc[0]
    assert first["mean"] == pytest.approx(np.mean([run.final.score for run in records[:3]]))
    assert first["low"] < first["mean"] < first["high"] and first["mean"] == pytest.approx(
        level, 0.02
    )
    assert first["rank_group"] == "A" and first["best"] > 99
    pair = found.pairs.iloc[0]
    assert [pair["first"], pair["second"]] == [*rows.index[:2]]
    assert pair["difference"] == pytest.approx(
        rows["mean"][pair["first"]] - rows["mean"][pair["second"]]
    )
    assert pair["low"] < pair["difference"] < pair["high"]
    (strongest, _), _ = sorted(rules.items(), key=lambda rule: -abs(rule[1] - 4.3))
    assert first["baseline"] == strongest
    lines = table(found)
    assert {*lines["metric"]} == {records[0].metric.name}
    assert lines["row"][lines["kind"] == "baseline"].tolist() == [
        strongest, *(name for name in rules if name != strongest)
    ]  # fmt: skip
    for text in (terminal(found), files(found, [])["leaderboard.md"].decode()):
        assert records[0].metric.name in text and "accuracy" not in text.partition("## What")[0]
        assert "-0.0" not in text


@pytest.mark.parametrize("change", [{"score": 0.9}, {"best_on_test": 4.0}])
def test_scores_that_contradict_the_answers_are_rejected(change):
    tree = LOSSES[0].model_dump()
    Record.model_validate(tree)
    with pytest.raises(ValidationError):
        Record.model_validate({**tree, "final": tree["final"] | change})


def store() -> list[Record]:
    """Runs that show everything that a page can show."""
    other = {"key": "image@1", "task": "image"}
    larger = make_record("linformer", accuracy=0.3, **other)
    return [
        *compared("a", 0.8), *compared("b", 0.5), *compared("identity", 0.2),
        make_record("single", accuracy=0.5, examples=100, failures={"x: causality": "leaks <b>"}),
        *(make_record("part", seed=n, accuracy=0.5) for n in range(2)),
        make_record("part", seed=2, status="out_of_memory", reason="CUDA out of memory"),
        make_record("fails", status="diverged", reason="loss is nan at step 3"),
        make_record("alone", commit="aaa1111, bbb2222"),
        make_record(**other),
        larger.model_copy(update={"parameters": 200_000}),
        changed(make_record("old", accuracy=0.2, **other), "final", best_on_test=60),
        make_record("primal", key="text@1", task="text"),
        language("softmax", 0, [1.2] * len(SIZES), task="wikitext"),
        make_record("none", key="text@3", task="text", status="failed", reason="no GPU"),
        *RETURNS[:2],
    ]  # fmt: skip


def costs_of_store() -> list[CostRecord]:
    """Of all rows but `fails` and `old`; softmax had no memory beside `alone`."""
    return [
        cost for run in store() if run.spec.attention not in ("fails", "old")
        for cost in costs_of(run, softmax=None if run.spec.attention == "alone" else (0.2, 400.0))
    ]  # fmt: skip


def test_the_page_and_the_terminal_are_the_approved_ones():
    broken = [Broken(Path("/some/where/bad.json"), "final: missing\nfield")]
    found = of(store(), costs_of_store(), **{"bag of tokens": 40.0, "chance": 10.0})
    pages = files(found, broken)
    snapshot("leaderboard.md", pages["leaderboard.md"].decode())
    snapshot("leaderboard.txt", terminal(found) + "\n")
    again = of(store()[::-1], costs_of_store()[::-1], **{"bag of tokens": 40.0, "chance": 10.0})
    assert files(again, broken) == pages and "/some/where" not in pages["leaderboard.md"].decode()


def test_the_csv_file_has_every_digit_and_the_fields_of_the_recipe():
    how = {"overrides": {"model.dim": 3}, "model": {"positions": "rotary"}}
    runs = [make_record("primal", seed=n, accuracy=a, **how) for n, a in enumerate((1 / 3, 0.4))]
    lines = csv_lines(files(of(runs), [])["leaderboard.csv"])
    assert [(line["row"], line["kind"], line["mean"]) for line in lines[1:]] == [
        ("majority", "baseline", "17.0"), ("chance", "baseline", "10.0"),
    ]  # fmt: skip
    assert float(lines[0]["mean"]) == pytest.approx(100 * (1 / 3 + 0.4) / 2, rel=1e-15)
    expected = {
        "task": "listops@1", "recipe": "paper",
        "question": "listops@1, recipe paper with model.dim=3, cuda: NVIDIA H100",
        "device": "cuda", "model.positions": "rotary",
        "train.betas": "[0.9, 0.999]", "overrides": "{}", "machine": "NVIDIA H100",
        "kind": "measured", "commits": "abc1234", "options": '{"primal": {}}', "rank_group": "",
    }  # fmt: skip
    assert expected.items() <= lines[0].items()


def test_an_empty_store_has_a_page_that_names_the_command():
    found = of([])
    assert terminal(found) == "no records"
    assert "`harness run` makes one" in files(found, [])["leaderboard.md"].decode()


HOSTILE = (
    r"$\foo{$", "$x", "<!-- /leaderboard -->", "![x](http://e/x.png)", "=1+1", "# x", "a\n\n## b",
    "</svg><script>", "|", "`", "_x", "\x00\x1b[31m", "\u202e\u2028", "漢字🙂", "[" * 9, "x" * 3000,
    "", " ",
)  # fmt: skip


def hostile(text: str, **fields) -> Record:
    """A run with the text in every field that takes any."""
    record = make_record(
        text, task=text, key=text, budget=text, options={text: {text: text}},
        overrides={text: text}, machine=text, commit=text, failures={text: text}, **fields,
    )  # fmt: skip
    return changed(record, "environment", system=text, versions={text: text})


def test_a_row_is_of_one_code_and_a_row_of_earlier_code_is_marked():
    later, earlier = (compared("softmax", accuracy) for accuracy in (0.5, 0.9))
    replaced = [changed_code(record, "0.0") for record in earlier if record.spec.seed]
    old = [changed_code(record, "0.1") for record in compared("linear", 0.3)]
    found = of([later[0], *replaced, *old])
    assert found.runs.groupby("row")["seed"].agg(list).to_dict() == {
        "softmax": [0], "linear": [0, 1, 2],
    }  # fmt: skip
    assert found.older.endswith("2 of other code of the row.")
    assert found.outdated.startswith(
        "3 of 4 runs are outdated: code or data have changed since. Variants: linear."
    )
    page = files(found, [])["leaderboard.md"].decode()
    assert "| linear (outdated) |" in page and "| softmax |" in page and found.outdated in page
    every = of([*replaced, *old]).rows.set_index("row")["outdated"]
    assert every.to_dict() == {"softmax": True, "linear": True}


def changed_code(record, version):
    return record.model_copy(update={"versions": {record.spec.attention: version}})


NORMAL = [make_record(budget="laptop"), make_record("primal", accuracy=0.4, budget="laptop")]


@pytest.mark.slow
def test_pages_of_any_records_hold_their_own_markdown_and_no_formula():
    ends = "ok", "failed", "out_of_memory"
    texts = [hostile(text, status=end, reason=text) for text in HOSTILE for end in ends]
    numbers = [make_record("none", seed=n, accuracy=n, budget="laptop", threads=1 + n)
               for n in (0, 1)]  # fmt: skip
    costs = [cost for n in (0, 1) for cost in costs_of(
        numbers[n], seconds=10.0 ** (20 * n - 10), mib=2.0 ** (60 * n - 20)
    )]  # fmt: skip
    found = of([*NORMAL, *numbers, *texts], costs, **dict.fromkeys(HOSTILE, 50.0))
    pages = files(found, [Broken(Path("bad`<b>\n# x.json"), "no\n# record")])
    page = pages["leaderboard.md"].decode()
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    types = {token.type for token in every}
    assert not types & {"html_block", "html_inline", "image", "code_block", "fence"}
    links = {token.attrGet("href") for token in every if token.type == "link_open"}
    assert links == {"../docs/reading.md"}
    headings = [token for token in tokens if token.type == "heading_open"]
    assert len(headings) == page.count("\n## ") + 1
    lines = [*csv.reader(io.StringIO(pages["leaderboard.csv"].decode()))]
    assert len(lines) == 1 + len(table(found))
    assert not any(text.startswith(("=", "+", "-", "@")) for line in lines for text in line)
    lines = terminal(found).split("\n")
    assert max(map(len, lines)) <= 120 and all(line.isprintable() for line in lines)
