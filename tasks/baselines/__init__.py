"""Baselines: scores on test that are reached without attention.

docs/tasks.md describes each; `FEW`, `FIRST` and the constants of the modules say when it is fitted.

Each is a mean of `Answers.values` on test: an accuracy in [0, 1], a mean cross-entropy in nats, or
a normalised return. Fitted models and rules give single answers, and are left out where the metric
is of scores: see `tasks.metrics.Measure`.

A model that does not exceed these may have learned no more than they do.
"""

from collections.abc import Callable, Mapping
from functools import partial

from tasks import BASELINES_VERSION, metrics
from tasks.answers import NextTokens, Number
from tasks.baselines import context, kneser_ney, tokens
from tasks.baselines.fitting import linear, trees
from tasks.contract import Baseline, Score, Splits, Task

__all__ = ["BASELINES_VERSION", "FEW", "FIRST", "Fit", "compute", "steps"]

FEW = 1000  # Examples of train below which boosted trees and n-grams are not fitted
FIRST = 16  # Tokens at the beginning of each sequence that a linear model reads in their place

Fit = Callable[[], Mapping[str, float]]  # The means of baselines that are fitted together


def steps(task: Task, splits: Splits) -> dict[str, Fit]:
    """The steps in which the baselines of a task are fitted, by name; nothing is fitted yet."""
    train, test = splits["train"], splits["test"]
    constant = partial(test.answers.baselines, train.targets, test.targets, task.classes)
    found: dict[str, Fit] = {"constant answers": constant}
    single = metrics.find(test.answers.measure).single_answers
    if single and test.target_positions is None and not task.channels:
        found |= _of_tokens(task, splits)
    if single and test.target_positions is not None and task.candidates(test).shape[1]:
        found |= _single(context.baselines(task.candidates, splits, task.classes), splits)
    if test.target_positions is not None or task.channels or not _is_small(splits):
        found |= _single(task.shallow_baselines(), splits)
    if isinstance(test.answers, NextTokens):
        found["Kneser-Ney n-grams"] = partial(kneser_ney.losses, splits, task.classes)
    return found


def compute(task: Task, splits: Splits) -> dict[str, float]:
    return {n: value for fit in steps(task, splits).values() for n, value in fit().items()}


def _is_small(splits: Splits) -> bool:
    return isinstance(splits["train"].answers, Number) or len(splits["train"]) < FEW


def _of_tokens(task: Task, splits: Splits) -> dict[str, Fit]:
    vocabulary = task.vocabulary
    models: dict[str, Baseline] = {}
    if splits["train"].sequence_ids.numel() * vocabulary <= tokens.BAG_SIZE:
        bag = partial(tokens.bag_of_tokens, vocabulary=vocabulary)
        models["bag of tokens"] = partial(linear, bag)
    if _is_small(splits):
        first = partial(tokens.one_hot, vocabulary=vocabulary, count=FIRST)
        models[f"first {FIRST} tokens"] = partial(linear, first)
    found = _single(models, splits)
    if not _is_small(splits) and not task.images:
        found["n-grams"] = partial(tokens.ngram_accuracies, splits, vocabulary, task.classes)
        for end in ("first", "last"):
            found[f"{end} tokens"] = partial(tokens.end_accuracy, end, splits)
        ends = f"first {tokens.ENDS} and last {tokens.ENDS} tokens"
        both = partial(tokens.end_tokens, count=tokens.ENDS)
        found |= _single({ends: partial(trees, both)}, splits)
    return found


def _single(models: Mapping[str, Baseline], splits: Splits) -> dict[str, Fit]:
    def named(name: str, fit: Baseline) -> dict[str, float]:
        found = fit(splits)
        return {name: found.test if isinstance(found, Score) else found}

    return {name: partial(named, name, fit) for name, fit in models.items()}
