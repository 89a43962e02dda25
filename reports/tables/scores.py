"""Scores of boards: accuracies, and the losses of language models, of which the lowest is best.

A score is an accuracy in [0, 1], or minus a mean cross-entropy in nats: higher is better.
"""

import math
from collections.abc import Mapping

from harness.records.scores import Metric
from reports.statistics import Interval

Baselines = tuple[tuple[str, float], ...]
"""Accuracies or losses without attention, by name, the best first."""

OVERFLOW = 700.0
"""Nats beyond which a perplexity is infinite."""


def metric_value(nats: float, metric: Metric) -> float:
    """Bits per byte, or perplexity, of a mean cross-entropy."""
    if metric == "bits per byte":
        return nats / math.log(2)
    return math.exp(nats) if nats < OVERFLOW else math.inf


def metric_text(nats: float, metric: Metric) -> str:
    """Bits per byte with three digits after the point, perplexity with one."""
    return f"{metric_value(nats, metric):,.{3 if metric == 'bits per byte' else 1}f}"


def score_text(score: float, metric: Metric | None) -> str:
    """A score with its unit, for a sentence."""
    if metric is None:
        return f"{100 * score:.1f} %"
    text = metric_text(-score, metric)
    return f"{text} {metric}" if metric == "bits per byte" else f"{metric} {text}"


def negated(loss: Interval) -> Interval:
    """The interval of a score from that of a loss."""
    return Interval(-loss.mean, -loss.high, -loss.low, loss.over)


def best_first(values: Mapping[str, float], lowest: bool) -> Baselines:
    """Baselines in order."""
    sign = 1 if lowest else -1
    return tuple(sorted(values.items(), key=lambda baseline: (sign * baseline[1], baseline[0])))
