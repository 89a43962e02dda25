"""The suites of published tables and set-ups: rows, recipes, missing data, what they show."""

import hashlib
import json
from itertools import product

import pandas as pd
import pytest

from harness import recipes
from harness.questions import of_suite, spec_of
from harness.records.frame import of_records
from harness.records.store import CostStore
from harness.records.suites import find
from harness.suite import efforts, missing_data, steps
from reports.papers import STEP_SECONDS, gpu_hours, published
from tasks import names
from tests.harness.conftest import requested

COST = find("chen2023-cost")


@pytest.mark.parametrize(("name", "unit"), [
    ("chen2023-series", "%"), ("chen2023-lra", "%"), ("chen2023-cost", "GB"), ("mad", "%"),
])  # fmt: skip
def test_a_suite_has_the_rows_and_questions_of_the_published_table(name, unit):
    suite = find(name)
    keys = {*efforts(suite)["task"]}
    numbers = pd.concat([published(task=key, unit=unit) for key in keys])
    numbers = numbers[numbers["reference"].isin(suite.published)]
    assert {*numbers["reference"]} == {*suite.published}
    printed = {*zip(numbers["task"], numbers["attention"], strict=True)}
    rows, attentions = {*numbers["attention"]}, {row.attention for row in suite.rows}
    assert printed == {*product(keys, rows)} and len(keys) == len(suite.questions)
    assert rows < attentions if name == "mad" else rows == attentions


ROWS = ("softmax", "primal", "softmax+primal", "nystrom", "performer", "reformer")
# Of the settings that were compared with the papers and the code of their authors.
DIGESTS = {
    "listops": "45db7f2f8e95", "text": "671dbbf26715", "retrieval": "394d921d6419",
    "image": "eaf90bdc7b16", "pathfinder": "a9276546c0f6", "wikitext": "c431dcead169",
    "chen2023-lra": "bc719815e1ca", "chen2023-series": "60682bb07986",
    "chen2023-cost": "802d636ecb18", "chen2023-d4rl": "9f06be01ce1d", "mad": "67b1b385ec17",
    "zoology": "3732c3800798", "laptop": "e0f3122d7468",
}  # fmt: skip


@pytest.mark.parametrize("name", DIGESTS)
def test_a_published_set_up_is_the_one_that_was_compared_with_its_source(name, unread):
    if name == "chen2023-d4rl":  # whose task reads its file
        found = recipes.declared(find(name)).values()
    elif name == "chen2023-cost":
        # Where it is measured is no part of the set-up.
        anywhere = {"machine": "any", "threads": 1}
        measured = steps(COST, COST.questions, COST.rows, "cpu")
        found = [step.spec.model_copy(update=anywhere).id for step in measured]
    elif name == "laptop" or name in names():
        request = ("listops", name) if name == "laptop" else (name, "paper")
        found = [requested(row, request[0], recipe=request[1]).id for row in ROWS]
    else:
        rows = [f"conv+{row}" for row in ROWS[:2]] if name == "zoology" else ROWS
        questions = [of_suite(find(name), question, "cpu") for question in find(name).questions]
        found = [spec_of(question, row).id for question in questions for row in rows]
    assert hashlib.sha256("".join(found).encode()).hexdigest().startswith(DIGESTS[name])


@pytest.mark.parametrize("name", ["zoology", "chen2023-lra"])
def test_gpu_hours_are_runs_times_steps_times_the_seconds_of_a_step(name):
    suite = find(name)
    found, question = gpu_hours(efforts(suite)), suite.questions[0]
    assert [*found.index] == [question.name for question in suite.questions]
    line, per_row = found.iloc[0], len(question.rates) + len(question.seeds)
    recipe = recipes.of_question(suite, question.name).of_task(question.task)
    assert (line["rows"], line["steps"]) == (len(suite.rows), recipe.train["steps"])
    assert (line["runs"], line["assumed"]) == (per_row * len(suite.rows), name == "zoology")
    if line["assumed"]:
        seconds = line["rows"] * STEP_SECONDS * 3  # parts of 64, 128 and 256 tokens
    else:
        printed = published(task="listops@1", unit="s/1K steps")["value"] / 1000
        # Of two rows no time is published: they have the mean.
        assert len(printed) == line["rows"] - 2
        seconds = printed.sum() + 2 * printed.mean()
    assert line["hours"] == pytest.approx(per_row * line["steps"] * seconds / 3600)
    assert {*efforts(COST)["runs"]} == {0}


def test_a_suite_is_described_by_its_runs_and_gpu_hours(output):
    out = output("list", "chen2023-lra").splitlines()
    lines = json.loads(output("list", "chen2023-lra", "--json"))["questions"]
    for line, question in zip(lines, find("chen2023-lra").questions, strict=True):
        (row,) = (row.split() for row in out if row.startswith(question.name))
        counts = [f"{line[name]:,}" for name in ("rows", "runs", "steps")]
        assert row[:6] == [line["question"], *counts, f"{line['hours']:,.1f}", "published"]
    assert f"{sum(line['hours'] for line in lines):,.1f}" in "".join(out)


@pytest.mark.slow
def test_steps_are_measured_once_and_shown_beside_the_published_ones(call, store, outcomes):
    outcomes["softmax"] = "timeout"
    arguments = ("run", "--suite", "chen2023-cost", "--questions", "retrieval", "-a", "primal")
    code, out, err = call(*arguments)
    records, broken = CostStore.within(store.folder).read()
    assert code == 0 and len(records) == 3 and not broken, err
    assert "2,000 (185)" in " ".join(out.split()) and "timeout (1,334)" in out
    rows = {row["row"]: row for row in json.loads(call(*arguments, "--json")[1])["rows"]}
    assert [*rows] == ["softmax[backend=naive]", "softmax[backend=sdpa]", "primal"]
    assert rows["primal"]["seconds_per_1k_steps_median"] == 2000 and call("report")[0] == 0
    page = (store.folder / "chen2023-cost.md").read_text()
    assert "- softmax[backend=naive], retrieval: timeout: a reason" in page


# The data of one of its questions are missing.
MINE = """
title = "Mine"
version = 1
rows = ["primal", "softmax"]
published = ["Chen et al. 2023 (arXiv 2305.19798), Table 2"]
[all]
asks = "Classify."
recipe = "smoke"
precision = "fp32"
positions = "learned"
seeds = [0, 1]
[questions]
majority = { title = "Majority", task = "majority" }
image = { title = "Image", task = "image" }
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_missing_data_are_named_and_other_questions_run_untuned(call, store, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    code, _, err = call("run", "--suite", str(file), "--no-cost")
    assert code == 0, err
    assert "missing data of image: run 'harness data fetch image'" in " ".join(err.split())
    runs = of_records(store.read()[0])
    assert {*zip(runs["row"], runs["seed"], runs["question"], runs["role"], strict=True)} == {
        (row, seed, "majority", "") for row, seed in product(("primal", "softmax"), (0, 1))
    }
    assert (runs["train.lr"] == 1e-3).all() and call("report", "--suite", str(file))[0] == 0
    assert len(pd.read_csv(store.folder / "mine-answers.csv")) == len(runs)


def test_a_file_of_d4rl_in_the_folder_is_data_of_its_question(tmp_path, monkeypatch):
    suite = find("chen2023-d4rl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hopper_medium-v2.hdf5").touch()
    missing = missing_data(suite, suite.questions)
    assert len(missing) == 8 and "hopper-medium" not in missing
