"""Interpolated n-gram models: what is reached from the last few tokens without attention.

Modified Kneser-Ney smoothing (Chen and Goodman, "An empirical study of smoothing techniques for
language modeling", 1999, section 3), interpolated. With c the count of an n-gram in train, or for
all orders but the highest the number of different tokens before it (its continuation count),

    p_n(w | h) = max(c(h w) - D(c(h w)), 0) / c(h) + g(h) p_{n-1}(w | h without its first token)

where c(h) is the sum of c(h w) over w, g(h) makes the sum 1, and p_0 is uniform over all classes.
D is one of three discounts of each order, for counts of 1, 2 and more, from the numbers n_i of
n-grams with count i: D_i = i - (i + 1) n_1 / (n_1 + 2 n_2) n_{i+1} / n_i. A history that is not in
train is left out. Outside train a history begins with its window, as the context of a model does.

All n-grams are looked up at once: the n-gram that ends at a position has a number, from the number
of the (n-1)-gram before it and the token. `w` are the tokens of the other stream.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from tasks.contract import Split, SplitName

Tokens = Int64[np.ndarray, "..."]

ORDERS = 8  # The highest order that is tried; dev chooses


def losses(splits: Mapping[SplitName, Split], classes: int) -> dict[str, float]:
    # The order is chosen on dev, and test is read with it. Targets are the next token at every
    # position; its context is the inputs of its window up to it.
    train = splits["train"].targets[splits["train"].targets >= 0].numpy()
    dev = [*cross_entropies(train, splits["dev"], classes)]
    best = int(np.argmin(dev))
    test = [*cross_entropies(train, splits["test"], classes, best + 1)]
    return {"unigram": test[0], f"Kneser-Ney {best + 1}-grams": test[best]}


def cross_entropies(
    train: Tokens, split: Split, classes: int, orders: int = ORDERS
) -> Iterator[float]:
    # Class -1 is the token before the first of a split, and of no target; nothing follows it.
    first, targets = split.sequences[:, :1].numpy().astype(np.int64) - 1, split.targets.numpy()
    other = np.concatenate([first, targets], axis=1)
    counted = np.concatenate([np.zeros_like(first, bool), targets >= 0], axis=1).ravel()
    starts = np.arange(len(other)) * other.shape[1]
    for probabilities in order_probabilities(train, other.ravel(), classes, orders, starts):
        yield float(-np.log(probabilities[counted]).mean())


def order_probabilities(
    train: Tokens, other: Tokens, classes: int, orders: int, starts: Tokens | Sequence[int] = (0,)
) -> Iterator[Float64[np.ndarray, " w"]]:
    # A history ends at the `starts` of windows of `other`.
    tokens, lower = np.concatenate([train, other]), np.full(len(other), 1 / classes)
    windows, grams = len(train) + np.array(starts), None
    for _ in range(orders):
        before, grams = grams, NGrams.of(tokens, len(train), windows, classes, grams)
        if before is not None:
            # Each n-gram of train has one more token before its last n - 1.
            suffixes = before.numbers[grams.positions[grams.counts > 0]]
            continuations = np.bincount(suffixes, minlength=len(before.counts))
            lower = before.interpolate(continuations, lower)
        yield grams.interpolate(grams.counts, lower)


class NGrams(NamedTuple):
    # The n-grams of one order, numbered from 0, in train and the other stream behind it. A history
    # has the number of its (n-1)-gram; -1 means no history.
    histories: Int64[np.ndarray, " grams"]
    positions: Int64[np.ndarray, " grams"]  # One end of each n-gram
    counts: Int64[np.ndarray, " grams"]
    numbers: Int64[np.ndarray, " both"]  # The n-gram that ends at each position
    other_history: Int64[np.ndarray, " w"]

    @classmethod
    def of(
        cls, tokens: Tokens, train: int, starts: Tokens, classes: int, shorter: "NGrams | None"
    ) -> "NGrams":
        history = np.zeros_like(tokens)
        if shorter:
            history = np.roll(shorter.numbers, 1)
            history[0] = history[starts] = -1
        (complete,) = ((history >= 0) & (tokens >= 0)).nonzero()
        codes, first, found = np.unique(
            (history * classes + tokens)[complete], return_index=True, return_inverse=True
        )
        numbers = np.full(len(tokens), -1)
        numbers[complete] = found
        counts = np.bincount(found[complete < train], minlength=len(codes))
        return cls(codes // classes, complete[first], counts, numbers, history[train:])

    def interpolate(
        self, counts: Int64[np.ndarray, " grams"], lower: Float64[np.ndarray, " w"]
    ) -> Float64[np.ndarray, " w"]:
        discount = discounts(counts)[np.minimum(counts, 3)]
        size = self.histories.max() + 1
        totals = np.bincount(self.histories, counts, minlength=size)
        removed = np.bincount(self.histories, discount, minlength=size)
        discounted = np.maximum(counts - discount, 0)[self.numbers[-len(lower) :]]
        has_history = self.other_history >= 0
        # A history may be the end of train: then nothing follows it.
        has_history[has_history] = totals[self.other_history[has_history]] > 0
        history, probabilities = self.other_history[has_history], lower.copy()
        numerators = discounted[has_history] + removed[history] * lower[has_history]
        probabilities[has_history] = numerators / totals[history]
        return probabilities


def discounts(counts: Int64[np.ndarray, " grams"]) -> Float64[np.ndarray, "4"]:
    # A discount of 0 would give tokens that never follow a history the probability 0.
    usual = np.array([0.0, 0.5, 1.0, 1.5])
    n = [int((counts == i).sum()) for i in range(1, 5)]
    if 0 in n:
        return usual
    shared = n[0] / (n[0] + 2 * n[1])
    found = [i - (i + 1) * shared * n[i] / n[i - 1] for i in (1, 2, 3)]
    return np.array([0.0, *found]) if min(found) > 0 else usual
