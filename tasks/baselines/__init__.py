"""Baselines: test accuracies that are reached without attention.

* Constant answers: see `Answers.baselines`.
* Shallow baselines, where an example has one target: a linear model on how often each
  token occurs (*bag of tokens*), and one on the first few tokens. It is a logistic regression where
  the target is a class, a ridge regression where it is a number; the penalty is chosen on dev.
* Where an example has target positions, the answer that it contains most often (*most frequent in
  context*).

A model that does not exceed these may have learned no more than they do.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from tasks.baselines.shallow import FIRST, SHALLOW_BASELINES, accuracy
from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.data import cache
from zoo.registry import UserError

__all__ = ["FIRST", "MOST_FREQUENT", "VERSION", "compute", "evaluate"]

MOST_FREQUENT = "most frequent in context"

VERSION = 3
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
    identity = json.dumps([task.key, *(digests[name] for name in SPLITS)])
    key = f"baselines@{VERSION}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
    cached = None
    with suppress(UserError):  # the folder cannot be read
        cached = cache.find(key)
    if cached:
        specification = {"names": "str n", "values": "float64 n"}
        names, values = cache.read(key, specification, "run it again: it is computed again")
        return dict(zip(names.tolist(), values.tolist(), strict=True))
    accuracies = compute(task, splits)
    with suppress(UserError):
        arrays = {"names": np.array([*accuracies]), "values": np.array([*accuracies.values()])}
        cache.write(key, arrays)
    return accuracies


def compute(task: Task, splits: Mapping[SplitName, Split]) -> dict[str, float]:
    """Test accuracies in [0, 1] by name."""
    train, test = splits["train"], splits["test"]
    accuracies = dict(test.answers.baselines(train.targets, test.targets, task.classes))
    if test.target_positions is None:
        for name, features in SHALLOW_BASELINES.items():
            accuracies[name] = accuracy(features, splits, task.vocabulary)
    candidates = task.candidates(test)
    if candidates.shape[1]:
        most_frequent = candidates.mode(1).values[:, None]  # the lowest in case of a tie
        accuracies[MOST_FREQUENT] = (test.targets == most_frequent).double().mean().item()
    return accuracies
