"""The baselines of a task, stored after each step of fitting; and shallow models."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from harness.data import Data, data_of
from harness.environment import describe
from harness.records.fields import now
from harness.records.results import ShallowModel, ShallowStudy, TaskBaselines
from harness.records.spec import TaskSpec
from harness.records.store import BaselineStore
from tasks import Task, create
from tasks.baselines import BASELINES_VERSION, grey_images, listops, steps, tokens
from tasks.baselines.fitting import Features, trees
from tasks.contract import Score, Splits
from zoo.registry import Value

LOG = logging.getLogger(__name__)
STUDY_RATE = 0.1  # Learning rate of boosted trees: a third of the rate of `tasks.baselines`
# Options of the tasks of the study. ListOps has more test examples: the interval of 2,000 is 4
# points wide.
STUDY_SETTINGS: Mapping[str, Mapping[str, Value]] = {
    "listops": {"test": 60_000}, "text": {}, "image": {}, "pathfinder": {},
}  # fmt: skip


def fit(spec: TaskSpec, store: BaselineStore) -> TaskBaselines:
    # Data are read only if a step is missing.
    store.require_writable()
    with store.locks.alone(spec.file_name):
        store.remove_partial_files()
        found = store.find(spec)
        if found and found.version == BASELINES_VERSION and not found.left:
            return found
        data = data_of(spec)
        all_steps = steps(data.task, data.splits)
        if found is None or found.version != BASELINES_VERSION or {*found.left} - {*all_steps}:
            found = TaskBaselines(
                spec=spec, version=BASELINES_VERSION, metric=data.summary.metric, scores={},
                left=tuple(all_steps), started=now(), environment=describe("cpu"),
            )  # fmt: skip
        for name in found.left:
            number, count = len(all_steps) - len(found.left) + 1, len(all_steps)
            LOG.info("baselines of %s: %s (%s of %s)", spec.key, name, number, count)
            scores = {name: found.metric.value(mean) for name, mean in all_steps[name]().items()}
            update = {"scores": {**found.scores, **scores}, "left": found.left[1:]}
            found = found.model_copy(update=update)
            store.write(found)
        return found


def shallow_study(name: str) -> ShallowStudy:
    started, task = now(), create(name, **STUDY_SETTINGS[name])
    data, fitted = Data.of(task), []
    for label, fit in models(task).items():
        start = time.perf_counter()
        score = fit(data.splits)
        seconds = round(time.perf_counter() - start, 1)
        fitted.append(ShallowModel(name=label, dev=score.dev, test=score.test, seconds=seconds))
    return ShallowStudy(
        task=task.key, sizes={str(split): count for split, count in data.summary.sizes.items()},
        digests={str(split): digest for split, digest in data.digests.items()},
        models=tuple(fitted), started=started, environment=describe("cpu"),
    )  # fmt: skip


def models(task: Task) -> dict[str, Callable[[Splits], Score]]:
    name = task.key.partition("@")[0]
    if name == "image":
        return dict(grey_images.PIXEL_MODELS)
    if name == "text":
        ngrams = partial(tokens.fit_ngrams, vocabulary=task.vocabulary)
        return {f"{order}-grams": partial(ngrams, order=order) for order in (1, 2, 3, 4)}
    features: dict[str, Features] = dict(grey_images.DISC_FEATURES)
    if name == "listops":
        features = {
            tokens.end_name("first", count): partial(tokens.first_tokens, count=count)
            for count in (1, 2, 4, 8)
        }
        features["first 8 and last 8 tokens"] = partial(tokens.end_tokens, count=8)
        features |= listops.SETS
    return {label: partial(trees, columns, rate=STUDY_RATE) for label, columns in features.items()}
