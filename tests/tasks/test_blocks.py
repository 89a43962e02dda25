"""Shuffled blocks: which order remains and which does not."""

from itertools import pairwise

import pytest
import torch

from tasks import contract, create
from tasks.blocks import ShuffledBlocks
from tasks.contract import Split, Task
from zoo.registry import UserError


class Counting(Task):
    """Every sequence counts from 1, and has another length."""

    name = "counting"
    version = 2
    classes = 2
    vocabulary = 60
    max_len = 40

    def load(self, split):
        lengths = torch.tensor([40, 39, 25, 8, 7, 1, 40, 40]).int()
        sequences = torch.arange(1, 41, dtype=torch.uint8).repeat(8, 1)
        sequences[torch.arange(40) >= lengths[:, None]] = 50
        return Split.single(sequences, lengths, torch.tensor([0, 1] * 4))


def sequences(block, split="train"):
    shuffled = ShuffledBlocks(Counting(), block).load(split)
    rows = zip(shuffled.sequences.tolist(), shuffled.lengths.tolist(), strict=True)
    return [row[:n] for row, n in rows]


@pytest.mark.parametrize("block", [1, 8, 16])
def test_every_token_stays_in_its_sequence_and_next_to_the_others_of_its_block(block):
    for row in sequences(block):
        assert sorted(row) == list(range(1, len(row) + 1))
        for token, following in pairwise(row):
            within = (token - 1) % block != block - 1 and token != len(row)
            assert (following == token + 1) or not within


@pytest.mark.parametrize("block", [1, 8])
def test_the_order_of_blocks_differs_between_sequences(block):
    first, *_, last, also = sequences(block)
    assert sorted(first) != first
    assert first != last != also


def test_a_block_as_long_as_the_sequence_changes_nothing():
    unchanged = ShuffledBlocks(Counting(), 40).load("dev")
    assert torch.equal(unchanged.sequences, Counting().load("dev").sequences)


def test_padding_stays_at_the_end_and_targets_do_not_change():
    shuffled, plain = ShuffledBlocks(Counting(), 8).load("test"), Counting().load("test")
    padding = torch.arange(40) >= shuffled.lengths[:, None]
    assert torch.equal(shuffled.lengths, plain.lengths)
    assert torch.equal(shuffled.targets, plain.targets)
    assert (shuffled.sequences[padding] == 50).all()
    assert (shuffled.sequences[~padding] < 50).all()


def test_the_order_is_deterministic_and_differs_between_splits():
    assert sequences(8) == sequences(8)
    assert sequences(8) != sequences(8, "dev")


def test_the_order_does_not_depend_on_the_chunks(monkeypatch):
    at_once = sequences(1)
    monkeypatch.setattr(contract, "CHUNK", 3)
    assert sequences(1) == at_once


def test_the_order_of_shuffled_blocks_is_pinned():
    assert ShuffledBlocks(Counting(), 8).load("dev").digest() == (
        "606aaedd21d1a5d55137c99217f89528484d9744b16bef8bdf16fa44a65283c6"
    )


def test_it_is_another_task_of_the_same_shape():
    task = create("majority", max_len=30)
    wrapped = ShuffledBlocks(task, 8)
    assert wrapped.key == "majority@1[max_len=30], blocks of 8 shuffled"
    assert (wrapped.classes, wrapped.vocabulary, wrapped.max_len) == (2, 3, 30)
    assert (wrapped.sequences, wrapped.causal) == (1, False)
    assert ShuffledBlocks(create("retrieval"), 8).sequences == 2
    assert ShuffledBlocks(create("scaling", causal=True), 8).causal


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShuffledBlocks(Counting(), 0), "block=0 must be at least 1"),
        (lambda: ShuffledBlocks(create("mqar", train=5), 8).load("train"), "has target positions"),
    ],
)
def test_what_cannot_be_shuffled_is_an_error(make, message):
    with pytest.raises(UserError, match=message):
        make()
