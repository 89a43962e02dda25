"""One request resolved once: overrides of the recipe, and data that are read once."""

from collections import Counter
from functools import partial
from itertools import count

import pytest
from pydantic import ValidationError

from harness.data import Data, restore
from harness.provenance import files_of, options_of
from harness.records.spec import RunSpec, TrainSpec
from tasks import create, names
from tasks.contract import Split
from tasks.lra.listops import ListOps
from tests.harness.conftest import TREES, requested
from tests.harness.specs import raising
from zoo.registry import UserError

SEEDS = count(100)


@pytest.fixture
def trees():
    """Options of ListOps whose data no other test has read: data in use are not read again."""
    return {**TREES, "seed": next(SEEDS)}


@pytest.fixture
def plan(plan, trees):
    return partial(plan, settings={"listops": trees})


@pytest.fixture
def smoke(trees):
    """Resolves a run with settings by owner."""

    def make(**settings):
        return requested("softmax", "listops", listops=trees, **settings)

    return make


@pytest.mark.parametrize(
    ("owner", "fields", "expected"),
    [
        ("train", {"lr": "3e-4"}, 3e-4),
        ("train", {"lr": 3e-4}, 3e-4),
        ("train", {"steps": "6"}, 6),
        ("train", {"cycle_momentum": "true"}, True),
        ("train", {"betas": "0.9,0.98"}, "0.9,0.98"),
        ("model", {"dim": "32"}, 32),
        ("model", {"dropout": "0"}, 0.0),
    ],
    ids=str,
)
def test_a_setting_overrides_one_field_of_the_recipe(smoke, owner, fields, expected):
    usual, spec = smoke(), smoke(**{owner: fields})
    ((name, _),) = fields.items()
    assert not spec.overrides
    assert spec.question.name == f"{usual.question.name} with {owner}.{name}={expected}"
    changed = getattr(spec, owner)
    assert changed.model_copy(update={name: getattr(getattr(usual, owner), name)}) == getattr(
        usual, owner
    )
    assert getattr(changed, name) == ((0.9, 0.98) if name == "betas" else expected)
    assert spec.id != usual.id


def test_an_option_of_a_variant_that_differs_from_the_recipe_is_an_override(trees):
    def spec(**primal):
        return requested("softmax+primal", "listops", listops=trees, primal=primal)

    changed = spec(rank="7", eta="0.3")
    assert changed.overrides == {"primal.rank": 7, "primal.eta": 0.3}
    usual = {name: str(options_of(spec())["primal"][name]) for name in ("rank", "eta")}
    assert spec(**usual) == spec() and not spec().overrides


def test_bucketing_by_length_is_an_override_and_not_for_compiled_models(smoke):
    spec = smoke(train={"bucket_by_length": "true"})
    assert spec.train.bucket_by_length
    assert spec.question.name.endswith("recipe smoke with train.bucket_by_length=True")
    repeated = {"bucket_by_length": "false", "lr": "1e-3", "betas": "0.9,0.999"}
    assert smoke(train=repeated, model={"dim": "64"}) == smoke()
    compiled = {**spec.train.model_dump(), "compiled": True}
    with pytest.raises(ValidationError, match=r"batches of many lengths.*; use either"):
        TrainSpec.model_validate(compiled)


@pytest.fixture
def reads(monkeypatch) -> Counter:
    """Counts of loaded splits of ListOps, and of hashed splits."""
    counts, load, digest = Counter(), ListOps.load, Split.digest

    def counting_load(task, split):
        counts[split] += 1
        return load(task, split)

    def counting_digest(split):
        counts["digest"] += 1
        return digest(split)

    monkeypatch.setattr(ListOps, "load", counting_load)
    monkeypatch.setattr(Split, "digest", counting_digest)
    return counts


def test_splits_are_loaded_and_hashed_once_for_many_runs(plan, run_here, reads):
    plans = [plan(attention, seed) for attention in ("softmax", "none") for seed in (0, 1)]
    for planned in plans:
        run_here(planned)
    assert reads == {"train": 1, "dev": 1, "test": 1, "digest": 3}
    assert len({id(restore(planned)) for planned in plans}) == 1


def test_the_splits_of_one_task_at_a_time_are_in_memory(plan, reads):
    first = plan()
    other = requested("softmax", "majority", majority={"seed": next(SEEDS)})
    sizes = {"train": 64, "dev": 16, "test": 18}
    assert restore(first).digests and restore(first).summary.sizes == sizes
    assert reads == {"train": 1, "dev": 1, "test": 1, "digest": 6}
    assert len(restore(other).splits["train"]) and len(restore(first).splits["train"]) == 64
    # Three digests of each task.
    assert reads == {"train": 2, "dev": 2, "test": 2, "digest": 6}


def test_data_are_of_a_task_with_its_options():
    data = Data.of(create("listops", **TREES))
    assert Data.of(create("listops", **TREES)) is data
    assert Data.of(create("listops", **{**TREES, "seed": 5})) is not data


def test_digests_of_the_data_are_part_of_the_identity():
    usual = requested("softmax", "listops", listops=TREES)
    splits = restore(usual).splits
    assert usual.task.digests == usual.data == {n: s.digest() for n, s in splits.items()}
    assert usual.id != usual.model_copy(update={"data": {**usual.data, "test": "x"}}).id


def test_only_data_that_are_generated_now_are_announced():
    lines = []
    options = {**TREES, "seed": 7}
    first = requested("none", "listops", announce=lines.append, listops=options)
    assert lines == [f"{first.task.key}: generate data"]
    requested("primal", "listops", announce=lines.append, listops=options)
    requested("none", "majority", announce=lines.append)
    assert len(lines) == 1


def test_a_recorded_run_is_restored():
    spec = requested("softmax+primal", "listops", listops=TREES)
    again = RunSpec.model_validate_json(spec.model_dump_json(), strict=True)
    assert again == spec and again.id == spec.id and again.layers == ("softmax", "primal")
    assert restore(again).task.key == spec.task.key and restore(again) is restore(spec)


def test_a_run_of_other_data_is_not_restored(plan):
    spec = plan()
    old = spec.question.task.model_copy(update={"key": "listops@0"})
    question = spec.question.model_copy(update={"task": old})
    with pytest.raises(UserError, match=r"'listops@0', which is now 'listops@1\[.*run it again"):
        restore(spec.model_copy(update={"question": question}))
    with pytest.raises(UserError, match=r"the data of listops@1.* have changed since the run"):
        restore(spec.model_copy(update={"data": {**spec.data, "test": "x"}}))


NO_MEMORY = (
    r"listops@1\[.*\] does not fit in memory \(.*3 TiB\); lower its lengths, or the size of its "
    "splits, for example --set listops.train=1000"
)


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (MemoryError("3 TiB"), UserError, NO_MEMORY),
        (OverflowError("3 TiB"), UserError, NO_MEMORY),
        (RuntimeError("DefaultCPUAllocator: 3 TiB"), UserError, NO_MEMORY),
        (ValueError("array is too big; 3 TiB"), UserError, NO_MEMORY),
        (ValueError("Maximum allowed dimension exceeded: 3 TiB"), UserError, NO_MEMORY),
        (RuntimeError("a bug"), RuntimeError, "a bug"),
        (ValueError("a bug"), ValueError, "a bug"),
        (SystemExit(0), UserError, "task 'listops' exits with 0 when its data are loaded"),
    ],
    ids=repr,
)
def test_data_that_do_not_fit_in_memory_say_what_to_lower_and_other_errors_keep_their_traceback(
    smoke, monkeypatch, error, raised, message
):
    monkeypatch.setattr(ListOps, "load", raising(error))
    with pytest.raises(raised, match=message):
        smoke()


@pytest.mark.skipif("table" not in names(), reason="needs the table task")
def test_a_path_of_a_table_is_the_table_task(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("text,label\n" + "".join(f"word{i % 7},{i % 2}\n" for i in range(200)))
    plan = requested("none", str(path), recipe="laptop")
    assert (plan.task.name, plan.task.options["path"]) == ("table", str(path))
    (tmp_path / "shards").mkdir()
    path.rename(tmp_path / "shards" / "0.csv")
    folder = requested("none", str(tmp_path / "shards"), recipe="laptop")
    assert folder.task.digests == plan.task.digests
    before = files_of(folder.task)
    assert [*before] == [str(tmp_path / "shards")] and all(before.values())
    (tmp_path / "shards" / ".1.csv").write_text("hidden")
    assert files_of(folder.task) == before
    (tmp_path / "shards" / "1.csv").write_text("text,label\nword,0\n")
    assert files_of(folder.task) != before
