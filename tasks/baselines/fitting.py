"""Classifiers and regressions by scikit-learn: fitted to train, chosen on dev, read on test.

Axis letters as in `tasks.contract`, and `f` features.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from tasks.answers import Number
from tasks.contract import Score, Split, Splits

# Weights of the squared parameters against the mean loss; the best on dev is tested.
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)

# The same where the target is a number: an error below the tolerance needs a closer fit.
NUMBER_PENALTIES = (1e-4, 1e-5, 1e-6, 1e-7)

# Iterations of L-BFGS per penalty; each penalty starts from the solution of the one before.
MAX_ITERATIONS = 100

# Boosted trees: learning rate, rounds at most, rounds without a lower loss on dev.
RATE, ROUNDS, PATIENCE = 0.3, 400, 5

Features: TypeAlias = Callable[[Split], Any]  # split -> an (n, f) matrix, dense or sparse


def linear(features: Features, splits: Splits, penalties: Sequence[float] | None = None) -> Score:
    inputs = {name: features(split) for name, split in splits.items()}
    models = _linear_models(inputs["train"], splits["train"], penalties)
    return best_of(models, inputs, splits)


def best_of(models: Iterable[Any], inputs: Mapping[str, Any], splits: Splits) -> Score:
    best = Score(-1.0, 0.0)
    for model in models:
        dev = _correct(model, inputs["dev"], splits["dev"])
        if dev > best.dev:
            best = Score(dev, _correct(model, inputs["test"], splits["test"]))
    return best


def trees(features: Features, splits: Splits, rate: float = RATE) -> Score:
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier

    inputs = {name: features(split) for name, split in splits.items()}
    targets = {name: split.targets.numpy() for name, split in splits.items()}
    if len(np.unique(targets["train"])) == 1:
        model = DummyClassifier().fit(inputs["train"], targets["train"])
    else:
        # The loss on dev is defined for the classes of train only.
        in_train = np.isin(targets["dev"], targets["train"])
        options: dict[str, Any] = {"early_stopping": bool(in_train.any()), "random_state": 0}
        model = HistGradientBoostingClassifier(
            learning_rate=rate, max_iter=ROUNDS, n_iter_no_change=PATIENCE, **options
        )
        held_out = {"X_val": inputs["dev"][in_train], "y_val": targets["dev"][in_train]}
        model.fit(inputs["train"], targets["train"], **held_out if in_train.any() else {})
    return Score(*(_correct(model, inputs[name], splits[name]) for name in ("dev", "test")))


def best_on_dev(
    candidates: Mapping[str, Callable[[Splits], Score]], splits: Splits, examples: int = 10_000
) -> dict[str, float]:
    # Compare models after a fit to `examples` evenly spaced examples of train.
    step = max(1, len(splits["train"]) // examples)
    fewer: Splits = {**splits, "train": every(splits["train"], step)}
    scores = {name: fit(fewer) for name, fit in candidates.items()}
    best = max(scores, key=lambda name: scores[name].dev)
    return {best: candidates[best](splits).test}


def every(split: Split, step: int) -> Split:
    # Every `step`-th example with its sequences, of a split without target positions.
    used, ids = split.sequence_ids[::step].unique(return_inverse=True)
    sequences, lengths, targets = split.sequences[used], split.lengths[used], split.targets[::step]
    return replace(
        split, sequences=sequences, lengths=lengths, sequence_ids=ids.int(), targets=targets
    )


def _linear_models(inputs: Any, train: Split, penalties: Sequence[float] | None) -> Iterator[Any]:
    # The largest penalty first; each model is valid until the next is requested.
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    targets = train.targets.numpy()
    if isinstance(train.answers, Number):
        for penalty in penalties or NUMBER_PENALTIES:
            yield Ridge(alpha=len(targets) * penalty, tol=1e-6).fit(inputs, targets)
    elif len(np.unique(targets)) == 1:
        yield DummyClassifier().fit(inputs, targets)
    else:
        model = LogisticRegression(max_iter=MAX_ITERATIONS, warm_start=True)
        for penalty in penalties or PENALTIES:
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
