"""Linear models on simple features, fitted by scikit-learn.

Axis letters as in `tasks.contract`, and `f` features.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64
from scipy.sparse import csr_array
from torch import Tensor

from tasks.answers import Number
from tasks.contract import Split, SplitName

FIRST = 16
"""Tokens at the beginning of each sequence that the second shallow baseline reads."""

PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)
"""Weights of the squared parameters against the mean loss; the best on dev is tested."""

NUMBER_PENALTIES = (1e-4, 1e-5, 1e-6, 1e-7)
"""The same where the target is a number: an error below the tolerance needs a closer fit."""

MAX_ITERATIONS = 100
"""Iterations of L-BFGS per penalty; each penalty starts from the solution of the one before."""

Features: TypeAlias = Callable[[Split, int], Any]
"""(split, vocabulary) -> an (n, f) matrix, dense or sparse."""


def bag_of_tokens(split: Split, vocabulary: int) -> Float64[np.ndarray, "n f"]:
    """How often each token occurs, as a share of its sequence, times the square root of `l`.

    The shares alone are so small that a penalty would suppress the weights that they need.
    """
    shares = []
    for sequences, lengths in split.chunks():
        real = torch.arange(sequences.shape[1]) < lengths[:, None]
        counts = torch.zeros(len(sequences), vocabulary, dtype=torch.float64)
        counts.scatter_add_(1, sequences.long(), real.double())
        shares.append(counts / lengths.clamp_min(1)[:, None])
    scale = split.sequences.shape[1] ** 0.5
    return (torch.cat(shares)[split.sequence_ids].flatten(1) * scale).numpy()


def first_tokens(split: Split, vocabulary: int) -> csr_array:
    """The tokens at the first `FIRST` positions, one-hot; padding counts as token 0."""
    first = split.sequences[:, :FIRST].long()
    padding = torch.arange(first.shape[1]) >= split.lengths[:, None]
    tokens = first.masked_fill(padding, 0)[split.sequence_ids].flatten(1)
    count, width = tokens.shape
    columns = (tokens + torch.arange(width) * vocabulary).flatten().numpy()
    rows = np.arange(0, count * width + 1, width)
    return csr_array((np.ones(count * width), columns, rows), shape=(count, width * vocabulary))


SHALLOW_BASELINES: dict[str, Features] = {
    "bag of tokens": bag_of_tokens,
    f"first {FIRST} tokens": first_tokens,
}


def accuracy(features: Features, splits: Mapping[SplitName, Split], vocabulary: int) -> float:
    """Test accuracy of a linear model fitted to train, its penalty chosen on dev."""
    train, dev, test = (splits[name] for name in ("train", "dev", "test"))
    inputs = {name: features(split, vocabulary) for name, split in splits.items()}
    best_dev, best_test = -1.0, 0.0
    for model in _fitted(inputs["train"], train):
        dev_accuracy = _correct(model, inputs["dev"], dev)
        if dev_accuracy > best_dev:
            best_dev, best_test = dev_accuracy, _correct(model, inputs["test"], test)
    return best_test


def _fitted(inputs: Any, train: Split) -> Iterator[Any]:
    """The model of each penalty, the largest first; each is valid until the next is requested."""
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    targets = train.targets.numpy()
    if isinstance(train.answers, Number):
        for penalty in NUMBER_PENALTIES:
            yield Ridge(alpha=len(targets) * penalty, tol=1e-6).fit(inputs, targets)
    elif len(np.unique(targets)) == 1:
        yield DummyClassifier().fit(inputs, targets)
    else:
        model = LogisticRegression(max_iter=MAX_ITERATIONS, warm_start=True)
        for penalty in PENALTIES:
            model.set_params(C=1 / (2 * len(targets) * penalty))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(inputs, targets)
            yield model


def _correct(model: Any, inputs: Any, split: Split) -> float:
    answers: Tensor = torch.from_numpy(model.predict(inputs))
    if isinstance(split.answers, Number):
        correct = split.answers.correct(answers[:, None], split.targets)
    else:
        correct = answers == split.targets
    return correct.double().mean().item()
