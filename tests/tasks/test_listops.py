"""ListOps against its rules, its published form and an independent solver."""

import hashlib
import lzma
from pathlib import Path

import pytest

from tasks.data.corpus import Corpus
from tasks.lra import listops
from tasks.lra import listops_trees as trees
from tasks.lra.listops import ListOps, evaluate, render, tokenise
from tests.conftest import one_line

PUBLISHED = Path(__file__).parents[1] / "data" / "listops_nyu_d20s_test.tsv.xz"
PUBLISHED_SHA256 = "43b092547b56fae1eecddfc3ca2c1f33103bccd3fcb5e627981ae0c7ddce9136"


@pytest.fixture(scope="module")
def published() -> list[tuple[int, str]]:
    packed = PUBLISHED.read_bytes()
    assert hashlib.sha256(packed).hexdigest() == PUBLISHED_SHA256
    head, *rows = lzma.decompress(packed).decode().splitlines()
    assert head == "Target\tSource"
    return [(int(target), source) for target, source in (row.split("\t") for row in rows)]


@pytest.mark.parametrize(("text", "tokens", "value"), [
    ("7", [8], 7), ("[MIN 4 2 9 ]", [11, 5, 3, 10, 15], 2), ("[MAX 0 3 ]", [12, 1, 4, 15], 3),
    ("[MED 9 1 4 ]", [13, 10, 2, 5, 15], 4), ("[MED 1 2 9 4 ]", [13, 2, 3, 10, 5, 15], 3),
    ("[MED 3 4 ]", [13, 4, 5, 15], 3), ("[MED 8 9 ]", [13, 9, 10, 15], 8),
    ("[SM 9 8 7 ]", [14, 10, 9, 8, 15], 4), ("[SM 5 5 ]", [14, 6, 6, 15], 0),
    ("[MAX 2 [MIN 8 6 ] [SM 9 4 ] ]", [12, 3, 11, 9, 7, 15, 14, 10, 5, 15, 15], 6),
])  # fmt: skip
def test_examples_have_these_tokens_and_this_value(text, tokens, value):
    assert tokenise(text).tolist() == tokens
    assert render(tokens) == text
    assert evaluate(tokens) == value
    assert evaluate([*tokens, trees.PAD, trees.PAD]) == value


def test_every_published_tree_has_its_published_value(published):
    correct = sum(evaluate(tokenise(source)) == target for target, source in published)
    assert (correct, len(published)) == (10_000, 10_000)


@pytest.mark.parametrize("text", ["", "1 2", "[MAX 1 2", "1 ]", "[MAX ]", "[MAX 1 ] ]"])
def test_tokens_that_are_not_one_complete_tree_have_no_value(text):
    with one_line(text[:5]):
        evaluate(tokenise(text))


def test_every_target_is_the_value_of_its_tree():
    split = ListOps(min_len=20, max_len=200, train=900, dev=50, test=50).load("train")
    assert [*map(evaluate, split.sequences.tolist())] == split.targets.tolist()


def test_too_few_distinct_trees_are_an_error_with_their_number(home, monkeypatch):
    monkeypatch.setattr(listops, "MAX_EMPTY_BLOCKS", 3)
    # Below four tokens there are the ten digits only.
    with one_line("10 distinct trees", "11"):
        ListOps(min_len=0, max_len=4, train=9, dev=1, test=1).load("train")
    assert not list(home.glob("*.npz"))
    assert len(ListOps(min_len=0, max_len=4, train=8, dev=1, test=1).load("train")) == 8


def test_empty_blocks_end_the_search_only_if_consecutive(monkeypatch):
    digits = [Corpus.of([bytes([1 + digit])], [digit]) for digit in range(10)]
    monkeypatch.setattr(listops, "MAX_EMPTY_BLOCKS", 2)
    # Every tree comes twice: of two consecutive blocks one has a new tree.
    monkeypatch.setattr(ListOps, "draw", lambda task, block: digits[block // 2 % 10])
    task = ListOps(min_len=0, max_len=4, train=8, dev=1, test=1)
    assert len(task.generate(1)["train_targets"]) == 8
