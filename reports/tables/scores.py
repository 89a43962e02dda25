"""Scores of boards, of which the highest is best.

A score is an accuracy in [0, 1], minus a mean cross-entropy in nats, or a normalised return.
"""

import math
from collections.abc import Mapping

from harness.records.scores import Metric
from reports.statistics import Interval

Baselines = tuple[tuple[str, float], ...]
"""Accuracies, losses or returns without attention, by name, the best first."""

OVERFLOW = 700.0
"""Nats beyond which a perplexity is infinite."""


def metric_value(score: float, metric: Metric) -> float:
    """Bits per byte, perplexity or normalised return."""
    if metric == "bits per byte":
        return -score / math.log(2)
    if metric == "perplexity":
        return math.exp(-score) if -score < OVERFLOW else math.inf
    return score


def metric_ends(score: Interval, metric: Metric) -> tuple[float, float, float]:
    """The mean, the lowest and the highest value of an interval of scores."""
    mean, *ends = (metric_value(value, metric) for value in score[:3])
    return mean, min(ends), max(ends)


def metric_text(score: float, metric: Metric) -> str:
    """`metric_value`, bits per byte with three digits after the point, the others with one."""
    return value_text(metric_value(score, metric), metric)


def value_text(value: float, metric: Metric) -> str:
    """A value of `metric_value`."""
    return f"{value:z,.{3 if metric == 'bits per byte' else 1}f}"


def score_text(score: float, metric: Metric | None) -> str:
    """A score with its unit, for a sentence."""
    if metric is None:
        return f"{100 * score:.1f} %"
    text = metric_text(score, metric)
    return f"{text} {metric}" if metric == "bits per byte" else f"{metric} {text}"


def shown(score: float, metric: Metric | None) -> float:
    """A score as figures show it: an accuracy in percent, or `metric_value`."""
    return 100 * score if metric is None else metric_value(score, metric)


def shown_ends(score: Interval, metric: Metric | None) -> tuple[float, float, float]:
    """The mean, the lowest and the highest value of an interval, as figures show them."""
    if metric is None:
        return 100 * score.mean, 100 * score.low, 100 * score.high
    return metric_ends(score, metric)


def shown_text(value: float, metric: Metric | None) -> str:
    """A value of `shown`."""
    return f"{value:.1f}" if metric is None else value_text(value, metric)


def axis_label(metric: Metric | None) -> str:
    """The label of an axis of values of `shown`."""
    return "test accuracy, %" if metric is None else f"test {metric}"


def best_first(values: Mapping[str, float], lowest: bool) -> Baselines:
    """Baselines in order."""
    sign = 1 if lowest else -1
    return tuple(sorted(values.items(), key=lambda baseline: (sign * baseline[1], baseline[0])))
