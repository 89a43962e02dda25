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
@pytest.mark.parametrize(("count", "batch"), [(12, 4), (8, 1), (5, 5), (11, 4), (900, 4)])
def test_an_epoch_gives_every_example_once_but_those_of_an_incomplete_batch(count, batch, bucketed):
    order = ShuffledBatches(count, batch, 0, CPU, LENGTHS[:count] if bucketed else None)
    per_epoch = count // batch
    for start in (0, per_epoch, 2 * per_epoch):
        examples = epoch(order, start, per_epoch)
        assert len(examples) == len({*examples} & {*range(count)}) == per_epoch * batch


def test_no_epoch_of_a_seed_has_the_order_of_any_epoch_of_another():
    orders = [ShuffledBatches(64, 8, seed, CPU) for seed in range(5)]
    found = {tuple(epoch(order, 8 * turn, 8)) for order in orders for turn in range(5)}
    assert len(found) == 25 and tuple(range(64)) not in found


@pytest.mark.parametrize("lengths", [None, LENGTHS[:10]], ids=["mixed", "bucketed"])
def test_batches_are_available_in_any_order(lengths):
    order = ShuffledBatches(10, 3, 1, CPU, lengths)
    forward = [order.batch(number).tolist() for number in range(9)]
    assert [ShuffledBatches(10, 3, 1, CPU, lengths).batch(n).tolist() for n in (8, 0, 4)] == [
        forward[8], forward[0], forward[4],
    ]  # fmt: skip
    assert [order.batch(number).tolist() for number in reversed(range(9))] == forward[::-1]


def test_a_split_smaller_than_one_batch_is_rejected():
    with pytest.raises(UserError, match="batch=4 exceeds the 3 training examples; lower the batch"):
        ShuffledBatches(3, 4, 0, CPU)


def test_bucketed_batches_hold_examples_of_similar_length_padded_to_the_longest():
    order = ShuffledBatches(1000, 10, 0, CPU, LENGTHS)
    assert ShuffledBatches(1000, 10, 0, CPU).length(3) is None
    spreads, longest = [], []
    for number in range(100):
        lengths = LENGTHS[order.batch(number)]
        spreads.append(int(lengths.max() - lengths.min()))
        longest.append(int(lengths.max()))
        length = order.length(number)
        assert length is not None
        assert length % LENGTH_STEP == 0
        assert longest[-1] <= length < longest[-1] + LENGTH_STEP
    assert sum(spreads) / len(spreads) < 10
    # Short and long batches are not in order of length.
    assert abs(torch.corrcoef(torch.tensor([range(100), longest]).float())[0, 1]) < 0.4


def test_bucketed_batches_differ_in_their_examples_between_epochs_and_seeds():
    def batches(seed: int, turn: int) -> set[frozenset[int]]:
        order = ShuffledBatches(1000, 4, seed, CPU, LENGTHS)
        return {frozenset(order.batch(250 * turn + i).tolist()) for i in range(250)}

    first = batches(0, 0)
    assert batches(0, 0) == first
    # About two examples have each length, so that without pools most batches would be the same.
    assert len(first & batches(0, 1)) < 25
    assert len(first & batches(1, 0)) < 25


def split_of(lengths: list[int], length: int = 300) -> Split:
    # What is beyond the lengths are other tokens.
    tokens = torch.randint(0, 9, (len(lengths), length), dtype=torch.uint8)
    return Split.single(tokens, torch.tensor(lengths), torch.arange(len(lengths)) % 3)


def test_a_gathered_batch_is_cut_to_its_length():
    split = split_of([40, 300, 10])
    whole, cut = (split.gather(torch.tensor([2, 0]), length) for length in (None, 64))
    assert whole.tokens.shape == (2, 1, 300)
    assert cut.tokens.shape == (2, 1, 64)
    assert torch.equal(cut.tokens, whole.tokens[..., :64])
    assert whole.mask is not None
    assert torch.equal(cut.mask, whole.mask[..., :64])
    assert split.gather(torch.tensor([1]), 320).tokens.shape == (1, 1, 300)


def test_an_example_is_as_long_as_its_longest_sequence():
    split = split_of([5, 20, 300])
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
