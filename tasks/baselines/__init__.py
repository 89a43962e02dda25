"""Baselines: test accuracies that are reached without attention.

* Constant answers: see `Answers.baselines`.
* Where an example has one target, classifiers by scikit-learn that are fitted to train and chosen
  on dev. A linear model (logistic regression where the target is a class, ridge regression where it
  is a number) on how often each token occurs: *bag of tokens*. Boosted trees on the *first* and on
  the *last k tokens*, k of `tokens.POSITIONS` chosen on dev, and on the first 8 and last 8.
  A logistic regression on *n-grams*, n of `tokens.ORDERS` chosen on dev, where that takes seconds.
  Where the target is a number, or train is shorter than `FEW`: a linear model on the first 16
  tokens instead. Images have the bag of tokens only.
* What a task adds: see `Task.shallow_baselines`. For signals there is nothing else.
* Where an example has target positions, the answer that it contains most often (*most frequent in
  context*).
* Where the target is the next token at every position, cross-entropies of n-gram models: see
  `kneser_ney`.

A model that does not exceed these may have learned no more than they do.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from tasks.answers import NextTokens, Number
from tasks.baselines import kneser_ney, tokens
from tasks.baselines.fitting import linear
from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.data import cache
from zoo.registry import UserError

__all__ = ["FEW", "FIRST", "MOST_FREQUENT", "VERSION", "compute", "evaluate", "evaluate_losses"]

MOST_FREQUENT = "most frequent in context"

FEW = 1000
"""Examples of train below which boosted trees and n-grams are not fitted."""

FIRST = 16
"""Tokens at the beginning of each sequence that a linear model reads in their place."""

LOSSES_VERSION = 2
"""As `VERSION`, of losses."""

VERSION = 6
"""Incremented when a baseline is computed differently: results of other versions are not reused."""


def evaluate(
    task: Task, splits: Mapping[SplitName, Split], digests: Mapping[SplitName, str]
) -> dict[str, float]:
    """Test accuracies in [0, 1] by name, computed once for given data and cached.

    Where the cache cannot be read or written, they are computed each time. `digests` are those of
    the three splits, by name.

    Raises:
        UserError: the cached result is damaged.
    """
    return _once(f"baselines@{VERSION}", task, digests, lambda: compute(task, splits))


def evaluate_losses(
    task: Task, splits: Mapping[SplitName, Split], digests: Mapping[SplitName, str]
) -> dict[str, float]:
    """Mean cross-entropies in nats on test by name, as `evaluate`; none but of language models."""
    if not isinstance(splits["test"].answers, NextTokens):
        return {}
    return _once(
        f"losses@{LOSSES_VERSION}",
        task,
        digests,
        lambda: kneser_ney.losses(splits, task.classes),
    )


def _once(
    kind: str,
    task: Task,
    digests: Mapping[SplitName, str],
    compute: Callable[[], dict[str, float]],
) -> dict[str, float]:
    """What `compute` returns, from the cache if it was computed before for the same data."""
    identity = json.dumps([task.key, *(digests[name] for name in SPLITS)])
    key = f"{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
    if cached := _cached(key):
        return cached
    with cache.one_at_a_time(key):
        if cached := _cached(key):
            return cached
        values = compute()
        if values:  # an empty array has no type of names
            arrays = {"names": np.array([*values]), "values": np.array([*values.values()])}
            with suppress(UserError):
                cache.write(key, arrays)
    return values


def compute(task: Task, splits: Mapping[SplitName, Split]) -> dict[str, float]:
    """Test accuracies in [0, 1] by name."""
    train, test = splits["train"], splits["test"]
    accuracies = dict(test.answers.baselines(train.targets, test.targets, task.classes))
    if test.target_positions is None:
        accuracies |= _shallow(task, splits)
    candidates = task.candidates(test)
    if candidates.shape[1]:
        most_frequent = candidates.mode(1).values[:, None]  # the lowest in case of a tie
        accuracies[MOST_FREQUENT] = (test.targets == most_frequent).double().mean().item()
    return accuracies


def _cached(key: str) -> dict[str, float]:
    """The values of that key; empty where the cache does not have them, or cannot be read."""
    try:
        found = cache.find(key)
    except UserError:
        return {}
    if not found:
        return {}
    specification = {"names": "str n", "values": "float64 n"}
    names, values = cache.read(key, specification, "run it again: it is computed again")
    return dict(zip(names.tolist(), values.tolist(), strict=True))


def _shallow(task: Task, splits: Mapping[SplitName, Split]) -> dict[str, float]:
    if task.channels:
        return dict(task.shallow_baselines(splits))
    train, vocabulary = splits["train"], task.vocabulary
    bag = partial(tokens.bag_of_tokens, vocabulary=vocabulary)
    accuracies = {"bag of tokens": linear(bag, splits).test}
    if isinstance(train.answers, Number) or len(train) < FEW:
        first = partial(tokens.one_hot, vocabulary=vocabulary, count=FIRST)
        return accuracies | {f"first {FIRST} tokens": linear(first, splits).test}
    if not task.images:
        accuracies |= tokens.ngram_accuracies(splits, vocabulary, task.classes)
        accuracies |= tokens.end_accuracies(splits)
    return {**accuracies, **task.shallow_baselines(splits)}
