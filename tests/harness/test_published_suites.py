"""The suites of the tables of Chen et al. 2023: rows, recipes, missing data, what they show."""

import csv
import json
from itertools import product

import pandas as pd
import pytest

from harness import recipes
from harness.provenance import options_of
from harness.records.frame import of_records
from harness.records.store import CostStore
from harness.records.suites import find
from harness.suite import missing_data, steps
from reports.papers import published
from tasks.registry import tasks
from tasks.uea.series import SeriesTask

COST = find("chen2023-cost")
QUICK = ("run", "--suite", "chen2023-cost", "--questions", "retrieval")


def recipe_of(suite, name):
    return recipes.of_question(suite, name).of_task(suite.question(name).task)


def cost_steps():
    return steps(COST, COST.questions, COST.rows, "cpu")


@pytest.mark.parametrize(("name", "unit"), [("series", "%"), ("lra", "%"), ("cost", "GB")])
def test_a_suite_has_the_rows_and_questions_of_the_published_table(name, unit):
    suite = find(f"chen2023-{name}")
    keys = [f"{q.task}@{tasks.find(q.task).version}" for q in suite.questions]
    numbers = pd.concat([published(task=key, unit=unit) for key in keys])
    assert {*numbers["reference"]} == {suite.published}
    printed = {*zip(numbers["task"], numbers["attention"], strict=True)}
    assert printed == {*product(keys, (row.attention for row in suite.rows))}


def test_every_time_series_and_every_data_set_of_d4rl_is_a_question():
    series = {question.task for question in find("chen2023-series").questions}
    assert series == {name for name, task in tasks.items() if issubclass(task, SeriesTask)}
    suite = find("chen2023-d4rl")
    ranks = {
        name: recipes.options_of(recipe_of(suite, name).variants, ["softmax", "primal"])["primal"][
            "rank"
        ]
        for name in (question.name for question in suite.questions)
    }
    assert {name: rank for name, rank in ranks.items() if rank != 96} == {
        "halfcheetah-medium-replay": 32, "halfcheetah-medium": 64, "hopper-medium-expert": 64,
        "hopper-medium-replay": 64,
    }  # fmt: skip
    assert len(ranks) == 9
    assert suite.question("hopper-medium").options == {
        "path": "hopper_medium-v2.hdf5", "env": "Hopper-v5",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["lra", "series", "d4rl"])
def test_a_question_has_the_recipe_of_the_paper(name):
    suite = find(f"chen2023-{name}")
    for question in suite.questions:
        recipe = recipe_of(suite, question.name)
        paper = recipes.find("paper").of_task(question.task)
        assert (recipe.model, recipe.train) == (paper.model, paper.train)
        names = ["softmax", "performer"]
        assert recipes.options_of(recipe.variants, names) == recipes.options_of(
            paper.variants, names
        )


def test_the_steps_have_the_shapes_and_options_of_the_published_runs():
    specs = {(step.question, step.row): step.spec for step in cost_steps()}
    questions = {question for question, _ in specs}
    primal = {question: specs[question, "primal"] for question in questions}
    # Retrieval has 32 examples of two documents.
    assert {question: (spec.batch, spec.length) for question, spec in primal.items()} == {
        "listops": (32, 2000), "text": (32, 4000), "retrieval": (64, 4000),
        "image": (256, 1024), "pathfinder": (256, 1024),
    }  # fmt: skip
    ranks = {question: options_of(spec)["primal"]["rank"] for question, spec in primal.items()}
    assert ranks == {"listops": 20, "text": 20, "retrieval": 30, "image": 30, "pathfinder": 30}
    assert options_of(specs["text", "nystrom"])["nystrom"]["landmarks"] == 64
    assert options_of(specs["text", "softmax[backend=naive]"])["softmax"]["backend"] == "naive"
    model = primal["text"].model
    assert model and (model.depth, model.dim, model.heads, model.dropout) == (2, 64, 2, 0.1)
    # Steps of the same shape are one measurement.
    assert primal["image"].id == primal["pathfinder"].id
    assert len({spec.id for spec in primal.values()}) == 4


def test_every_published_cost_has_a_step():
    for step in cost_steps():
        found = published(task=step.task, attention=step.attention)
        assert {*found["unit"]} >= {"s/1K steps", "GB"}


@pytest.mark.slow
def test_steps_are_measured_once_and_shown_beside_the_published_ones(call, store, outcomes):
    outcomes["softmax"] = "timeout"
    arguments = (*QUICK, "-a", "primal")
    code, out, err = call(*arguments)
    assert code == 0, err
    records, broken = CostStore.within(store.folder).read()
    assert len(records) == 3 and not broken
    assert "2,000 (185)" in " ".join(out.split()) and "timeout (1,334)" in out
    code, out, _ = call(*arguments)
    assert code == 0 and out.count("(already present)") == 3
    code, out, _ = call(*arguments, "--json")
    rows = {row["row"]: row for row in json.loads(out)["rows"]}
    assert [*rows] == ["softmax[backend=naive]", "softmax[backend=sdpa]", "primal"]
    assert rows["primal"]["seconds_per_1k_steps_median"] == 2000
    assert call("report")[0] == 0
    page = (store.folder / "chen2023-cost.md").read_text()
    assert "- softmax[backend=naive], retrieval: timeout: a reason" in page
    lines = [*csv.DictReader((store.folder / "chen2023-cost.csv").read_text().splitlines())]
    assert {line["published_peak_memory_gb"] for line in lines if line["row"] == "primal"} == {
        "0.69", "1.37", "2.99", "1.39", "1.52"
    }  # fmt: skip


@pytest.fixture
def file(tmp_path):
    """A suite of short runs; the data of one of its questions are missing."""
    (tmp_path / "mine.toml").write_text(
        """
        title = "Mine"
        version = 1
        rows = ["primal", "softmax"]
        published = "Chen et al. 2023 (arXiv 2305.19798), Table 2"
        [all]
        asks = "Classify."
        recipe = "smoke"
        precision = "fp32"
        positions = "learned"
        seeds = [0, 1]
        [questions]
        listops = { title = "ListOps", task = "listops" }
        image = { title = "Image", task = "image" }
        """
    )
    return str(tmp_path / "mine.toml")


@pytest.mark.slow
def test_missing_data_are_named_and_the_other_questions_run_without_tuning(
    call, store, file, outcomes
):
    code, _, err = call("run", "--suite", file)
    assert code == 0, err
    assert "missing data of image: run 'harness data fetch image'" in " ".join(err.split())
    runs = of_records(store.read()[0])
    assert {*zip(runs["row"], runs["seed"], runs["question"], runs["role"], strict=True)} == {
        (row, seed, "listops", "") for row, seed in product(("primal", "softmax"), (0, 1))
    }
    assert (runs["train.lr"] == 1e-3).all()
    assert call("report", "--suite", file)[0] == 0
    page = (store.folder / "mine.md").read_text()
    mean = runs[runs["row"] == "primal"]["score"].mean()
    assert f"| listops | primal | 2 | {mean:.1f} [" in page and "No runs" in page
    seeds = pd.read_csv(store.folder / "mine-answers.csv")
    assert [*seeds["seed"]] == [*runs["seed"]] and "best_on_test" in seeds


def test_a_file_of_d4rl_in_the_folder_is_data_of_its_question(tmp_path, monkeypatch):
    suite = find("chen2023-d4rl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hopper_medium-v2.hdf5").touch()
    missing = missing_data(suite, suite.questions)
    assert len(missing) == 8 and "hopper-medium" not in missing
