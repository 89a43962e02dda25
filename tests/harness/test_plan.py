"""One request resolved once: overrides of the recipe, and data that are read once."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from pydantic import ValidationError

from harness.data import Data, restore
from harness.provenance import files_of, options_of
from harness.records.spec import TrainSpec
from tasks import create, names
from tasks.contract import Split
from tasks.lra.listops import ListOps
from tests.harness.conftest import TREES, Unread, requested
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
    assert spec.overrides == {f"{owner}.{name}": expected}
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
    assert spec.overrides == {"train.bucket_by_length": True}
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
    assert first.data.digests and first.data.summary.sizes == {"train": 64, "dev": 16, "test": 18}
    assert reads == {"train": 1, "dev": 1, "test": 1, "digest": 6}
    assert len(other.data.splits["train"]) and len(first.data.splits["train"]) == 64
    # Three digests of each task.
    assert reads == {"train": 2, "dev": 2, "test": 2, "digest": 6}


def test_data_are_of_a_task_with_its_options():
    data = Data.of(create("listops", **TREES))
    assert Data.of(create("listops", **TREES)) is data
    assert Data.of(create("listops", **{**TREES, "seed": 5})) is not data


def test_digests_of_the_data_are_part_of_the_identity():
    request = requested("softmax", "listops", listops=TREES)
    usual, changed = resolve(request), resolve(request, data_of=Unread)
    assert usual.spec.task.digests == {
        name: split.digest() for name, split in usual.data.splits.items()
    }
    assert usual.spec.id != changed.spec.id


def test_only_data_that_are_generated_now_are_announced():
    lines = []
    options = {**TREES, "seed": 7}
    first = resolve(requested("none", "listops", listops=options), lines.append)
    assert lines == [f"{first.task.key}: generate data"]
    resolve(requested("primal", "listops", listops=options), lines.append)
    resolve(requested("none", "majority"), lines.append)
    assert len(lines) == 1


def test_a_recorded_run_is_restored():
    plan = requested("softmax+primal", "listops", listops=TREES)
    restored = restore(plan)
    assert (restored.spec, restored.task.key) == (plan, plan.task.key)
    assert restored.spec.layers == ("softmax", "primal")
    assert restored.data is restore(plan)


def test_a_run_of_other_data_is_not_restored(plan):
    spec = plan()
    old = spec.task.model_copy(update={"key": "listops@0"})
    with pytest.raises(UserError, match=r"'listops@0', which is now 'listops@1\[.*run it again"):
        restore(spec.model_copy(update={"task": old}))
    other = spec.task.model_copy(update={"digests": {**spec.task.digests, "test": "x"}})
    with pytest.raises(UserError, match=r"the data of listops@1.* have changed since the run"):
        restore(spec.model_copy(update={"task": other}))


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
    request = replace(requested("none", str(path)), recipe="laptop")
    plan = resolve(request)
    assert (plan.task.name, plan.task.options["path"]) == ("table", str(path))
    (tmp_path / "shards").mkdir()
    path.rename(tmp_path / "shards" / "0.csv")
    folder = resolve(replace(request, task=str(tmp_path / "shards")))
    assert folder.spec.task.digests == plan.task.digests
    before = files_of(folder.spec.task)
    assert [*before] == [str(tmp_path / "shards")] and all(before.values())
    (tmp_path / "shards" / ".1.csv").write_text("hidden")
    assert files_of(folder.spec.task) == before
    (tmp_path / "shards" / "1.csv").write_text("text,label\nword,0\n")
    assert files_of(folder.spec.task) != before
