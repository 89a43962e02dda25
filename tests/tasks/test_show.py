"""Examples as a person reads them, and the digest that names the data of a split."""

import hashlib
from dataclasses import replace

import pytest
import torch

from tasks.registry import tasks
from tasks.answers import Number
from tasks.contract import Split
from tasks.lra.listops import tokenise
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text


def split_of(*sequences: list[int]) -> Split:
    """Each document as an example, padded to the longest by 9, which is read by nobody."""
    longest = max(map(len, sequences))
    padded = [one + [9] * (longest - len(one)) for one in sequences]
    lengths = torch.tensor([len(one) for one in sequences])
    tokens = torch.tensor(padded, dtype=torch.uint8)
    return Split.single(tokens, lengths, torch.arange(len(sequences)))


def small(name: str) -> Split:
    return tasks.find(name)(train=3, dev=2, test=2).load("train")


WORDS = {
    "copying": ([2, 17, 0, 1], "s0 s15 blank ask"),
    "selective-copying": ([0, 3, 1], "blank s1 ask"),
    "induction": ([2, 1, 5, 1], "s0 special s3 special"),
    "mqar": ([7, 4096, 4095, 8191], "k7 v0 k4095 v4095"),
    "adding": ([1, 102, 38, 202, 101], "0 [0] 0.37 [1] 1"),
    "majority": ([1, 2, 2], "0 1 1"),
    "parity": ([2, 1], "1 0"),
    "scaling": ([255, 3], "255 3"),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_tokens_of_a_synthetic_task_go_by_name(name):
    tokens, words = WORDS[name]
    task = tasks.find(name)()
    assert max(tokens) < task.vocabulary
    sequences = torch.tensor([tokens, [1] * len(tokens)], dtype=torch.int16)
    lengths = torch.full((2,), len(tokens))
    split = Split.single(sequences, lengths, torch.zeros(2, dtype=torch.int64))
    assert task.show(split, 0) == [words]


@pytest.mark.parametrize("name", ["copying", "selective-copying", "induction", "mqar"])
def test_an_answer_goes_by_the_name_of_the_token_that_gives_it(name):
    task, split = tasks.find(name)(train=3, dev=2, test=2), small(name)
    for example in range(len(split)):
        words = task.show(split, example)[0].split()
        answers = [task.label(target) for target in split.targets[example].tolist()]
        assert set(answers) <= set(words)
        if name == "copying":
            assert words[: len(answers)] == answers
        if name == "mqar":
            assert [
                words[words.index(words[at]) + 1] for at in split.target_positions[example]
            ] == answers


def test_a_tree_reads_as_it_was_written():
    source = "[MAX 2 9 [MIN 4 7 ] 0 [SM 8 [MED 1 2 ] ] ]"
    split = split_of(tokenise(source).tolist(), [1])
    task = tasks.find("listops")()
    assert task.show(split, 0) == [source]
    assert task.show(split, 1) == [task.word(1)] == ["0"]


@pytest.mark.parametrize("task", [Text(), Retrieval()], ids=["text", "retrieval"])
def test_bytes_read_as_text_and_what_is_cut_in_two_as_the_replacement_character(task):
    whole = [1 + byte for byte in "café<br />".encode()]
    split = split_of(whole, whole[:4])
    assert task.show(split, 0) == ["café<br />"]
    assert task.show(split, 1) == ["caf\N{REPLACEMENT CHARACTER}"]


def test_every_document_of_an_example_is_shown():
    split = replace(split_of([98], [99, 100]), sequence_ids=torch.tensor([[1, 0], [1, 1]]).int())
    assert Retrieval().show(split, 0) == ["bc", "a"]
    assert split.tokens(1) == [[99, 100], [99, 100]]


@pytest.mark.parametrize("name", tasks.names())
def test_every_class_goes_by_a_name_of_its_own(name):
    task = tasks.find(name)()
    names = [task.label(target) for target in range(task.classes)]
    assert all(names) and len(set(names)) == task.classes


def test_padding_and_the_width_of_an_integer_do_not_tell():
    split = split_of([1, 2, 3], [4])
    wider = replace(
        split,
        sequences=torch.tensor([[1, 2, 3, 0], [4, 0, 8, 8]]),
        lengths=split.lengths.long(),
        sequence_ids=split.sequence_ids.long(),
        targets=split.targets.int(),
    )
    assert wider.digest() == split.digest()


def test_the_digest_is_of_names_shapes_and_numbers_of_four_bytes():
    split = split_of([1, 2], [3])

    def four(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, "little") for number in numbers)

    written = b"lengths 2 " + four(2, 1) + b"rows 2x1 " + four(0, 1) + b"targets 2 " + four(0, 1)
    assert split.digest() == hashlib.sha256(written + four(1, 2, 3)).hexdigest()


CHANGES = {
    "a token": {"sequences": torch.tensor([[1, 2], [5, 9]])},
    "a length": {"lengths": torch.tensor([1, 1])},
    "a row": {"sequence_ids": torch.tensor([[0], [0]])},
    "the shape of the targets": {"targets": torch.tensor([[0], [1]])},
    "a target": {"targets": torch.tensor([0, 2])},
    "a kind of target": {"targets": torch.tensor([0.0, 1.0])},
    "what is asked": {"target_positions": torch.tensor([[0], [0]])},
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_is_learned_from_tells(what):
    split = split_of([1, 2], [3])
    assert replace(split, **CHANGES[what]).digest() != split.digest()


def test_a_split_of_many_documents_is_hashed_whole(monkeypatch):
    split = small("parity")
    whole = split.digest()
    monkeypatch.setattr("tasks.contract.CHUNK", 2)
    assert split.digest() == whole
    last = split.sequences.clone()
    last[-1, -1] = 3 - last[-1, -1]
    assert replace(split, sequences=last, answers=Number(1.0)).digest() != whole
