"""Runs of no suite as a suite: their questions, rows, comparisons, pages and curves."""

import math
from itertools import islice, permutations

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from pydantic import ValidationError

from harness.catalogue import described
from harness.records import frame
from harness.records.answers import ClusterValues
from harness.records.record import Record
from reports import unnamed
from reports.pages.suite import Tables, files, terminal
from reports.shown import failure
from tasks import metrics
from tests.reports.conftest import changed, costs_of, csv_lines, make_record

pytestmark = pytest.mark.usefixtures("unrendered")

EXAMPLES = 1000
HARD = np.random.default_rng(0).random(EXAMPLES)


def of(records, costs=(), **scores) -> Tables:
    runs = frame.of_records(records, costs)
    scores = scores or {"majority": 17.0, "chance": 10.0}
    rules = pd.DataFrame([
        {"data": data, "name": name, "score": score}
        for data in runs["data"].unique() for name, score in scores.items()
    ], columns=["data", "name", "score"])  # fmt: skip
    return unnamed.tables_of(runs, rules, frame.of_costs(costs), described())


def chosen(records):
    return unnamed.chosen(frame.of_records(records))


def titles(records):
    return [question.title for question in chosen(records)[0].questions]


def rows(records):
    return sorted({*chosen(records)[1]["row"]})


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


def tuned(attention="softmax", lr=1e-3) -> Record:
    """A run of a grid of learning rates; the rate of its recipe is 1e-3."""
    return make_record(attention, train={"lr": lr}, role="final")


def matched(attention="softmax", width=128, **fields) -> Record:
    """A run of a model whose feed-forward width makes it as large as softmax."""
    return make_record(attention, model={"feed_forward": width}, match="parameters", **fields)


@pytest.mark.parametrize(("change", "count"), [
    ({}, 1), ({"options": {"primal": {"rank": 5}}}, 1), ({"threads": 9}, 1),
    ({"machine": "another"}, 1), ({"device": "cpu"}, 2), ({"key": "listops@1[train=9]"}, 2),
    ({"budget": "smoke"}, 2), ({"train": {"lr": 7.0}}, 2), ({"match": "parameters"}, 2),
    ({"role": "final"}, 2),
])  # fmt: skip
def test_runs_of_other_tasks_recipes_and_devices_are_other_questions(change, count):
    found = titles([make_record("softmax"), make_record("primal", **change)])
    assert len({*found}) == len(found) == count


def test_a_question_is_called_what_it_does_not_share_with_the_others_in_words():
    changes = {"train.lr": 0.0003, "model.dim": 128}
    records = [make_record(overrides=changes), make_record(), make_record(task="text"), matched()]
    assert chosen(records)[0].title == "listops, text, recipe paper" and titles(records) == [
        "listops", "listops, width 128, learning rate 0.0003", "listops, parameters matched",
        "text",
    ]  # fmt: skip
    sweep = [make_record(key=f"mqar@3[pairs={n},vocabulary=64]", task="mqar") for n in (4, 8)]
    suite, _ = chosen(sweep)
    assert titles(sweep) == ["pairs 4", "pairs 8"]
    assert suite.title == "mqar, recipe paper, vocabulary 64"
    assert suite.questions[0].note == "mqar, recipe paper, pairs 4, vocabulary 64"
    assert titles([make_record()]) == ["listops"]
    other = "recall, recipe laptop@3/recall, positions learned"
    for positions, title in (("rotary", "laptop@3/recall"), ("learned", other)):
        named = make_record(budget="laptop@3/recall", model={"positions": positions})
        assert {*titles([named, make_record()])} == {title, "listops, recipe paper"}
    # Of softmax, but not of linear, other positions are usual.
    same = [make_record(row, budget="laptop@3/recall", model={"positions": "none"})
            for row in ("linear", "softmax")]  # fmt: skip
    assert titles(same) == ["recall"] and rows(same) == ["linear", "softmax"]
    assert chosen(same)[0].questions[0].note.endswith("positions none")
    tree = make_record(task="recall", key="recall@1[max_len=99]").model_dump()
    tree["spec"]["question"]["task"]["options"] = {"pairs": 4, "max_len": 99}
    tree["spec"]["question"] |= {
        "recipe": "laptop@3/recall", "name": "recall@1[max_len=99], recipe laptop@3/recall"
    }  # fmt: skip
    assert "max len 99" in chosen([Record.model_validate(tree)])[0].questions[0].note


@pytest.mark.parametrize(("records", "labels"), [
    ([make_record("primal", overrides={"primal.rank": rank}) for rank in (20, 30)],
     ["primal[rank=20]", "primal[rank=30]"]),
    ([make_record("softmax+primal", overrides={"primal.rank": rank},
                  options={"softmax": {}, "primal": {}}) for rank in (20, 30)],
     ["softmax+primal[primal.rank=20]", "softmax+primal[primal.rank=30]"]),
    ([tuned(lr=3e-4), tuned("primal")], ["primal", "softmax"]),
    ([matched(), matched("primal", 96)], ["primal", "softmax"]),
])  # fmt: skip
def test_a_row_is_named_by_its_options(records, labels):
    assert rows(records) == labels and len(titles(records)) == 1


def test_runs_of_an_older_version_of_a_task_or_other_code_are_left_out_and_counted():
    old = [make_record(key="text@9[max_len=512]", task="text", seed=n) for n in (0, 1)]
    new = [make_record("linear", key="text@10[max_len=512]", task="text"), make_record("primal")]
    other = make_record("primal", seed=1, version="0.0", started="2020-01-01T00:00:00Z")
    # One in eleven of the 120 orders: each record is first, and last, in some.
    for records in islice(permutations([*old, *new, other]), 0, None, 11):
        assert sorted(chosen(records)[1]["row"]) == ["linear", "primal"]
    (text,) = [note for note in of([*old, *new, other]).notes if "Left out" in note]
    assert {*text[:-1].partition(": ")[2].split(", ")} == {
        "1 of other code of the row", "2 of an older version of the task",
    }  # fmt: skip
    assert rows(old) == ["softmax"] and not any("Left" in note for note in of(old).notes)


@pytest.mark.parametrize(("status", "reason", "text"), [
    ("diverged", "loss is nan at step 300", "diverged: loss is nan at step 300"),
    ("out_of_memory", "", "out of memory at step 300"),
    ("out_of_memory", "CUDA out of memory", "CUDA out of memory"),
    ("failed", "ValueError: no\nline two", "failed: ValueError: no line two"),
])  # fmt: skip
def test_a_failure_names_how_the_run_ended(status, reason, text):
    (run,) = frame.of_records([make_record(status=status, reason=reason)]).to_dict("records")
    assert failure(run) == text


def test_without_baselines_nothing_is_known_and_the_command_is_named():
    runs = frame.of_records([*compared("a", 0.9), *compared("b", 0.8)])
    none = pd.DataFrame(columns=["data", "name", "score"])
    found = unnamed.tables_of(runs, none, frame.of_costs([]), described())
    assert not found.answers["answered"].any() and not found.answers["at_baseline"].any()
    assert {*found.answers["not_compared"]} == {"no baseline"} and found.pairs.empty
    assert "--baselines" in terminal(found)


def test_rows_without_answers_and_with_answers_to_other_examples_are_not_compared():
    old = [make_record("old", seed=n, accuracy=0.9) for n in range(3)]
    fewer = [make_record("z", seed=n, correct=[True, True, True, False] * 50) for n in range(2)]
    found = of(compared("a", 0.8) + compared("b", 0.7) + old + fewer)
    assert found.answers.set_index("row")["not_compared"].to_dict() == {
        "a": "", "b": "", "old": "no stored test answers", "z": "answers to other test examples",
    }  # fmt: skip
    pairs = found.pairs[["table", "question", "first", "second"]].values.tolist()
    assert pairs == [["runs@1", "listops", "a", "b"]]


SIZES = (10, 30, 5, 15) * 10


def language(attention: str, seed: int, level: float, **fields) -> Record:
    """A run of about that loss in nats."""
    rng = np.random.default_rng([seed, *attention.encode()])
    nats = level + rng.normal(0, 0.01, len(SIZES))
    sample = ClusterValues(sizes=SIZES, sums=tuple(nats * SIZES))
    return scored(attention, seed, "bits-per-byte", "bits-per-byte", sample, **fields)


def control(attention: str, seed: int, returns) -> Record:
    """A run of those returns; a random policy has -20, an expert 180."""
    sample = ClusterValues(sizes=(1,) * 12, sums=tuple((value + 20) / 2 for value in returns))
    return scored(attention, seed, "normalised-return", "squared-error", sample, task="control")


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
    language(name, seed, level)
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


def test_a_loss_at_that_of_a_model_without_attention_is_compared_and_no_evidence_of_attention():
    records = [
        language(name, seed, level, is_baseline=name == "identity")
        for name, level in {"softmax": 1.2, "linear": 1.3, "identity": 1.3}.items()
        for seed in range(3)
    ]
    found = of(records, unigram=4.3).answers.set_index("row")
    assert found["not_compared"].to_dict() == {"softmax": "", "linear": "", "identity": ""}
    assert found["answered"].to_dict() == {"softmax": True, "linear": False, "identity": False}


@pytest.mark.parametrize("kind", METRICS)
def test_other_metrics_have_their_order_intervals_and_baselines(kind):
    records, rules, answered, level = METRICS[kind]
    tables = of(records[::-1], **rules)
    found = tables.answers.set_index("row")
    assert found["answered"].to_dict() == answered
    first = found.loc[next(iter(answered))]
    assert first["mean"] == pytest.approx(np.mean([run.final.score for run in records[:3]]))
    assert first["low"] < first["mean"] < first["high"] and first["rank_group"] == "A"
    assert first["mean"] == pytest.approx(level, 0.02)
    pair = tables.pairs.iloc[0]
    assert [pair["first"], pair["second"]] == [*answered][:2]
    means = found["mean"][[pair["first"], pair["second"]]]
    assert pair["difference"] == pytest.approx(means.iloc[0] - means.iloc[1])
    assert pair["low"] < pair["difference"] < pair["high"]
    (strongest, _), _ = sorted(rules.items(), key=lambda rule: -abs(rule[1] - 4.3))
    assert first["baseline"] == strongest and {*found["metric"]} == {records[0].metric.name}
    for text in (terminal(tables), files(tables, latex=False)["runs.md"].decode()):
        assert records[0].metric.name in text and "-0.0" not in text
    tree = records[0].model_dump()  # a score that contradicts the answers
    with pytest.raises(ValidationError):
        Record.model_validate({**tree, "final": tree["final"] | {"score": 0.9}})


def test_the_costs_are_those_of_the_training_steps_of_the_runs():
    runs = [*compared("primal", 0.8), *compared("softmax", 0.7)]
    costs = [*costs_of(runs[0], seconds=0.02, mib=20), *costs_of(runs[-1])]
    found = of(runs, costs)
    matrix = found.matrix["bidirectional"]
    assert matrix.loc["primal", ["time.2000", "memory.2000"]].tolist() == pytest.approx([0.1, 0.05])
    assert found.suite.cost.level == "step" and "BF16" in found.setting.upper()
    seeds = found.seeds.query("row == 'primal'")
    assert seeds["time_ratio"].tolist() == pytest.approx([0.1] * 3)
    first = seeds[["step_seconds.q1", "step_seconds"]].iloc[0].tolist()
    assert first == pytest.approx([0.018, 0.02])
    page = files(found, latex=False)["runs.md"].decode()
    assert "time, 2,000" in page and "decode" not in page
    alone = files(of(runs), latex=True)
    assert {"runs.md", "runs.csv", "runs.tex", "runs.svg", "runs-answers.csv"} <= {*alone}


def test_every_row_with_runs_is_shown_whatever_the_others_have():
    keys = [f"listops@1[train={n}]" for n in range(5)]
    runs = [*(make_record(key=key) for key in keys), make_record("primal", key=keys[0])]
    found = of([*runs, make_record("fails", status="diverged")])
    assert {*found.rows("bidirectional")} == {"softmax", "primal", "fails"}
    assert found.missing == () and "diverged (1 of 1)" in terminal(found)
    # Numbers stand for long titles.
    long = of([make_record(key=f"listops@1[train={n * 10**30}]") for n in (1, 2)])
    assert "[2]" in terminal(long) and max(map(len, terminal(long).splitlines())) <= 120


HOSTILE = (
    r"$\foo{$", "$x", "<!-- /leaderboard -->", "![x](http://e/x.png)", "=1+1", "# x", "a\n\n## b",
    "</svg><script>", "|", "`", "_x", "\x00\x1b[31m", "\u202e\u2028", "漢字🙂", "[" * 9, "x" * 3000,
    "", " ",
)  # fmt: skip


def hostile(text: str, **fields) -> Record:
    record = make_record(
        text, task=text, key=text, budget=text, options={text: {text: text}}, machine=text,
        commit=text, failures={text: text}, **fields,
    )  # fmt: skip
    return changed(record, "environment", system=text, versions={text: text})


@pytest.mark.slow
def test_pages_of_any_records_hold_their_own_markdown_and_no_formula():
    ends = "ok", "failed", "out_of_memory"
    texts = [hostile(text, status=end, reason=text) for text in HOSTILE for end in ends]
    found = of([make_record(budget="laptop"), *texts], **dict.fromkeys(HOSTILE, 50.0))
    pages = files(found, latex=True)
    page = pages["runs.md"].decode()
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    types = {token.type for token in every}
    assert not types & {"html_block", "code_block", "fence"}
    inline = {token.content for token in every if token.type == "html_inline"}
    assert inline <= {"<sub>", "</sub>"}
    links = {token.attrGet("href") for token in every if token.type == "link_open"}
    assert links == {"../docs/reading.md"}
    for name in ("runs.csv", "runs-answers.csv"):
        texts = [text for line in csv_lines(pages[name]) for text in line.values()]
        assert not any(text.startswith(("=", "+", "-", "@")) for text in texts)
    lines = terminal(found).split("\n")
    assert max(map(len, lines)) <= 120 and all(line.isprintable() for line in lines)
