"""Examples as text."""

from dataclasses import replace

import pytest
import torch

from tasks import create
from tasks.contract import Split
from tasks.lra.listops import tokenise
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text
from tests.tasks.test_contract import split_of


def small(name: str) -> Split:
    return create(name, train=3, dev=2, test=2).load("train")


WORDS = {
    "copying": ([2, 17, 0, 1], "s0 s15 blank request"),
    "selective-copying": ([0, 3, 1], "blank s1 request"),
    "induction": ([2, 1, 5, 1], "s0 special s3 special"),
    "mqar": ([7, 4096, 4095, 8191], "k7 v0 k4095 v4095"),
    "adding": ([1, 102, 38, 202, 101], "0 [0] 0.37 [1] 1"),
    "majority": ([1, 2, 2], "0 1 1"),
    "parity": ([2, 1], "1 0"),
    "scaling": ([255, 3], "255 3"),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_tokens_of_a_synthetic_task_have_names(name):
    tokens, words = WORDS[name]
    task = create(name)
    assert max(tokens) < task.vocabulary
    sequences = torch.tensor([tokens, [1] * len(tokens)], dtype=torch.int16)
    lengths = torch.full((2,), len(tokens))
    split = Split.single(sequences, lengths, torch.zeros(2, dtype=torch.int64))
    assert task.show(split, 0) == [words]


@pytest.mark.parametrize("name", ["copying", "selective-copying", "induction", "mqar"])
def test_an_answer_has_the_name_of_its_token(name):
    task, split = create(name, train=3, dev=2, test=2), small(name)
    for example in range(len(split)):
        words = task.show(split, example)[0].split()
        answers = [task.class_name(target) for target in split.targets[example].tolist()]
        assert set(answers) <= set(words)
        if name == "copying":
            assert words[: len(answers)] == answers
        if name == "mqar":
            keys = [words.index(words[at]) for at in split.target_positions[example]]
            assert [words[key + 1] for key in keys] == answers


def test_a_tree_is_shown_as_it_is_written():
    source = "[MAX 2 9 [MIN 4 7 ] 0 [SM 8 [MED 1 2 ] ] ]"
    split = split_of(tokenise(source).tolist(), [1])
    task = create("listops")
    assert task.show(split, 0) == [source]
    assert task.show(split, 1) == [task.word(1)] == ["0"]


@pytest.mark.parametrize("task", [Text(), Retrieval()], ids=["text", "retrieval"])
def test_bytes_are_shown_as_text_and_truncated_characters_as_the_replacement_character(task):
    tokens = [1 + byte for byte in "café<br />".encode()]
    split = split_of(tokens, tokens[:4])
    assert task.show(split, 0) == ["café<br />"]
    assert task.show(split, 1) == ["caf\N{REPLACEMENT CHARACTER}"]


def test_every_sequence_of_an_example_is_shown():
    split = replace(split_of([98], [99, 100]), sequence_ids=torch.tensor([[1, 0], [1, 1]]).int())
    assert Retrieval().show(split, 0) == ["bc", "a"]
    assert split.tokens(1) == [[99, 100], [99, 100]]
