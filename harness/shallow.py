"""Studies of shallow models: what is reached on a task of the Long Range Arena without attention.

The models are the baselines of `tasks.baselines`, with the figures that a board leaves out: every
number of tokens, and n-grams of every order. Trees are boosted more slowly than there.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from harness.data import Data
from harness.environment import describe
from harness.records.shallow import ShallowModel, ShallowStudy
from tasks import Task, create
from tasks.baselines import discs, listops, pixels, tokens
from tasks.baselines.fitting import Features, Score, Splits, trees
from zoo.registry import Value

Fit = Callable[[Splits], Score]

RATE = 0.1
"""Learning rate of boosted trees: a third of that of a board."""

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
    started = datetime.now(UTC).isoformat(timespec="seconds")
    task = create(name, **SETTINGS[name])
    data = Data.of(task)
    fitted = [_fit(label, fit, data.splits) for label, fit in models(task).items()]
    return ShallowStudy(
        task=task.key,
        sizes={str(split): count for split, count in data.sizes.items()},
        digests={str(split): digest for split, digest in data.digests.items()},
        models=tuple(fitted),
        started=started,
        environment=describe("cpu"),
    )


def models(task: Task) -> dict[str, Fit]:
    """The shallow models of a task of `SETTINGS`, by name."""
    by_task: Mapping[str, Mapping[str, Fit]] = {
        "listops": _listops_models(),
        "text": _text_models(task.vocabulary),
        "image": pixels.MODELS,
        "pathfinder": _with_trees(discs.SETS),
    }
    return dict(by_task[task.key.partition("@")[0]])


def _listops_models() -> dict[str, Fit]:
    features: dict[str, Features] = {
        tokens.end_name("first", count): partial(tokens.first_tokens, count=count)
        for count in (1, 2, 4, 8)
    }
    features["first 8 and last 8 tokens"] = partial(tokens.end_tokens, count=8)
    return _with_trees({**features, **listops.SETS})


def _text_models(vocabulary: int) -> dict[str, Fit]:
    return {
        f"{order}-grams": partial(tokens.fit_ngrams, vocabulary=vocabulary, order=order)
        for order in (1, 2, 3, 4)
    }


def _with_trees(features: Mapping[str, Features]) -> dict[str, Fit]:
    return {name: partial(trees, one, rate=RATE) for name, one in features.items()}


def _fit(name: str, fit: Fit, splits: Splits) -> ShallowModel:
    start = time.perf_counter()
    score = fit(splits)
    return ShallowModel(
        name=name, dev=score.dev, test=score.test, seconds=round(time.perf_counter() - start, 1)
    )
