"""Intervals of scores, from the test answers of runs that differ by seed only.

Answer i of seed s is y_si = mu + a_s + b_i + e_si: seeds (a) and test examples (b) are crossed
random effects, since all runs answer the same examples, and e is what differs between seeds on one
example. With k seeds, c clusters and n answers the variance of the mean is

    sigma_a^2 / k + sigma_b^2 / c + sigma_e^2 / (k c)

Its parts come from the analysis of variance of two crossed factors (Searle, Casella and
McCulloch, "Variance Components", 1992, chapter 4), with clusters in place of examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from harness.records.answers import ClusterValues, CorrectAnswers
from tasks.metrics import Metric

Array = NDArray[np.float64]

UPPER = 0.975
"""The quantile at the upper end of every interval: 95 % lie within."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The predictions of runs that differ by seed only.

    `totals` are correct ones by seed and cluster, or sums of another value, (k, c); `sizes` those
    of each cluster, (c,); they are `bounded` if the values are 0 and 1.
    """

    totals: Array
    sizes: Array
    bounded: bool = True

    @classmethod
    def of(cls, answers: Sequence[CorrectAnswers | ClusterValues]) -> "Sample | None":
        """The answers of one or more runs; None where they are of different test splits."""
        sizes = [run.cluster_sizes() for run in answers]
        if not all(np.array_equal(sizes[0], other) for other in sizes[1:]):
            return None
        totals = np.array([run.cluster_sums() for run in answers])
        return cls(totals, sizes[0], isinstance(answers[0], CorrectAnswers))

    @property
    def seeds(self) -> int:
        """The number of runs, k."""
        return len(self.totals)

    @cached_property
    def answers(self) -> float:
        """n, the number of answers of one run."""
        return float(self.sizes.sum())

    @cached_property
    def average(self) -> Array:
        """Correct answers of each cluster, over all seeds, (c,)."""
        return self.totals.mean(0)

    @cached_property
    def means(self) -> Array:
        """The accuracy of each seed, (k,)."""
        return self.totals.sum(1) / self.answers

    @cached_property
    def errors(self) -> Array:
        """The standard error of the accuracy of each seed over test examples, (k,)."""
        return np.sqrt(np.sum(self._deviations(self.totals, self.means[:, None]) ** 2, 1))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `examples`: clusters of equal size that weigh as much, less 1.

        Kish, "Survey Sampling", 1965; at least 1.
        """
        return max(self.answers**2 / float(self.sizes @ self.sizes) - 1, 1.0)

    @cached_property
    def mean(self) -> float:
        """The accuracy over all seeds."""
        return float(self.means.mean())

    @cached_property
    def deviations(self) -> Array:
        """The error of the mean from each cluster, scaled to its variance, (c,).

        The sum of the squares is `examples`; the sum of the products with another row's is the
        covariance of the two means over test examples.
        """
        return self._deviations(self.average, np.array(self.mean))

    def _deviations(self, totals: Array, mean: Array) -> Array:
        """The deviations of the jackknife: how much the mean changes without a cluster."""
        clusters = len(self.sizes)
        others = self.answers - self.sizes if clusters > 1 else self.sizes
        return (totals - self.sizes * mean) / others * (1 - 1 / clusters) ** 0.5

    @cached_property
    def examples(self) -> float:
        """Variance of the mean over test examples: sigma_b^2/c + sigma_e^2/(kc)."""
        return float(np.sum(self.deviations**2))

    @cached_property
    def between(self) -> float:
        """Variance of the mean over seeds: sigma_a^2/k + sigma_e^2/(kc)."""
        return float(self.means.var(ddof=1)) / self.seeds if self.seeds > 1 else 0.0

    @cached_property
    def interaction(self) -> float:
        """The part that both have: sigma_e^2/(kc)."""
        seeds, clusters = self.totals.shape
        if seeds == 1 or clusters == 1:
            return 0.0
        average, shift = self.average, self.means - self.mean
        # The sum of the squares of totals - average - shift * sizes, from sums of products.
        rest = np.vdot(self.totals, self.totals) - seeds * np.vdot(average, average)
        rest -= 2 * shift @ (self.totals @ self.sizes - average @ self.sizes)
        rest += shift @ shift * (self.sizes @ self.sizes)
        freedom = (seeds - 1) * seeds * (clusters - 1) / clusters
        return max(float(rest), 0.0) / freedom / self.answers**2

    @property
    def design(self) -> float:
        """Variance over test examples of one answer's weight: `examples` over p (1 - p).

        One further error that a whole cluster shares is assumed, since without an error the
        dependence within clusters is unknown: 1/c where all answers or none are correct.
        """
        p, clusters = self.mean, len(self.sizes)
        errors = min(p, 1 - p) * self.answers * self.seeds
        observed = self.examples / (p * (1 - p)) if errors else 0.0
        return (errors * observed + 1 / clusters) / (errors + 1)


class Interval(NamedTuple):
    """A mean accuracy in [0, 1] or a score, with its interval.

    Of one run the interval is over test examples alone; of several, over seeds as well.
    """

    mean: float
    low: float
    high: float


def interval_of(sample: Sample, metric: Metric) -> Interval:
    """The interval of the runs of a sample in the unit of their metric."""
    interval = (score_interval if sample.bounded else mean_interval)(sample)
    return in_unit(interval, metric)


def in_unit(interval: Interval, metric: Metric) -> Interval:
    """An interval of means as an interval of scores."""
    return Interval(*map(metric.value, interval))


def score_interval(sample: Sample) -> Interval:
    """The interval of runs whose answers are known, over seeds and clusters of test answers.

    Its ends are the accuracies p with

        (mean - p)^2 = (z^2 g + f) p (1 - p)

    where g p (1 - p) is the variance due to test examples for an accuracy of p, z the normal
    quantile, and f p (1 - p) what seeds add: see `seed_square`. Where seeds agree it is Wilson's
    interval with the design effect of clusters in g. Where they dominate it is Student's, nearer to
    1/2.
    """
    mean, square = sample.mean, float(ndtri(UPPER)) ** 2
    factor = square * sample.design
    if added := seed_square(sample, square):
        factor += added / (mean * (1 - mean))
    return Interval(mean, *score_ends(mean, factor))


def mean_interval(sample: Sample) -> Interval:
    """The interval of a mean that has no bounds, such as a loss, over seeds and test clusters.

    Its squared half-width is `q^2 v` and what seeds add. v is the variance of the mean over test
    examples, q Student's quantile for the clusters from which it was estimated.
    """
    square = float(stdtrit(sample.freedom, UPPER)) ** 2
    half = (square * sample.examples + seed_square(sample, square)) ** 0.5
    return Interval(sample.mean, sample.mean - half, sample.mean + half)


def interval_like(mean: float, samples: Sequence[Sample]) -> Interval:
    """The interval of a mean whose single answers are not known, over test examples.

    Its variance over them is that of one seed of the samples, which answer the same examples, in
    the median: of an answer's weight for an accuracy, of the mean for another value.
    """
    seeds = [replace(sample, totals=sample.totals[:1]) for sample in samples]
    square = float(ndtri(UPPER)) ** 2
    if samples[0].bounded:
        factor = square * float(np.median([seed.design for seed in seeds]))
        return Interval(mean, *score_ends(mean, factor))
    half = (square * float(np.median([seed.examples for seed in seeds]))) ** 0.5
    return Interval(mean, mean - half, mean + half)


def seed_square(sample: Sample, square: float) -> float:
    """The term that seeds add to the squared half-width, `square` times their variance.

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
    mean, runs = fmean(accuracies), len(accuracies)
    low, high = wilson(mean, examples)
    half = float(stdtrit(runs - 1, UPPER)) * stdev(accuracies) / runs**0.5 if runs > 1 else 0.0
    return Interval(mean, max(0.0, min(low, mean - half)), min(1.0, max(high, mean + half)))


def wilson(accuracy: float, examples: int) -> tuple[float, float]:
    """Score interval of one fraction of `examples` independent examples.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927. Unlike the
    normal interval it is valid near 0 and 1, and lies within [0, 1].
    """
    return score_ends(accuracy, float(ndtri(UPPER)) ** 2 / examples)
