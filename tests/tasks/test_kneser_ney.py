"""Kneser-Ney n-grams against their definition, one probability at a time."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from tasks.baselines.kneser_ney import cross_entropies, discounts, losses, order_probabilities
from tasks.language.wikitext import windows

CLASSES = 5


def by_definition(train: list[int], history: list[int], token: int, order: int) -> float:
    """p(token | history) of the highest order `order`, by recursion over dictionaries."""

    def grams(n: int) -> list[tuple[int, ...]]:
        return [tuple(train[i : i + n]) for i in range(len(train) - n + 1)]

    def probability(n: int, before: tuple[int, ...]) -> float:
        if n == 0:
            return 1 / CLASSES
        longer = (gram[1:] for gram in set(grams(n + 1)))
        counts = Counter(grams(n) if n == order else longer)
        lower = probability(n - 1, before[1:])
        own = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == before}
        if not own:
            return lower
        discount = discounts(np.array([*counts.values()]))
        mass = sum(discount[min(count, 3)] for count in own.values())
        count = own.get(token, 0)
        return (max(count - discount[min(count, 3)], 0) + mass * lower) / sum(own.values())

    # At the beginning of a stream there is no longer history.
    usable = min(order - 1, len(history))
    return probability(usable + 1, tuple(history[len(history) - usable :]))


@pytest.fixture
def streams():
    """A stream of independent tokens, and another with a class that is not in the first."""
    rng = np.random.default_rng(0)
    train = rng.choice(CLASSES - 1, 60, p=[0.5, 0.3, 0.15, 0.05]).astype(np.int64)
    other = rng.choice(CLASSES, 25).astype(np.int64)
    return train, other


@pytest.mark.parametrize("order", [1, 2, 3])
def test_every_probability_is_that_of_the_definition(streams, order):
    train, other = streams
    got = [*order_probabilities(train, other, CLASSES, order)][-1]
    for i, token in enumerate(other.tolist()):
        expected = by_definition(train.tolist(), other[:i].tolist(), token, order)
        assert got[i] == pytest.approx(expected, rel=1e-12), i


@pytest.mark.parametrize("history", [[0, 1], [3, 3], [4, 0]])
def test_the_probabilities_of_all_tokens_sum_to_one(streams, history):
    train = streams[0]
    last = [
        [*order_probabilities(train, np.array([*history, token]), CLASSES, 3)][-1][-1]
        for token in range(CLASSES)
    ]
    assert sum(last) == pytest.approx(1) and min(last) > 0


def test_the_end_of_train_is_a_history_without_continuation():
    train = np.array([0, 1, 0, 1, 2])
    (probability,) = {[*order_probabilities(train, np.array([2, 0]), 4, 2)][-1][1]}
    # After 2 nothing follows in train: the continuation probability of 0, which follows 1 alone.
    assert probability == pytest.approx((1 - 0.5 + 1.5 * 0.25) / 3)


def test_discounts_are_those_of_chen_and_goodman():
    counts = np.repeat([1, 2, 3, 4, 9], [10, 5, 4, 2, 3])
    y = 10 / (10 + 2 * 5)
    expected = [0, 1 - 2 * y * 5 / 10, 2 - 3 * y * 4 / 5, 3 - 4 * y * 2 / 4]
    assert discounts(counts).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("numbers", [[10, 5, 1, 20], [10, 0, 4, 2], [3]])
def test_no_discount_is_zero_or_negative(numbers):
    counts = np.repeat(np.arange(1, len(numbers) + 1), numbers)
    assert discounts(counts).tolist() == [0, 0.5, 1, 1.5]


def test_the_order_is_chosen_on_dev_and_targets_after_the_end_are_left_out():
    rng = np.random.default_rng(1)
    texts = {"train": 4000, "dev": 300, "test": 301}
    # Each token is the sum of the two before, or random.
    splits = {}
    for name, size in texts.items():
        tokens = rng.integers(0, CLASSES, size)
        for i in np.flatnonzero(rng.random(size) < 0.8)[2:]:
            tokens[i] = (tokens[i - 1] + tokens[i - 2]) % CLASSES
        splits[name] = windows(tokens, np.array([0]), 32, CLASSES + 1, "perplexity")
    found = losses(splits, CLASSES)
    assert [*found] == ["unigram", "Kneser-Ney 3-grams"]
    assert found["unigram"] == pytest.approx(math.log(CLASSES), rel=0.02)
    assert found["Kneser-Ney 3-grams"] < 0.75 * found["unigram"]
    test = splits["test"].targets
    stream = test[test >= 0].numpy()
    assert len(stream) == 301
    train = splits["train"].targets
    again = [*cross_entropies(train[train >= 0].numpy(), stream, CLASSES, 3)]
    assert found["Kneser-Ney 3-grams"] == again[2] and not torch.equal(test[-1], train[-1])


def test_test_does_not_choose_the_order():
    cycle, noise = np.arange(600) % CLASSES, np.random.default_rng(2).integers(0, CLASSES, 100)
    streams = {"train": cycle, "dev": cycle[:100], "test": noise}
    splits = {}
    for name, tokens in streams.items():
        splits[name] = windows(tokens, np.array([0]), 32, CLASSES + 1, "perplexity")
    on_dev, on_test = (
        int(np.argmin([*cross_entropies(cycle, streams[name], CLASSES)])) + 1
        for name in ("dev", "test")
    )
    assert on_test < on_dev
    assert f"Kneser-Ney {on_dev}-grams" in losses(splits, CLASSES)
