"""From a recipe to a specification: the recipes of the package, and of a TOML file."""

import pytest

from harness import recipes
from harness.environment import options_of
from harness.questions import composed
from tasks.registry import tasks
from tests.conftest import one_line
from tests.harness.conftest import requested
from zoo.registry import UserError
from zoo.variants import variants


def resolved(attention="softmax", task="listops", recipe="paper", settings=None):
    return requested(attention, task, recipe=str(recipe), **(settings or {}))


pytestmark = pytest.mark.usefixtures("unread")

CHECKED = [name for name, variant in variants.items() if not variant.unchecked]
PUBLISHED = ("listops", "text", "retrieval", "image", "pathfinder")
RECIPES = [
    (recipe, task)
    for recipe in recipes.NAMES
    for task, factory in tasks.items()
    if "path" not in factory.option_names() and (recipe != "paper" or task in PUBLISHED)
]


@pytest.mark.slow_after(20)
@pytest.mark.parametrize(("recipe", "task"), RECIPES)
def test_every_recipe_resolves_every_variant(recipe, task):
    of_task = recipes.find(recipe).of_task(task)
    for name in CHECKED:
        assert composed(of_task.variants, name, {})[1]["options"].keys() == {name}
    spec = resolved("primal" if of_task.model["depth"] == 1 else "softmax+primal", task, recipe)
    assert (spec.task.name, spec.question.recipe, spec.overrides) == (task, recipe, {})
    assert spec.train.warmup < spec.train.steps and 1 <= spec.train.evaluations <= spec.train.steps
    assert spec.data == {"train": "a", "dev": "b", "test": "c"}
    assert tasks.find(task)(**spec.task.options).key == spec.task.key
    assert recipe != "smoke" or spec.task.options["train"] <= 64


def test_a_task_extends_a_shared_recipe_part_by_part(tmp_path):
    shared = """
[shared.base]
model = { dim = 128, heads = 4 }
train = { lr = 0.5 }
variants = { nystrom = { landmarks = 8 } }

[tasks.text]
extends = "base"
model = { heads = 8 }
"""
    options = "reformer = { hashes = 3 }, nystrom = { conv = 3 }, "
    text, recipe = recipes.show("paper"), tmp_path / "mine.toml"
    for old, new in (("[tasks.text]\n", shared),
                     ("primal = { rank = 20, eta = 0.05 }, ", options),
                     ("feed_forward = 128", "feed_forward = 64")):  # fmt: skip
        assert old in text
        text = text.replace(old, new, 1)
    recipe.write_text(text)
    spec, other = resolved("nystrom", "text", recipe), resolved("nystrom", "listops", recipe)
    assert (spec.model.dim, spec.model.heads, spec.model.feed_forward) == (128, 8, 64)
    assert (other.model.dim, other.model.heads, other.model.feed_forward) == (64, 2, 64)
    assert (spec.train.lr, spec.train.steps) == (0.5, 20000)
    assert options_of(spec)["nystrom"].items() >= {("landmarks", 8), ("conv", 3)}
    assert options_of(other)["nystrom"].items() >= {("landmarks", 64), ("conv", 35)}
    assert options_of(resolved("reformer", "text", recipe))["reformer"]["hashes"] == 3


SMOKE = recipes.show("smoke")

# Part of the message that answers a request, or the text of a recipe file.
BAD = {
    "unknown recipe 'papr'; did you mean 'paper'": {"recipe": "papr"},
    "; use recipe 'laptop' or 'smoke'": {"task": "mqar"},
    "did you mean 'backend'": {"settings": {"softmax": {"backnd": "sdpa"}}},
    "max_len=9 must be at least": {"settings": {"listops": {"max_len": 9}}},
    "train.lr=-1: input should be greater than 0; give": {"settings": {"train": {"lr": -1}}},
    "warmup=5 exceeds steps=4;": {"settings": {"train": {"steps": 4, "warmup": 5}}},
    "schedule=cosine needs cycle_momentum=false": {
        "settings": {"train": {"schedule": "cosine", "cycle_momentum": True}}},
    "of model 'heds'; did you mean 'heads' or 'head'?": {"settings": {"model": {"heds": "1"}}},
    # files
    "cannot be read (Invalid value": "train = [",
    "cannot be read ('utf-8' codec": b"\xff",
    "remove 'question'": "question = 1",
    "unknown part 'trian'; did you mean 'train' or 'variants'?": "[trian]",
    "recipe 'mine': train.batch is missing; set it": "[other]",
    "'lrr'; did you mean 'lr'?": SMOKE.replace("lr =", "lrr ="),
    "use --precision": SMOKE.replace("lr =", "precision = 'bf16'\nlr ="),
    "recipe 'mine': unknown attention variant 'primel'; did": f"{SMOKE}\n[variants.primel]",
    "unknown shared recipe 'short'": SMOKE.replace(
        "[tasks.listops]", "[tasks.listops]\nextends = 'short'"),
    "model.dropout=True is a boolean": "[other.model]\ndropout = true\n",
}  # fmt: skip


@pytest.mark.slow_after(15)
@pytest.mark.parametrize("message", BAD)
def test_a_bad_request_or_file_is_one_line(tmp_path, message):
    request, path = BAD[message], tmp_path / "mine.toml"
    if not isinstance(request, dict):
        path.write_bytes(request if isinstance(request, bytes) else request.encode())
        request = {"recipe": path}
    with one_line(message):
        resolved(**request)


@pytest.mark.parametrize(("stem", "text"), [
    *((stem, SMOKE) for stem in ("laptop", "two words", "", "x" * 65)),
    ("my", "x = " + "[" * 3000 + "]" * 3000), ("my", "[" + ".".join("a" * 3000) + "]"),
    ("my", "[a.a.a.a.a.a.a]"), ("my", "depth = " + "9" * 6000),
    ("my", "[tasks.listops.train]\nsteps = 0x" + "F" * 6000),
    ("my", "[variants.primal]\nrank = [9223372036854775808]"),
], ids=lambda text: text[:9])  # fmt: skip
def test_a_name_or_a_file_that_no_record_or_parser_can_hold_is_one_short_line(tmp_path, stem, text):
    path = tmp_path / f"{stem}.toml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        resolved(recipe=path)
    line = str(error.value)
    assert str(path) in line and "\n" not in line and len(line) < 400


@pytest.mark.parametrize(("owner", "name", "value", "expected"), [
    ("train", "lr", "3e-4", 3e-4), ("train", "lr", 3e-4, 3e-4), ("train", "steps", "6", 6),
    ("train", "cycle_momentum", "true", True), ("train", "betas", "0.9,0.98", (0.9, 0.98)),
    ("model", "dropout", "0", 0.0),
])  # fmt: skip
def test_a_setting_replaces_one_field_of_the_recipe(owner, name, value, expected):
    usual = resolved(recipe="smoke")
    spec = resolved(recipe="smoke", settings={owner: {name: value}})
    named = value if name == "betas" else expected
    assert spec.question.name == f"{usual.question.name} with {owner}.{name}={named}"
    before, changed = getattr(usual, owner), getattr(spec, owner)
    assert changed.model_dump() == {**before.model_dump(), name: expected}
    assert spec.id != usual.id and not spec.overrides
    # A value of the recipe is no setting.
    text = str(before.model_dump()[name]).lower().strip("()").replace(" ", "")
    assert resolved(recipe="smoke", settings={owner: {name: text}}) == usual


def test_settings_override_the_recipe_and_leave_the_rest():
    settings = {"primal": {"rank": "7"}, "listops": {"max_len": "900"}}
    spec, usual = resolved("softmax+primal", settings=settings), resolved("softmax+primal")
    assert options_of(spec)["primal"] == {**options_of(usual)["primal"], "rank": 7}
    assert spec.overrides == {"primal.rank": 7} and not usual.overrides
    repeated = {name: str(options_of(usual)["primal"][name]) for name in ("rank", "eta")}
    assert resolved("softmax+primal", settings={"primal": repeated}) == usual
    assert spec.task.options == {**usual.task.options, "max_len": 900}
    assert spec.task.key == "listops@1[max_len=900]" and spec.train == usual.train
    assert resolved("softmax", settings={"primal": {"rank": 7}}) == resolved("softmax")
