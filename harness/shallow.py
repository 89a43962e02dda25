"""Studies of shallow models: what is reached on a task of the Long Range Arena without attention.

The models are the baselines of `tasks.baselines`, with the figures that a table leaves out: every
number of tokens, and n-grams of every order. Trees are boosted more slowly than there.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

from harness.data import Data
from harness.environment import describe
from harness.records.fields import now
from harness.records.shallow import ShallowModel, ShallowStudy
from tasks import Task, create
from tasks.baselines import discs, listops, pixels, tokens
from tasks.baselines.fitting import Features, trees
from tasks.contract import Score, Splits
from zoo.registry import Value

Fit = Callable[[Splits], Score]

RATE = 0.1
"""Learning rate of boosted trees: a third of the one of `tasks.baselines`."""

SETTINGS: Mapping[str, Mapping[str, Value]] = {
    # Accuracies of 2,000 trees have an interval of 4 points.
    "listops": {"test": 60_000},
    "text": {},
    "image": {},
    "pathfinder": {},
}
"""Options of the tasks that are studied, at full length."""


def study(name: str) -> ShallowStudy:
    """Fit every shallow model of a task of `SETTINGS`, from the simplest to the richest.

    Raises:
        UserError: its data are missing.
    """
    started, task = now(), create(name, **SETTINGS[name])
    data, fitted = Data.of(task), []
    for label, fit in models(task).items():
        start = time.perf_counter()
        score = fit(data.splits)
        seconds = round(time.perf_counter() - start, 1)
        fitted.append(ShallowModel(name=label, dev=score.dev, test=score.test, seconds=seconds))
    return ShallowStudy(
        task=task.key,
        sizes={str(split): count for split, count in data.summary.sizes.items()},
        digests={str(split): digest for split, digest in data.digests.items()},
        models=tuple(fitted),
        started=started,
        environment=describe("cpu"),
    )


def models(task: Task) -> dict[str, Fit]:
    """The shallow models of a task of `SETTINGS`, by name."""
    name = task.key.partition("@")[0]
    if name == "image":
        return dict(pixels.MODELS)
    if name == "text":
        ngrams = partial(tokens.fit_ngrams, vocabulary=task.vocabulary)
        return {f"{order}-grams": partial(ngrams, order=order) for order in (1, 2, 3, 4)}
    features: dict[str, Features] = dict(discs.SETS)
    if name == "listops":
        features = {
            tokens.end_name("first", count): partial(tokens.first_tokens, count=count)
            for count in (1, 2, 4, 8)
        }
        features["first 8 and last 8 tokens"] = partial(tokens.end_tokens, count=8)
        features |= listops.SETS
    return {label: partial(trees, columns, rate=RATE) for label, columns in features.items()}
