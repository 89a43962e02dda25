"""ListOps against its rules, its published form and an independent solver."""

import hashlib
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.data.corpus import Corpus
from tasks.lra import listops
from tasks.lra import listops_trees as trees
from tasks.lra.listops import VALUES, WORDS, ListOps, evaluate, render, tokenise
from zoo.registry import UserError

PUBLISHED = Path(__file__).parents[1] / "data" / "listops_nyu_d20s_test.tsv.xz"
PUBLISHED_SHA256 = "43b092547b56fae1eecddfc3ca2c1f33103bccd3fcb5e627981ae0c7ddce9136"
SMALL = {"min_len": 20, "max_len": 200, "train": 900, "dev": 50, "test": 50}


@pytest.fixture(scope="module")
def published() -> list[tuple[int, str]]:
    packed = PUBLISHED.read_bytes()
    assert hashlib.sha256(packed).hexdigest() == PUBLISHED_SHA256
    head, *rows = lzma.decompress(packed).decode().splitlines()
    assert head == "Target\tSource"
    return [(int(target), source) for target, source in (row.split("\t") for row in rows)]


@pytest.fixture(scope="module")
def raw() -> list[np.ndarray]:
    """Trees as drawn, except a few of more than 20,000 tokens."""
    blocks = [ListOps(min_len=0, max_len=20_000, seed=5).draw(block) for block in range(4)]
    return [np.frombuffer(tree, np.uint8) for block in blocks for tree in block.sequences()]


@pytest.fixture(scope="module")
def shapes(raw) -> list[tuple[list[int], list[int]]]:
    return [shape_of(tokens) for tokens in raw]


def shape_of(tokens) -> tuple[list[int], list[int]]:
    """The arity of every operator, and the depth of every digit, the root being at depth 1."""
    arities, depths, pending = [], [], []
    for word in render(tokens).split():
        if word in VALUES:
            pending.append(0)
            continue
        if word == "]":
            arities.append(pending.pop())
        else:
            depths.append(len(pending) + 1)
        if pending:
            pending[-1] += 1
    return arities, depths


@pytest.mark.parametrize(
    ("text", "tokens", "value"),
    [
        ("7", [8], 7),
        ("[MIN 4 2 9 ]", [11, 5, 3, 10, 15], 2),
        ("[MAX 0 3 ]", [12, 1, 4, 15], 3),
        ("[MED 9 1 4 ]", [13, 10, 2, 5, 15], 4),
        ("[MED 1 2 9 4 ]", [13, 2, 3, 10, 5, 15], 3),
        ("[MED 3 4 ]", [13, 4, 5, 15], 3),
        ("[MED 8 9 ]", [13, 9, 10, 15], 8),
        ("[SM 9 8 7 ]", [14, 10, 9, 8, 15], 4),
        ("[SM 5 5 ]", [14, 6, 6, 15], 0),
        ("[MAX 2 [MIN 8 6 ] [SM 9 4 ] ]", [12, 3, 11, 9, 7, 15, 14, 10, 5, 15, 15], 6),
    ],
)
def test_examples_have_these_tokens_and_this_value(text, tokens, value):
    assert tokenise(text).tolist() == tokens
    assert render(tokens) == text
    assert evaluate(tokens) == value
    assert evaluate([*tokens, trees.PAD, trees.PAD]) == value


def test_the_published_form_is_read_without_its_round_brackets():
    assert render(tokenise("( ( ( [MAX 1 ) 2 ) ] )")) == "[MAX 1 2 ]"


def test_every_published_tree_has_its_published_value(published):
    correct = sum(evaluate(tokenise(source)) == target for target, source in published)
    assert (correct, len(published)) == (10_000, 10_000)


def test_every_bracket_is_a_token_that_matters(published):
    for _, source in published[:2000]:
        tokens = tokenise(source)
        operators = np.isin(tokens, [WORDS[name] for name in VALUES]).sum()
        assert (tokens == trees.CLOSE).sum() == operators == source.count("[")
    inner, outer = "[SM 1 [MAX 2 3 ] 4 ]", "[SM 1 [MAX 2 3 4 ] ]"
    assert inner.replace("]", "").split() == outer.replace("]", "").split()
    assert (evaluate(tokenise(inner)), evaluate(tokenise(outer))) == (8, 5)


def test_an_unknown_word_is_an_error():
    with pytest.raises(UserError, match=r"'\[AVG' is not a word of ListOps; known: "):
        tokenise("( ( ( [AVG 1 ) 2 ) ] )")


@pytest.mark.parametrize("text", ["", "1 2", "[MAX 1 2", "1 ]", "[MAX ]", "[MAX 1 ] ]"])
def test_tokens_that_are_not_one_complete_tree_have_no_value(text):
    with pytest.raises(UserError, match="one complete tree"):
        evaluate(tokenise(text))


def test_a_deep_tree_needs_no_recursion():
    assert evaluate(tokenise("[SM 1 " * 5000 + "0" + " ]" * 5000)) == 0


def test_drawn_trees_have_the_published_depth_and_arity(raw, shapes):
    for tokens, (arities, depths) in zip(raw, shapes, strict=True):
        assert len(tokens) == 2 * len(arities) + len(depths)
        assert max(depths) <= 10
        assert all(2 <= arity <= 10 for arity in arities)
    assert max(max(depths) for _, depths in shapes) == 10


def test_three_roots_of_four_are_digits(raw):
    assert len(raw) > 16_000
    share = sum(len(tokens) == 1 for tokens in raw) / (4 * 4096)
    assert share == pytest.approx(0.75, abs=4 * (0.1875 / len(raw)) ** 0.5)


def test_three_children_of_four_are_digits_above_the_depth_limit(raw):
    digits = operators = 0
    for tokens in raw:
        level = 1
        for token in tokens.tolist():
            is_operator = trees.FIRST_OPERATOR <= token < trees.CLOSE
            if 1 < level < 10 and token != trees.CLOSE:
                operators += is_operator
                digits += not is_operator
            level += is_operator - (token == trees.CLOSE)
    assert digits / (digits + operators) == pytest.approx(0.75, abs=0.005)


@pytest.mark.parametrize("kind", ["arity", "operator", "digit"])
def test_every_kind_of_choice_is_uniform(raw, shapes, kind):
    everything = np.concatenate(raw)
    choices = {
        "arity": np.array([arity for arities, _ in shapes for arity in arities]) - 2,
        "operator": everything[(everything >= 11) & (everything < 15)] - 11,
        "digit": everything[(everything >= 1) & (everything < 11)] - 1,
    }[kind]
    counts = np.bincount(choices)
    assert len(counts) == {"arity": 9, "operator": 4, "digit": 10}[kind]
    # Five standard deviations of a binomial count.
    tolerance = 5 * (len(choices) / len(counts)) ** 0.5
    assert np.abs(counts - len(choices) / len(counts)).max() < tolerance


def test_the_compiled_generator_equals_the_same_lines_in_plain_python(monkeypatch):
    def draw(generator):
        rng = np.random.Generator(np.random.PCG64(9))
        tokens, ends = np.zeros(400 * 90, np.uint8), np.zeros(400, np.int64)
        targets = np.zeros(400, np.uint8)
        number = generator(rng, 400, 3, 90, tokens, ends, targets)
        return number, tokens.tobytes(), ends.tobytes(), targets.tobytes()

    compiled = draw(trees.draw_trees)
    plain = trees.draw_trees.py_func
    for name in ("draw_tree", "apply"):
        monkeypatch.setattr(trees, name, getattr(trees, name).py_func)
    assert draw(plain) == compiled
    assert compiled[0] > 20


@pytest.mark.parametrize("seed", [0, 1])
def test_every_target_is_the_value_of_its_tree(seed):
    split = ListOps(**SMALL, seed=seed).load("train")
    values = [evaluate(tree) for tree in split.sequences.tolist()]
    assert values == split.targets.tolist()


def test_lengths_are_strictly_between_the_limits():
    split = ListOps(min_len=20, max_len=24, train=300, dev=1, test=1).load("train")
    assert sorted(set(split.lengths.tolist())) == [21, 22, 23]
    assert split.sequences.shape == (300, 24)
    assert split.sequences.dtype == torch.uint8
    assert ((split.sequences != 0).sum(1) == split.lengths).all()


def test_frequent_trees_are_spread_over_the_splits():
    task = ListOps(min_len=0, max_len=6, train=700, dev=350, test=350)
    shares = [float((task.load(s).lengths <= 4).float().mean()) for s in ("train", "dev", "test")]
    assert max(shares) < 1.5 * min(shares)


def test_the_trees_of_all_splits_are_distinct_and_others_for_another_seed():
    splits = [ListOps(**SMALL, seed=3).load(name) for name in ("train", "dev", "test")]
    assert [len(split) for split in splits] == [900, 50, 50]
    trees = {tuple(tree) for split in splits for tree in split.sequences.tolist()}
    other = ListOps(**SMALL, seed=0).load("train").sequences.tolist()
    assert len(trees) == 1000 and len(trees & {*map(tuple, other)}) < 50


def test_every_setting_is_generated_once(home, monkeypatch):
    for seed in (0, 1):
        ListOps(**SMALL, seed=seed).load("dev")
    assert len(list(home.glob("*.npz"))) == 2
    monkeypatch.setattr(ListOps, "generate", lambda self, workers: pytest.fail("generated again"))
    assert len(ListOps(**SMALL, seed=1).load("test")) == 50


@pytest.mark.parametrize("train", [10**15, 10**17])
def test_more_trees_than_any_memory_can_hold_are_an_error_at_once(home, monkeypatch, train):
    monkeypatch.setattr(ListOps, "draw", lambda self, block: pytest.fail("drawn"))
    with pytest.raises(UserError, match=r"examples of up to 2e\+03 tokens, needs .* GiB of memory"):
        ListOps(train=train)
    assert not list(home.glob("*.npz"))


def test_too_few_distinct_trees_are_an_error_with_their_number(home, monkeypatch):
    monkeypatch.setattr(listops, "MAX_EMPTY_BLOCKS", 3)
    # Below four tokens there are the ten digits only.
    with pytest.raises(UserError, match=r"has 10 distinct trees .* 11 needed; widen the lengths"):
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
