"""The data of runs: loaded and hashed once, part of the identity of a run, restored by it."""

from functools import partial
from itertools import count

import pytest

from harness.data import Data, restore
from harness.environment import files_of
from harness.records.spec import RunSpec
from tasks import create, names
from tasks.contract import Split
from tasks.lra.listops import ListOps
from tests.harness.conftest import TREES, requested
from tests.harness.specs import raising
from zoo.registry import UserError

SEEDS = count(100)


@pytest.fixture
def unused(tiny):
    # Data in use are not read again.
    return partial(tiny, settings={"listops": {"seed": next(SEEDS)}})


def test_the_splits_of_one_task_at_a_time_are_in_memory_and_are_hashed_once(
    unused, run_here, recorded
):
    loads = recorded(ListOps, "load", lambda task, split: split)
    digests = recorded(Split, "digest", lambda split: "digest")
    specs = [unused(attention, seed) for attention in ("softmax", "none") for seed in (0, 1)]
    for spec in specs:
        run_here(spec)
    assert sorted(loads) == ["dev", "test", "train"] and len(digests) == 3
    assert len({id(restore(spec)) for spec in specs}) == 1
    assert restore(spec).summary.sizes == {"train": 64, "dev": 16, "test": 18}
    other = requested("softmax", "majority", majority={"seed": next(SEEDS)})
    assert len(restore(other).splits["train"]) and len(restore(spec).splits["train"]) == 64
    # Three digests of each task.
    assert len(loads) == len(digests) == 6


def test_data_are_of_a_task_with_its_options_and_their_digests_are_of_the_run(tiny):
    data, spec = Data.of(create("listops", **TREES)), tiny()
    assert restore(spec) is Data.of(create("listops", **TREES)) is data
    assert Data.of(create("listops", **{**TREES, "seed": 5})) is not data
    splits = {name: split.digest() for name, split in data.splits.items()}
    assert spec.task.digests == spec.data == splits


def test_a_recorded_run_is_restored_and_a_run_of_other_data_is_not(tiny):
    spec = tiny("softmax+primal")
    again = RunSpec.model_validate_json(spec.model_dump_json(), strict=True)
    assert again.layers == ("softmax", "primal") and restore(again) is restore(spec)
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


@pytest.mark.parametrize(("error", "raised", "message"), [
    (MemoryError("3 TiB"), UserError, NO_MEMORY), (OverflowError("3 TiB"), UserError, NO_MEMORY),
    (RuntimeError("DefaultCPUAllocator: 3 TiB"), UserError, NO_MEMORY),
    (ValueError("array is too big; 3 TiB"), UserError, NO_MEMORY),
    (RuntimeError("a bug"), RuntimeError, "a bug"), (ValueError("a bug"), ValueError, "a bug"),
    (SystemExit(0), UserError, "task 'listops' exits with 0 when its data are loaded"),
], ids=repr)  # fmt: skip
def test_data_that_do_not_fit_in_memory_say_what_to_lower_and_other_errors_keep_their_traceback(
    unused, monkeypatch, error, raised, message
):
    monkeypatch.setattr(ListOps, "load", raising(error))
    with pytest.raises(raised, match=message):
        unused()


@pytest.mark.skipif("table" not in names(), reason="needs the table task")
def test_a_path_of_a_table_is_the_table_task(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("text,label\n" + "".join(f"word{i % 7},{i % 2}\n" for i in range(200)))
    spec = requested("none", str(path), recipe="laptop")
    assert (spec.task.name, spec.task.options["path"]) == ("table", str(path))
    (tmp_path / "shards").mkdir()
    path.rename(tmp_path / "shards" / "0.csv")
    folder = requested("none", str(tmp_path / "shards"), recipe="laptop")
    assert folder.task.digests == spec.task.digests
    before = files_of(folder.task)
    assert [*before] == [str(tmp_path / "shards")] and all(before.values())
    (tmp_path / "shards" / ".1.csv").write_text("hidden")
    assert files_of(folder.task) == before
    (tmp_path / "shards" / "1.csv").write_text("text,label\nword,0\n")
    assert files_of(folder.task) != before
