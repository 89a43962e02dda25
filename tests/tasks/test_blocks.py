"""Shuffled blocks: which order is left, and which is gone."""

from itertools import pairwise

import pytest
import torch

from tasks import contract
from tasks.registry import tasks
from tasks.blocks import ShuffledBlocks
from tasks.contract import Split, Task
from zoo.registry import UserError


class Counting(Task):
    """Every document counts from 1, and has another length."""

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
    found = ShuffledBlocks(Counting(), block).load(split)
    return [
        row[:n] for row, n in zip(found.sequences.tolist(), found.lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize("block", [1, 8, 16])
def test_every_token_stays_in_its_document_and_beside_its_block_mates(block):
    for row in sequences(block):
        assert sorted(row) == list(range(1, len(row) + 1))
        for one, other in pairwise(row):
            within = (one - 1) % block != block - 1 and one != len(row)
            assert (other == one + 1) or not within


@pytest.mark.parametrize("block", [1, 8])
def test_blocks_change_their_places_from_document_to_document(block):
    first, *_, last, also = sequences(block)
    assert sorted(first) != first
    assert first != last != also


def test_a_block_as_long_as_the_document_changes_nothing():
    whole = ShuffledBlocks(Counting(), 40).load("dev")
    assert torch.equal(whole.sequences, Counting().load("dev").sequences)


def test_padding_stays_behind_and_targets_stay_theirs():
    found, plain = ShuffledBlocks(Counting(), 8).load("test"), Counting().load("test")
    padding = torch.arange(40) >= found.lengths[:, None]
    assert torch.equal(found.lengths, plain.lengths)
    assert torch.equal(found.targets, plain.targets)
    assert (found.sequences[padding] == 50).all()
    assert (found.sequences[~padding] < 50).all()


def test_the_order_is_the_same_every_time_and_another_in_every_split():
    assert sequences(8) == sequences(8)
    assert sequences(8) != sequences(8, "dev")


def test_documents_are_looked_at_in_parts_and_shuffled_as_if_at_once(monkeypatch):
    at_once = sequences(1)
    monkeypatch.setattr(contract, "CHUNK", 3)
    assert sequences(1) == at_once


def test_the_order_of_shuffled_blocks_is_pinned():
    assert ShuffledBlocks(Counting(), 8).load("dev").digest() == (
        "bbb411c5dba648d7552c36bb855e49eccb7d5fe18d01ab5f3d656fec0d0656d3"
    )


def test_it_is_another_task_of_the_same_form():
    task = tasks.find("majority")(max_len=30)
    wrapped = ShuffledBlocks(task, 8)
    assert wrapped.key == "majority@1[max_len=30], blocks of 8 shuffled"
    assert (wrapped.classes, wrapped.vocabulary, wrapped.max_len) == (2, 3, 30)
    assert (wrapped.sequences, wrapped.causal) == (1, False)
    assert ShuffledBlocks(tasks.find("retrieval")(), 8).sequences == 2
    assert ShuffledBlocks(tasks.find("scaling")(causal=True), 8).causal


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShuffledBlocks(Counting(), 0), "block=0 must be at least 1"),
        (lambda: ShuffledBlocks(tasks.find("mqar")(train=5), 8).load("train"), "has target positions"),
    ],
)
def test_what_cannot_be_shuffled_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
