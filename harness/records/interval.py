"""Intervals of scores."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from scipy.special import ndtri, stdtrit

from harness.records.sample import Sample
from tasks.metric import Metric

UPPER = 0.975
"""The quantile at the upper end of every interval: 95 % lie within."""


Over = Literal["seeds and examples", "examples"]


class Interval(NamedTuple):
    """A mean accuracy in [0, 1] or a score, with its interval, and what the interval covers.

    `examples` is the sampling of the test split alone: the variation between seeds is not covered.
    """

    mean: float
    low: float
    high: float
    over: Over


def interval_of(sample: Sample, metric: Metric) -> Interval:
    """The interval of the runs of a sample in the unit of their metric."""
    interval = (score_interval if sample.bounded else mean_interval)(sample)
    return in_unit(interval, metric)


def in_unit(interval: Interval, metric: Metric) -> Interval:
    """An interval of means as an interval of scores."""
    mean, low, high = map(metric.value, interval[:3])
    return Interval(mean, low, high, interval.over)


def score_interval(sample: Sample) -> Interval:
    """The interval of runs whose answers are known, over seeds and clusters of test answers.

    Its ends are the accuracies p with

        (mean - p)^2 = (z^2 g + f) p (1 - p)

    where g p (1 - p) is the variance due to test examples for an accuracy of p, z the normal
    quantile, and f p (1 - p) what seeds add: see `seed_square`. Where seeds agree it is Wilson's
    interval with the design effect of clusters in g. Where they dominate it is Student's, except
    that its middle is nearer to 1/2: seeds vary less near 0 and 1. It lies within [0, 1], and has a
    width where all answers are correct or all seeds agree.
    """
    mean, square = sample.mean, float(ndtri(UPPER)) ** 2
    factor = square * sample.design
    if added := seed_square(sample, square):
        factor += added / (mean * (1 - mean))
    low, high = score_ends(mean, factor)
    return Interval(mean, low, high, _over(sample))


def mean_interval(sample: Sample) -> Interval:
    """The interval of a mean that has no bounds, such as a loss, over seeds and test clusters.

    Its squared half-width is `q^2 v` and what seeds add, where v is the variance of the mean over
    test examples and q Student's quantile for the clusters that it was estimated from.
    """
    square = float(stdtrit(sample.freedom, UPPER)) ** 2
    half = (square * sample.examples + seed_square(sample, square)) ** 0.5
    return Interval(sample.mean, sample.mean - half, sample.mean + half, _over(sample))


def seed_square(sample: Sample, square: float) -> float:
    """What seeds add to the squared half-width of the test examples, `square` times their variance.

    Squared half-widths are added (Graybill and Wang, "Confidence intervals on nonnegative linear
    combinations of variances", 1980; Zou and Donner, "Construction of confidence limits about
    effect measures", 2008): `t^2 b` of the seeds, with Student's t for k - 1 degrees of freedom and
    the variance b between seeds, and the term of the examples. The interaction i is part of both
    variances: `t^2 b - square i`, and at least 0. With `t^2 (b - i)` in its place 91 % of intervals
    of three seeds cover the mean where i is most of the variance over examples.
    """
    if sample.seeds == 1:
        return 0.0
    t = float(stdtrit(sample.seeds - 1, UPPER))
    return max(t * t * sample.between - square * sample.interaction, 0.0)


def _over(sample: Sample) -> Over:
    return "seeds and examples" if sample.seeds > 1 else "examples"


def score_ends(mean: float, factor: float) -> tuple[float, float]:
    """The solutions p of `(mean - p)^2 = factor p (1 - p)`, within [0, 1]."""
    centre = (mean + factor / 2) / (1 + factor)
    half = (factor * mean * (1 - mean) + factor**2 / 4) ** 0.5 / (1 + factor)
    # Rounding could put an end on the wrong side of the mean.
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def interval(accuracies: Sequence[float], examples: int) -> Interval:
    """The interval of runs that differ by seed only, whose single answers are not known.

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
    return score_ends(accuracy, float(ndtri(UPPER)) ** 2 / examples)
