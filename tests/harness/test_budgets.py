"""From a request to a specification."""

import copy
import hashlib
import json
from dataclasses import replace

import pytest

from harness import budgets
from harness.records.spec import RunSpec
from tasks.registry import tasks
from tasks.contract import Task
from tasks.synthetic.base import SyntheticTask
from zoo.conformance import checks_for, run, subjects
from zoo.registry import UserError
from zoo.variants import variants


def request(attention="softmax", task="listops", budget="paper", settings=None):
    return budgets.Request(
        attention=attention, task=task, budget=budget, seed=3, device="cpu", precision="fp32",
        compiled=False, settings=settings or {},
    )  # fmt: skip


def plan(*args, **kwargs):
    return budgets.plan(request(*args, **kwargs))


STACKS = [*variants.names(), "softmax+primal", "primal+softmax"]


PUBLISHED = {
    "listops": (32, 5000, 1000, 20, 0.1, 30, 0.05),
    "text": (32, 20000, 8000, 20, 0.05, 30, 0.1),
    "retrieval": (32, 30000, 800, 30, 0.0, 20, 0.05),
    "image": (256, 35000, 175, 30, 0.1, 30, 0.1),
    "pathfinder": (256, 62400, 312, 30, 0.1, 20, 0.05),
}
"""Chen et al., 2023: batch, steps, warm-up; rank and eta of primal; the same of X+primal."""

RECIPES = [
    (budget, task)
    for budget in budgets.names()
    for task in tasks.names()
    if budget != "paper" or task in PUBLISHED
]


@pytest.mark.parametrize("attention", STACKS)
@pytest.mark.parametrize(("budget", "task"), RECIPES)
def test_every_budget_plans_every_task_with_every_variant(budget, task, attention):
    spec = plan(attention, task, budget)
    assert (spec.attention, spec.task.name, spec.budget, spec.seed) == (attention, task, budget, 3)
    assert spec.options.keys() == set(attention.split("+"))
    assert spec.train.warmup < spec.train.steps
    assert 1 <= spec.train.evaluations <= spec.train.steps
    assert tasks.find(task)(**spec.task.options).key == spec.task.key


def test_budgets_are_named_from_the_smallest_to_the_largest():
    assert budgets.names() == ["smoke", "laptop", "paper"]


@pytest.mark.parametrize("task", [name for name in tasks.names() if name != "scaling"])
def test_a_larger_budget_trains_for_more_steps(task):
    names = [name for name in budgets.names() if (name, task) in RECIPES]
    steps = [plan(task=task, budget=name).train.steps for name in names]
    assert steps == sorted(set(steps))
    assert len(steps) >= 2


@pytest.mark.parametrize("task", PUBLISHED)
def test_paper_is_the_published_recipe(task):
    own, last = plan("primal", task), plan("softmax+primal", task)
    primal, plus = own.options["primal"], last.options["primal"]
    assert own.train == last.train
    assert own.train.evaluations == 20
    assert (
        own.train.batch, own.train.steps, own.train.warmup, primal["rank"], primal["eta"],
        plus["rank"], plus["eta"],
    ) == PUBLISHED[task]  # fmt: skip
    for options in (primal, plus):
        assert (options["rank_multi"], options["trace"]) == (10, "weights")
        assert options["projections"] in ("auto", "dependent")
        assert options["ksvd_mean"] == "batch"


@pytest.mark.parametrize("task", PUBLISHED)
def test_paper_takes_every_task_at_its_published_size(task):
    spec = plan(task=task)
    assert spec.task.key == f"{task}@{tasks.find(task).version}"


def test_listops_drops_nothing_on_a_laptop_and_has_the_published_model_for_the_rest():
    usual, laptop = plan().model, plan(budget="laptop").model
    assert (usual.dropout, laptop.dropout) == (0.1, 0.0)
    assert laptop.model_copy(update={"dropout": usual.dropout}) == usual


def test_what_a_task_says_of_a_variant_leaves_what_it_is_like_for_the_rest(monkeypatch):
    tables = copy.deepcopy(budgets._tables())
    tables["laptop"]["tasks"]["mqar"]["variants"] = {"nystrom": {"conv": 3}}
    monkeypatch.setattr(budgets, "_tables", lambda: tables)
    options = plan("nystrom", "mqar", "laptop").options["nystrom"]
    assert (options["landmarks"], options["conv"]) == (8, 3)
    assert plan("local", "mqar", "laptop").options["local"]["window"] == 8


def test_a_task_may_have_a_model_of_its_own_in_a_budget(monkeypatch):
    tables = budgets._tables()
    own = {**tables["paper"]["tasks"]["text"], "model": {"dim": 128}}
    paper = {**tables["paper"], "tasks": {**tables["paper"]["tasks"], "text": own}}
    paper["model"] = {"dim": 32, "feed_forward": 64}
    monkeypatch.setattr(budgets, "_tables", lambda: {**tables, "paper": paper})
    text, listops = plan(task="text").model, plan().model
    assert (text.dim, text.feed_forward, text.heads) == (128, 64, 2)
    assert (listops.dim, listops.feed_forward, listops.heads) == (32, 64, 2)


def test_a_task_takes_what_it_is_like_part_by_part_under_what_it_says_itself(monkeypatch):
    tables = budgets._tables()
    like = {
        "model": {"dim": 128, "heads": 4},
        "train": {"lr": 0.5},
        "variants": {"nystrom": {"landmarks": 8}},
    }
    text = {**tables["paper"]["tasks"]["text"], "like": "kin", "model": {"heads": 8}}
    text["variants"] = {"reformer": {"hashes": 3}}
    paper = {**tables["paper"], "tasks": {"text": text}, "kin": like}
    monkeypatch.setattr(budgets, "_tables", lambda: {**tables, "paper": paper})
    spec = plan("nystrom", task="text")
    assert (spec.model.dim, spec.model.heads) == (128, 8)
    assert (spec.train.lr, spec.train.steps) == (0.5, 20000)
    assert spec.options["nystrom"].items() >= {("landmarks", 8), ("conv", 35)}
    assert plan("reformer", task="text").options["reformer"]["hashes"] == 3


COVERING = {"landmarks": 1, "window": 1, "bucket": 2}
"""Options by which a variant is softmax itself on this many times as many tokens, or fewer."""

APPROXIMATED = [
    name
    for name in tasks.names()
    if issubclass(tasks.find(name), SyntheticTask) and name not in ("scaling", "parity")
]
"""All but a task that nobody learns, and one of 8 tokens: too few for an approximation."""


@pytest.mark.parametrize("attention", variants.names())
@pytest.mark.parametrize("task", APPROXIMATED)
def test_no_approximation_covers_a_synthetic_task_on_a_laptop(task, attention):
    spec = plan(attention, task, "laptop")
    for option, times in COVERING.items():
        assert times * spec.options[attention].get(option, 0) < spec.task.options["max_len"]


def test_paper_is_the_published_model_and_optimiser():
    spec = plan()
    assert spec.model.model_dump() == {
        "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128, "head": 128, "dropout": 0.1,
        "attention_dropout": spec.model.attention_dropout, "positions": "learned",
    }  # fmt: skip
    train = spec.train
    assert (train.lr, train.betas, train.eps, train.weight_decay) == (1e-4, (0.9, 0.999), 1e-6, 0.0)


@pytest.mark.parametrize("budget", ["paper", "laptop"])
def test_the_baselines_have_their_published_options(budget):
    assert plan("nystrom", budget=budget).options["nystrom"].items() >= {
        ("landmarks", 64), ("conv", 35),
    }  # fmt: skip
    assert plan("performer", budget=budget).options["performer"]["features"] == 256
    assert plan("reformer", budget=budget).options["reformer"]["hashes"] == 2


def test_the_options_of_a_last_layer_are_for_the_last_layer_only():
    assert plan("softmax+primal").options["primal"]["rank"] == 30
    assert plan("nystrom+primal").options["primal"]["rank"] == 30
    assert plan("primal").options["primal"]["rank"] == 20
    assert plan("primal+softmax").options["primal"]["rank"] == 20


@pytest.mark.parametrize("attention", ["primal", "softmax+primal", "primal+softmax"])
def test_settings_beat_the_budget_and_leave_the_rest(attention):
    spec = plan(attention, settings={"primal": {"rank": "7"}, "listops": {"max_len": "900"}})
    usual = plan(attention)
    assert spec.options["primal"] == {**usual.options["primal"], "rank": 7}
    assert spec.task.options == {**usual.task.options, "max_len": 900}
    assert spec.task.key == "listops@1[max_len=900]"
    assert spec.train == usual.train


def test_settings_beat_the_task_options_of_a_budget():
    usual = plan(budget="laptop").task.options
    spec = plan(budget="laptop", settings={"listops": {"max_len": "600"}})
    assert usual["max_len"] != 600
    assert spec.task.options == {**usual, "max_len": 600}


def test_settings_of_another_variant_change_nothing():
    assert plan("softmax", settings={"primal": {"rank": 7}}) == plan("softmax")


BAD = {
    "variant": ({"attention": "primel"}, "unknown attention variant 'primel'; did you mean"),
    "task": ({"task": "listop"}, "unknown task 'listop'; did you mean 'listops'"),
    "budget": ({"budget": "papr"}, "unknown budget 'papr'; did you mean 'paper'"),
    "no budget": ({"budget": "model"}, "unknown budget 'model'"),
    "option": ({"settings": {"softmax": {"backnd": "sdpa"}}}, "did you mean 'backend'"),
    "choice": ({"settings": {"softmax": {"backend": "x"}}}, r"backend=x is not one of auto, sdpa"),
    "type": ({"settings": {"listops": {"max_len": "long"}}}, "max_len=long is not of type int"),
    "task option": ({"settings": {"listops": {"maxlen": 9}}}, "did you mean 'max_len'"),
    "range": ({"settings": {"listops": {"max_len": 9}}}, "max_len=9 must be at least"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_unknown_or_bad_is_refused(what):
    given, message = BAD[what]
    with pytest.raises(UserError, match=message) as caught:
        plan(**given)
    assert "\n" not in str(caught.value)


def test_a_task_that_a_budget_does_not_name_gets_its_general_recipe_or_is_refused(monkeypatch):
    class Stranger(Task):
        name, version, classes, vocabulary, max_len = "stranger", 1, 2, 2, 4

        def load(self, split):
            raise NotImplementedError

    monkeypatch.setitem(tasks._own, "stranger", Stranger)
    with pytest.raises(UserError, match=r"'paper' has no recipe for task 'stranger'.*use budget"):
        plan(task="stranger")
    assert plan(task="stranger", budget="laptop").train.steps == 500
    assert plan(task="stranger", budget="smoke").train.steps == 4


def test_a_task_that_no_paper_trained_on_has_no_paper_recipe():
    with pytest.raises(UserError, match="budget 'paper' has no recipe for task 'mqar'"):
        plan(task="mqar")


def test_runs_that_were_recorded_before_positions_and_blocks_could_be_chosen_keep_their_names():
    learned, rotary = (
        budgets.plan(replace(request(), positions=kind)) for kind in ("learned", "rotary")
    )
    before = learned.model_dump(mode="json")
    del before["model"]["positions"], before["task"]["block"]
    assert RunSpec.model_validate(before).id == learned.id != rotary.id
    text = json.dumps(before, sort_keys=True, separators=(",", ":"))
    assert learned.id == hashlib.sha256(text.encode()).hexdigest()[:16]


TUNED = sorted(
    {
        (name.lstrip("+"), tuple(sorted(options.items())))
        for budget, tables in ((one, budgets._tables()[one]) for one in budgets.names())
        for table in [tables, *(budgets._recipe(budget, task) for task in tables["tasks"])]
        for name, options in table.get("variants", {}).items()
    }
)


@pytest.mark.parametrize(("name", "options"), TUNED, ids=str)
def test_padding_and_batch_mates_are_not_felt_with_the_options_of_a_recipe(name, options):
    for subject in subjects(name, variants.find(name), dict(options)):
        for check in checks_for(subject):
            if check.group in ("padding", "batch-mates"):
                result = run(check, subject)
                assert result.passed, result.finding.figure
