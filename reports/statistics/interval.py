"""Intervals for accuracies."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from scipy.special import ndtri, stdtrit

from reports.statistics.sample import Sample

UPPER = 0.975
"""The quantile at the upper end of every interval: 95 % lie within."""


class Interval(NamedTuple):
    """A mean accuracy in [0, 1] or a mean loss, with its interval, and what the interval covers.

    `examples` is the sampling of the test split alone: the variation between seeds is not covered.
    """

    mean: float
    low: float
    high: float
    over: Literal["seeds and examples", "examples"]


def score_interval(sample: Sample) -> Interval:
    """The interval of runs whose answers are known, over seeds and clusters of test answers.

    Its ends are the accuracies p with

        (mean - p)^2 = (t^2 f + z^2 g) p (1 - p)

    where g p (1 - p) is the variance due to test examples for an accuracy of p, f p (1 - p) that
    due to seeds, z the normal quantile and t Student's for k - 1 degrees of freedom. Where seeds
    agree it is Wilson's interval with the design effect of clusters in g. Where they dominate it is
    Student's, except that its middle is nearer to 1/2: seeds vary less near 0 and 1. Between them
    squared half-widths are added (Graybill and Wang, "Confidence intervals on nonnegative linear
    combinations of variances", 1980; Zou and Donner, "Construction of confidence limits about
    effect measures", 2008). It lies within [0, 1], and has a width where all answers are correct or
    all seeds agree.
    """
    mean, factor = sample.mean, float(ndtri(UPPER)) ** 2 * sample.design
    if sample.seed_excess:
        t = float(stdtrit(sample.seeds - 1, UPPER))
        factor += t * t * sample.seed_excess / (mean * (1 - mean))
    low, high = score_ends(mean, factor)
    return Interval(mean, low, high, "seeds and examples" if sample.seeds > 1 else "examples")


def mean_interval(sample: Sample) -> Interval:
    """The interval of a mean that has no bounds, such as a loss, over seeds and test clusters.

    Its half-width is the root of `z^2 v + t^2 s`, where v is the variance of the mean over test
    examples, s that over seeds, z the normal quantile and t Student's for k - 1 degrees of freedom;
    see `score_interval` for the sum.
    """
    squares = float(ndtri(UPPER)) ** 2 * sample.examples
    if sample.seed_excess:
        squares += float(stdtrit(sample.seeds - 1, UPPER)) ** 2 * sample.seed_excess
    half = squares**0.5
    over = "seeds and examples" if sample.seeds > 1 else "examples"
    return Interval(sample.mean, sample.mean - half, sample.mean + half, over)


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
