"""Suites: their files, their recipes, and the runs that complete them."""

from dataclasses import replace
from itertools import product
from types import MappingProxyType

import pytest

from harness import budgets
from harness.data import Data
from harness.plan import Request, resolve
from harness.records import suites
from harness.records.store import name_of_run
from harness.records.suites import label_of
from harness.tuning import row
from zoo.registry import UserError

REQUEST = Request(
    attention="primal", task="mqar", budget="laptop@1/recall-16", seed=1, device="cpu",
    precision="bf16", compiled=False,
)  # fmt: skip


class Unread(Data):
    """Data that are never read: their digests are given."""

    digests = MappingProxyType({"train": "a", "dev": "b", "test": "c"})


SUITE = """
title = "Two questions"
version = 3
rows = ["softmax", { attention = "primal", options.primal.rank = 8 }]
[cost]
lengths = [64]
passes = ["train"]
precision = "fp32"
dim = 8
heads = 2
batch.train = "1"

[all]
task = "mqar"
precision = "fp32"
positions = "none"
rates = [1e-3, 1e-2]
seeds = [1, 2]
model = { depth = 2, dim = 16 }
train = { steps = 4 }

[questions.easy]
title = "easy"
asks = "Recall two pairs."
options = { pairs = 2, max_len = 32 }

[questions.hard]
extends = "easy"
asks = "Recall four pairs."
options = { pairs = 4 }
model = { dim = 8 }
"""


@pytest.fixture
def file(tmp_path):
    """Writes a suite file, with a text of it replaced."""

    def write(old="", new=""):
        (tmp_path / "mine.toml").write_text(SUITE.replace(old, new) if old else SUITE)
        return str(tmp_path / "mine.toml")

    return write


def test_a_question_has_the_fields_of_all_and_of_the_question_that_it_extends(file):
    suite = suites.find(file())
    easy, hard = suite.questions
    assert (suite.key, suite.question("hard")) == ("mine@3", hard)
    assert (easy.model, easy.rates, easy.title) == ({"depth": 2, "dim": 16}, (1e-3, 1e-2), "easy")
    assert (hard.options, hard.model) == ({"pairs": 4, "max_len": 32}, {"depth": 2, "dim": 8})
    assert [row.label for row in suite.rows] == ["softmax", "primal[rank=8]"]


def test_the_laptop_suite_is_found_with_and_without_its_version():
    suite = suites.find("laptop")
    assert suites.find("laptop@1") is suite
    assert len({question.name for question in suite.questions}) == len(suite.questions) >= 5


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("version = 3\n", "", "version is missing"),
        ("asks =", "ask = 1\nasks =", "'ask'"),
        ('extends = "easy"', 'extends = "easier"', "'easier'"),
        ("rates = [1e-3, 1e-2]", "rates = [1e-3]", "rates"),
        ("seeds = [1, 2]", "seeds = [0, 1]", "seeds"),
        ('["softmax",', '["primal", "softmax", "primal",', "'primal' is there twice"),
        ("options = { pairs = 4 }", "options = 4", "options"),
        ("[questions.easy]", "[questions.Easy]", "Easy"),
        ("batch.train =", "batch.decode =", "'train' has no batch"),
    ],
)
def test_a_malformed_suite_is_rejected_with_the_value(file, old, new, named):
    with pytest.raises(UserError) as error:
        suites.find(file(old, new))
    assert named in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["lapto", "laptop@2", "nowhere.toml", "sub/laptop.toml"])
def test_a_suite_that_is_not_there_is_rejected(name):
    with pytest.raises(UserError, match=r"laptop|nowhere"):
        suites.find(name)


def test_every_row_of_the_laptop_suite_has_a_recipe_for_every_question():
    suite = suites.find("laptop")
    for question, own in product(suite.questions, suite.rows):
        budget = f"{suite.key}/{question.name}"
        request = replace(
            REQUEST, attention=own.attention, task=question.task, budget=budget,
            settings=own.options,
        )  # fmt: skip
        spec = resolve(request, data_of=Unread).spec
        fixed = spec.model.positions, spec.train.precision, spec.train.lr
        assert fixed == (question.positions, question.precision, sorted(question.rates)[1])
        assert label_of(spec.attention, spec.overrides) == own.label
        assert "/" not in name_of_run(spec)


def test_the_trials_of_a_question_have_its_rates():
    question = suites.find("laptop").question("recall-16")
    rates = [trial.spec.train.lr for trial in row(replace(REQUEST, settings={}), {}).trials]
    assert rates == sorted(question.rates)


@pytest.mark.parametrize("name", ["laptop@1/recal-16", "laptop@7/copy", "/copy"])
def test_a_question_that_is_not_there_is_rejected(name):
    with pytest.raises(UserError):
        budgets.find(name)


def test_a_budget_file_cannot_be_a_question(tmp_path):
    (tmp_path / "my.toml").write_text("question = 1")
    with pytest.raises(UserError, match="question"):
        budgets.find(str(tmp_path / "my.toml"))
