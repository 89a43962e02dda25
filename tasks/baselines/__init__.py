"""What a task's number means: accuracies that need no attention at all.

Beside answers that look at no example stand two short cuts, each a linear model: on how often each
token occurs, whatever the order, and on the first few tokens. It is a logistic regression where a
class is asked for, a ridge regression where a number is. Where tokens of an example are asked, it
shows its answers itself, and the floor is the one that it shows most often. A model that does not
beat these may have learned no more than they did.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from tasks.answers import Answers, Number
from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.data import cache
from zoo.registry import UserError

FIRST = 16
"""Tokens of each document that the second short cut reads."""

PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)
"""Weights of the squared parameters, in the order of fitting; the one best on dev is tested."""

NUMBER_PENALTIES = (1e-4, 1e-5, 1e-6, 1e-7)
"""The same where a number is asked for: to be within the tolerance takes a closer fit."""

VERSION = 2
"""Raised when any floor is computed otherwise: those in the cache are then out of use."""


class Features(ABC):
    """What a linear model reads of every example of a split, and what it should answer."""

    width: int
    targets: Shaped[Tensor, " n"]
    answers: Answers

    @abstractmethod
    def scores(self, weights: Float[Tensor, "width classes"]) -> Float[Tensor, "n classes"]:
        """The product of the features with `weights`."""


class Bag(Features):
    """How often each token occurs, as a share of its document, times the square root of `l`.

    Shares alone are so small that a penalty would forbid every weight that they need.
    """

    def __init__(self, split: Split, vocabulary: int) -> None:
        """Count the tokens of each document once."""
        shares = torch.cat([_shares(*part, vocabulary) for part in split.chunks()])
        self._examples = shares[split.sequence_ids].flatten(1) * split.sequences.shape[1] ** 0.5
        self.width = self._examples.shape[1]
        self.targets, self.answers = split.targets, split.answers

    def scores(self, weights: Float[Tensor, "width classes"]) -> Float[Tensor, "n classes"]:
        """See `Features.scores`."""
        return self._examples @ weights


class Beginning(Features):
    """Which token stands at each of the first `FIRST` positions; padding is a token here."""

    def __init__(self, split: Split, vocabulary: int) -> None:
        """Read the beginning of every document."""
        first = split.sequences[:, :FIRST].long()
        positions = torch.arange(first.shape[1])
        padding = positions >= split.lengths[:, None]
        tokens = first.masked_fill(padding, 0)[split.sequence_ids].flatten(1)
        places = torch.arange(tokens.shape[1])
        self.width = len(places) * vocabulary
        self.targets, self.answers = split.targets, split.answers
        self._columns = tokens + places * vocabulary

    def scores(self, weights: Float[Tensor, "width classes"]) -> Float[Tensor, "n classes"]:
        """See `Features.scores`."""
        return F.embedding(self._columns, weights).sum(1)


MOST_FREQUENT = "most frequent in context"
"""The floor that gives each example the answer that it shows most often, wherever it is asked."""

SHALLOW_BASELINES = {"bag of tokens": Bag, f"first {FIRST} tokens": Beginning}


def evaluate(
    task: Task, splits: Mapping[SplitName, Split], digests: Mapping[SplitName, str]
) -> dict[str, float]:
    """Test accuracies in [0, 1] by name, computed once for given data and cached.

    Where the cache cannot be read or written, they are computed each time.

    Args:
        task: the task.
        splits: its three splits.
        digests: the digest of each split; part of the name under which the result is cached.

    Raises:
        UserError: the cached result is damaged.
    """
    identity = json.dumps([task.key, *(digests[name] for name in SPLITS)])
    key = f"baselines@{VERSION}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
    if _is_cached(key):
        names, values = cache.read(key, ("names", "values"), "run it again: it is computed anew")
        return dict(zip(names.tolist(), values.tolist(), strict=True))
    accuracies = compute(task, splits)
    with suppress(UserError, OSError):
        arrays = {"names": np.array([*accuracies]), "values": np.array([*accuracies.values()])}
        cache.write(key, arrays)
    return accuracies


def _is_cached(key: str) -> bool:
    """Whether the cache holds that data set; False where it cannot be read."""
    with suppress(UserError):
        return cache.find(key) is not None
    return False


def compute(task: Task, splits: Mapping[SplitName, Split]) -> dict[str, float]:
    """Test accuracies in [0, 1] by name.

    The short cuts are taken where one answer about the whole is asked for; tokens that are asked
    one by one have no bag.
    """
    train, dev, test = (splits[name] for name in SPLITS)
    found = dict(test.answers.baselines(train.targets, test.targets, task.classes))
    if test.target_positions is None:
        for name, features in SHALLOW_BASELINES.items():
            learned, chosen, tested = (features(s, task.vocabulary) for s in (train, dev, test))
            found[name] = _regression(learned, chosen, tested, task.classes)
    candidates = task.candidates(test)
    if candidates.shape[1]:
        # The lowest of equals.
        guesses = candidates.mode(1).values[:, None]
        found[MOST_FREQUENT] = (test.targets == guesses).double().mean().item()
    return found


def _shares(
    sequences: Shaped[Tensor, "s l"], lengths: Int[Tensor, " s"], vocabulary: int
) -> Float[Tensor, "s vocabulary"]:
    real = torch.arange(sequences.shape[1]) < lengths[:, None]
    counts = torch.zeros(len(sequences), vocabulary)
    counts.scatter_add_(1, sequences.long(), real.float())
    return counts / lengths.clamp_min(1)[:, None]


def _regression(train: Features, dev: Features, test: Features, classes: int) -> float:
    """Test accuracy of the linear model whose penalty is best on dev."""
    weights = torch.zeros(train.width + 1, classes)
    best_dev, best = -1.0, weights
    penalties = NUMBER_PENALTIES if isinstance(train.answers, Number) else PENALTIES
    for penalty in penalties:
        weights = _fitted(weights, train, penalty)
        right = _accuracy(dev, weights)
        if right > best_dev:
            best_dev, best = right, weights
    return _accuracy(test, best)


def _fitted(
    start: Float[Tensor, "rows classes"], features: Features, penalty: float
) -> Float[Tensor, "rows classes"]:
    """Weights, a row a feature, and the bias in the last row."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = features.answers.loss(_scores(features, weights), features.targets)
        value = value + penalty * weights[:-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.detach()


def _scores(
    features: Features, weights: Float[Tensor, "rows classes"]
) -> Float[Tensor, "n classes"]:
    return features.scores(weights[:-1]) + weights[-1]


def _accuracy(features: Features, weights: Float[Tensor, "rows classes"]) -> float:
    right = features.answers.correct(_scores(features, weights), features.targets)
    return right.double().mean().item()
