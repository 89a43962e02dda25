"""Intervals for accuracies, and quartiles of costs over several runs.

`scipy.special` holds the quantiles that are needed; `scipy.stats`, which wraps them, takes longer
to import than a leaderboard takes to build.
"""

from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple

from scipy.special import ndtri, stdtrit

from harness.records.record import Quartiles

LEVEL = 0.95
"""Confidence of every interval."""

_UPPER = (1 + LEVEL) / 2


class Interval(NamedTuple):
    """A mean accuracy with its interval, as fractions in [0, 1].

    Attributes:
        mean: over the runs.
        low: lower end of the interval.
        high: upper end of the interval.
        over: the sources of variation that the interval covers; `examples` is the sampling of the
            test split alone, and tells nothing about another seed.
    """

    mean: float
    low: float
    high: float
    over: Literal["seeds and examples", "examples"]


def interval(accuracies: Sequence[float], examples: int) -> Interval:
    """The interval of runs that differ by seed only.

    One run has Wilson's interval. Several runs have the smallest interval that contains both
    Student's over the seeds and Wilson's of their mean accuracy: seeds that agree do not make the
    test split larger. All runs answer the same examples, so these are counted once.

    Args:
        accuracies: fractions correct, one for each run, at least one.
        examples: size of the test split, the same for all.
    """
    mean = fmean(accuracies)
    low, high = wilson(mean, examples)
    if len(accuracies) == 1:
        return Interval(mean, low, high, "examples")
    student_low, student_high = student(accuracies)
    return Interval(mean, min(low, student_low), max(high, student_high), "seeds and examples")


def student(accuracies: Sequence[float]) -> tuple[float, float]:
    """Student-t interval of the mean of two accuracies or more, cut to [0, 1].

    `mean +- t(k - 1) s / sqrt(k)` with s the standard deviation of the k runs (k - 1 below).
    """
    runs, mean = len(accuracies), fmean(accuracies)
    half = float(stdtrit(runs - 1, _UPPER)) * stdev(accuracies) / runs**0.5
    return max(0.0, mean - half), min(1.0, mean + half)


def wilson(accuracy: float, examples: int) -> tuple[float, float]:
    """Score interval of one fraction of `examples` independent examples.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927. Unlike the
    normal interval it holds near 0 and 1, and never leaves them.
    """
    z2 = float(ndtri(_UPPER)) ** 2
    centre = (accuracy + z2 / (2 * examples)) / (1 + z2 / examples)
    spread = accuracy * (1 - accuracy) / examples + z2 / (4 * examples**2)
    half = (z2 * spread) ** 0.5 / (1 + z2 / examples)
    # Rounding could put an end on the wrong side of the accuracy.
    return max(0.0, min(accuracy, centre - half)), min(1.0, max(accuracy, centre + half))


def median_quartiles(runs: Sequence[Quartiles]) -> Quartiles:
    """Median over runs of each quartile of the measurements repeated within one run."""
    return Quartiles(
        q1=median(run.q1 for run in runs),
        median=median(run.median for run in runs),
        q3=median(run.q3 for run in runs),
    )
