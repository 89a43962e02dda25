"""Intervals for accuracies, and quartiles of costs over several runs.

The quantiles are from `scipy.special`: `scipy.stats`, which wraps it, takes longer to import than a
leaderboard takes to build.
"""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from scipy.special import ndtri, stdtrit

UPPER = 0.975
"""The quantile at the upper end of every interval: 95 % lie within."""


class Interval(NamedTuple):
    """A mean accuracy with its interval, as fractions in [0, 1], and what the interval covers.

    `examples` is the sampling of the test split alone: the variation between seeds is not covered.
    """

    mean: float
    low: float
    high: float
    over: Literal["seeds and examples", "examples"]


def interval(accuracies: Sequence[float], examples: int) -> Interval:
    """The interval of runs that differ by seed only.

    One run has Wilson's interval. Several runs have the smallest interval that contains both
    Student's over the seeds, `mean +- t(k - 1) s / sqrt(k)`, and Wilson's of their mean: seeds that
    agree do not make the test split larger. All runs answer the same examples, which count once.

    `accuracies` are fractions correct, at least one; `examples` is the size of the test split.
    """
    mean = fmean(accuracies)
    low, high = wilson(mean, examples)
    runs = len(accuracies)
    if runs == 1:
        return Interval(mean, low, high, "examples")
    half = float(stdtrit(runs - 1, UPPER)) * stdev(accuracies) / runs**0.5
    low, high = max(0.0, min(low, mean - half)), min(1.0, max(high, mean + half))
    return Interval(mean, low, high, "seeds and examples")


def wilson(accuracy: float, examples: int) -> tuple[float, float]:
    """Score interval of one fraction of `examples` independent examples.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927. Unlike the
    normal interval it is valid near 0 and 1, and lies within [0, 1].
    """
    z2 = float(ndtri(UPPER)) ** 2
    centre = (accuracy + z2 / (2 * examples)) / (1 + z2 / examples)
    spread = accuracy * (1 - accuracy) / examples + z2 / (4 * examples**2)
    half = (z2 * spread) ** 0.5 / (1 + z2 / examples)
    # Rounding could put an end on the wrong side of the accuracy.
    return max(0.0, min(accuracy, centre - half)), min(1.0, max(accuracy, centre + half))
