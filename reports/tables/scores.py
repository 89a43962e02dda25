"""Scores of rows and baselines, in the unit of their metric."""

from collections.abc import Mapping

from harness.records.interval import Interval
from harness.records.record import Metric

Baselines = tuple[tuple[str, float], ...]
"""Scores without attention, by name, the best first."""


def best_first(values: Mapping[str, float], metric: Metric) -> Baselines:
    """Baselines in order."""
    return tuple(sorted(values.items(), key=lambda item: (-metric.sign * item[1], item[0])))


def worst_end(score: Interval, metric: Metric) -> float:
    """The worse end of an interval, negated where lower is better: higher is better."""
    return min(metric.sign * score.low, metric.sign * score.high)
