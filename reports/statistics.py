"""Intervals for accuracies, and the middle of measurements repeated in several runs.

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
    """A mean accuracy and where it may lie, as fractions in [0, 1].

    Attributes:
        mean: over the runs.
        low: lower end of the interval.
        high: upper end of the interval.
        over: what was sampled anew. `seeds` holds the luck of seed and optimiser; `examples` holds
            the sampling of the test split only, and says nothing of another seed.
    """

    mean: float
    low: float
    high: float
    over: Literal["seeds", "examples"]


def interval(accuracies: Sequence[float], examples: int) -> Interval:
    """The interval of runs that differ by seed only: Student's over seeds, or Wilson's for one run.

    Args:
        accuracies: fractions right, one a run, at least one.
        examples: size of the test split, the same for all.
    """
    if len(accuracies) == 1:
        return wilson(accuracies[0], examples)
    return student(accuracies)


def student(accuracies: Sequence[float]) -> Interval:
    """Mean and Student-t interval of two accuracies or more, cut to [0, 1].

    `mean +- t(k - 1) s / sqrt(k)` with s the standard deviation of the k runs (k - 1 below).
    """
    runs, mean = len(accuracies), fmean(accuracies)
    half = float(stdtrit(runs - 1, _UPPER)) * stdev(accuracies) / runs**0.5
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half), "seeds")


def wilson(accuracy: float, examples: int) -> Interval:
    """Score interval of one fraction of `examples` independent examples.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927. Unlike the
    normal interval it is right near 0 and 1, and never leaves them.
    """
    z2 = float(ndtri(_UPPER)) ** 2
    centre = (accuracy + z2 / (2 * examples)) / (1 + z2 / examples)
    spread = accuracy * (1 - accuracy) / examples + z2 / (4 * examples**2)
    half = (z2 * spread) ** 0.5 / (1 + z2 / examples)
    return Interval(accuracy, max(0.0, centre - half), min(1.0, centre + half), "examples")


def middle(runs: Sequence[Quartiles]) -> Quartiles:
    """Median over runs of each quartile of the measurements repeated within one run."""
    return Quartiles(
        q1=median(run.q1 for run in runs),
        median=median(run.median for run in runs),
        q3=median(run.q3 for run in runs),
    )
