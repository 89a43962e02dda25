"""The order of the data, with and without batches of similar length."""

import pytest
import torch

from harness.batches import LENGTH_STEP, ShuffledBatches, in_order
from tasks.contract import Split
from zoo.registry import UserError

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


def test_a_split_smaller_than_one_batch_is_rejected():
    with pytest.raises(UserError, match="batch=4 exceeds the 3 training examples; lower the batch"):
        ShuffledBatches(3, 4, 0, CPU)


def test_bucketed_batches_hold_examples_of_similar_length_padded_to_the_longest():
    order = ShuffledBatches(1000, 10, 0, CPU, LENGTHS)
    assert ShuffledBatches(1000, 10, 0, CPU).length(3) is None
    batches = [LENGTHS[order.batch(number)] for number in range(100)]
    longest = [int(lengths.max()) for lengths in batches]
    steps = [order.length(number) for number in range(100)]
    assert steps == [-(-length // LENGTH_STEP) * LENGTH_STEP for length in longest]
    assert sum(int(lengths.max() - lengths.min()) for lengths in batches) / 100 < 10
    # Short and long batches are not in order of length.
    assert abs(torch.corrcoef(torch.tensor([range(100), longest]).float())[0, 1]) < 0.4


def split_of(lengths: list[int], length: int = 300) -> Split:
    # What is beyond the lengths are other tokens.
    tokens = torch.randint(0, 9, (len(lengths), length), dtype=torch.uint8)
    return Split.single(tokens, torch.tensor(lengths), torch.arange(len(lengths)) % 3)


def test_a_batch_is_cut_to_a_length_and_an_example_is_as_long_as_its_longest_sequence():
    split = split_of([5, 20, 300])
    whole, cut = (split.gather(torch.tensor([2, 0]), length) for length in (None, 64))
    assert torch.equal(cut.tokens, whole.tokens[..., :64])
    assert torch.equal(cut.mask, whole.mask[..., :64])
    assert split.gather(torch.tensor([1]), 320).tokens.shape == (1, 1, 300)
    pairs = Split(
        split.sequences, split.lengths, torch.tensor([[0, 1], [2, 0]], dtype=torch.int32),
        torch.tensor([0, 1]), padded=True,
    )  # fmt: skip
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
