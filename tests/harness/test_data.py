"""The data of runs and their order: batches, with and without those of similar length."""

from dataclasses import replace
from itertools import count, product

import pytest
import torch

from harness.batches import LENGTH_STEP, ShuffledBatches, in_order
from harness.data import restore
from harness.environment import files_of
from harness.records.spec import RunSpec
from tasks import names
from tasks.contract import Split
from tasks.lra.listops import ListOps
from tasks.synthetic.base import SyntheticTask
from tests.harness.conftest import requested
from tests.harness.specs import raising
from zoo.registry import UserError

SEEDS = count(100)


def test_the_splits_of_one_task_at_a_time_are_in_memory_and_are_hashed_once(run_here, recorded):
    loads = recorded(SyntheticTask, "load", lambda task, split: split)
    digests = recorded(Split, "digest", lambda split: "digest")
    of = {"seed": next(SEEDS), "train": 64, "dev": 16, "test": 18}  # data in use are not read again
    runs = product(("softmax", "none"), (0, 1))
    specs = [requested(name, "majority", seed=seed, majority=of) for name, seed in runs]
    for spec in specs:
        run_here(spec)
    assert sorted(loads) == ["dev", "test", "train"] and len(digests) == 3
    assert len({id(restore(spec)) for spec in specs}) == 1
    assert restore(spec).summary.sizes == {"train": 64, "dev": 16, "test": 18}
    other = requested("softmax", "majority", majority={"seed": next(SEEDS)})
    assert len(restore(other).splits["train"]) and len(restore(spec).splits["train"]) == 64
    # The first data were read again, and not hashed again.
    assert (len(loads), len(digests)) == (9, 6)


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
    tiny, monkeypatch, error, raised, message
):
    monkeypatch.setattr(ListOps, "load", raising(error))
    with pytest.raises(raised, match=message):
        tiny(settings={"listops": {"seed": next(SEEDS)}})


@pytest.mark.skipif("table" not in names(), reason="needs the table task")
def test_a_path_of_a_table_is_the_table_task(tmp_path):
    def of(path):
        return requested("none", str(path), recipe="laptop").task

    path, folder = tmp_path / "mine.csv", tmp_path / "shards"
    path.write_text("text,label\n" + "".join(f"word{i % 7},{i % 2}\n" for i in range(200)))
    digests = of(path).digests
    assert (of(path).name, of(path).options["path"]) == ("table", str(path))
    folder.mkdir()
    path.rename(folder / "0.csv")
    task = of(folder)
    before = files_of(task)
    assert task.digests == digests and [*before] == [str(folder)] and all(before.values())
    (folder / ".1.csv").write_text("hidden")
    assert files_of(task) == before
    (folder / "1.csv").write_text("text,label\nword,0\n")
    assert files_of(task) != before


CPU = torch.device("cpu")
LENGTHS = torch.randint(1, 500, (1000,), generator=torch.Generator().manual_seed(0))


def epoch(order: ShuffledBatches, first: int, batches: int) -> list[int]:
    return [i for number in range(first, first + batches) for i in order.batch(number).tolist()]


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize(("count", "batch"), [(8, 1), (5, 5), (11, 4), (900, 4)])
def test_an_epoch_gives_every_example_once_but_those_of_an_incomplete_batch(count, batch, bucketed):
    order = ShuffledBatches(count, batch, 0, CPU, LENGTHS[:count] if bucketed else None)
    per_epoch = count // batch
    epochs = [epoch(order, start * per_epoch, per_epoch) for start in (0, 2, 1)]
    for examples in epochs:
        assert len(examples) == len({*examples} & {*range(count)}) == per_epoch * batch
    # Batches are available in any order.
    assert epoch(order, 0, 3 * per_epoch) == [*epochs[0], *epochs[2], *epochs[1]]
    orders = [*epochs, epoch(ShuffledBatches(count, batch, 1, CPU), 0, per_epoch)]
    assert len({*map(tuple, [*orders, range(count)])}) == 5 or count < 8


def test_a_bucketed_batch_is_padded_to_its_longest_example():
    order = ShuffledBatches(1000, 10, 0, CPU, LENGTHS)
    longest = [int(LENGTHS[order.batch(number)].max()) for number in range(100)]
    steps = [order.length(number) for number in range(100)]
    assert steps == [-(-length // LENGTH_STEP) * LENGTH_STEP for length in longest]


def split_of(lengths: list[int], length: int = 300) -> Split:
    # What is beyond the lengths are other tokens.
    tokens = torch.randint(0, 9, (len(lengths), length), dtype=torch.uint8)
    return Split.single(tokens, torch.tensor(lengths), torch.arange(len(lengths)) % 3)


def test_a_batch_is_cut_to_a_length_and_an_example_is_as_long_as_its_longest_sequence():
    split, ids = split_of([5, 20, 300]), torch.tensor([[0, 1], [2, 0]], dtype=torch.int32)
    whole, cut = (split.gather(torch.tensor([2, 0]), length) for length in (None, 64))
    assert torch.equal(cut.tokens, whole.tokens[..., :64])
    assert torch.equal(cut.mask, whole.mask[..., :64])
    pairs = replace(split, sequence_ids=ids, targets=torch.tensor([0, 1]))
    assert pairs.example_lengths().tolist() == [20, 300]


@pytest.mark.parametrize("by_length", [False, True])
def test_every_example_is_evaluated_once(by_length):
    split = split_of([128, 300, 3, 129, 70])
    batches = list(in_order(split, 2, by_length))
    # A batch is padded to its longest example, which is not its first.
    lengths = [None] * 3 if not by_length else [128, 192, 320]
    order = [0, 1, 2, 3, 4] if not by_length else [2, 4, 0, 3, 1]
    assert [length for _, length in batches] == lengths
    assert [i for examples, _ in batches for i in examples.tolist()] == order
