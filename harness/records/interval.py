"""Intervals of scores, from the test answers of runs that differ by seed only.

Answer i of seed s is y_si = mu + a_s + b_i + e_si: seeds (a) and test examples (b) are crossed
random effects, since all runs answer the same examples, and e is their interaction. With k seeds
and c clusters the variance of the mean is

    sigma_a^2 / k + sigma_b^2 / c + sigma_e^2 / (k c)

Its parts come from the analysis of variance of two crossed factors (Searle, Casella and
McCulloch, "Variance Components", 1992, chapter 4), with clusters instead of examples.

Few seeds and few clusters have different degrees of freedom. The tail of the error is a mixture of
two Student distributions, weighted by the seeds' share of the variance: see `tail`. Intervals of
means and of differences use the same mixture; tests/reports/test_coverage.py simulates how often
they contain the true value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import beta, ndtri, stdtr, stdtrit

from harness.records.answers import ClusterValues, CorrectAnswers
from tasks.metrics import Metric

Array = NDArray[np.float64]
UPPER = 0.975  # The quantile at the upper end of every interval: 95 % lie within


@dataclass(frozen=True, eq=False)
class Sample:
    """The predictions of runs that differ by seed only.

    `totals` are sums of their values by seed and cluster, (k, c), `sizes` the predictions of each
    cluster, (c,). Values are `bounded` if they are 0 and 1.
    """

    totals: Array
    sizes: Array
    bounded: bool = True

    @classmethod
    def of(cls, answers: Sequence[CorrectAnswers | ClusterValues]) -> "Sample | None":
        # None if the test splits differ.
        sizes = [run.cluster_sizes() for run in answers]
        if not all(np.array_equal(sizes[0], other) for other in sizes[1:]):
            return None
        totals = np.array([run.cluster_sums() for run in answers])
        return cls(totals, sizes[0], isinstance(answers[0], CorrectAnswers))

    @property
    def seeds(self) -> int:
        return len(self.totals)

    @cached_property
    def answers(self) -> float:
        return float(self.sizes.sum())

    @cached_property
    def average(self) -> Array:
        return self.totals.mean(0)

    @cached_property
    def means(self) -> Array:
        return self.totals.sum(1) / self.answers

    @cached_property
    def errors(self) -> Array:
        return np.sqrt(np.sum(self._deviations(self.totals, self.means[:, None]) ** 2, 1))

    @property
    def freedom(self) -> float:
        # The effective number of clusters, less 1 (Kish, "Survey Sampling", 1965).
        return max(self.answers**2 / float(self.sizes @ self.sizes) - 1, 1.0)

    @cached_property
    def mean(self) -> float:
        return float(self.means.mean())

    @cached_property
    def deviations(self) -> Array:
        # Sums of products with another row's are covariances of the two means over test examples.
        return self._deviations(self.average, np.array(self.mean))

    def _deviations(self, totals: Array, mean: Array) -> Array:
        # Jackknife: the change of the mean without each cluster.
        clusters = len(self.sizes)
        others = self.answers - self.sizes if clusters > 1 else self.sizes
        return (totals - self.sizes * mean) / others * (1 - 1 / clusters) ** 0.5

    @cached_property
    def examples(self) -> float:
        # sigma_b^2/c + sigma_e^2/(kc)
        return float(np.sum(self.deviations**2))

    @cached_property
    def between(self) -> float:
        # sigma_a^2/k + sigma_e^2/(kc)
        return float(self.means.var(ddof=1)) / self.seeds if self.seeds > 1 else 0.0

    @cached_property
    def interaction(self) -> float:
        # sigma_e^2/(kc)
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
        # One more error, shared by a whole cluster, is assumed: without errors the dependence
        # within clusters is unknown, and the value is 1/c.
        p, clusters = self.mean, len(self.sizes)
        errors = min(p, 1 - p) * self.answers * self.seeds
        observed = self.examples / (p * (1 - p)) if errors else 0.0
        return (errors * observed + 1 / clusters) / (errors + 1)


class Interval(NamedTuple):
    mean: float
    low: float
    high: float


def interval_of(sample: Sample, metric: Metric) -> Interval:
    interval = (score_interval if sample.bounded else mean_interval)(sample)
    return in_unit(interval, metric)


def in_unit(interval: Interval, metric: Metric) -> Interval:
    return Interval(*map(metric.value, interval))


def score_interval(sample: Sample) -> Interval:
    # The ends are the accuracies p with
    #     (mean - p)^2 = q^2 v / (mean (1 - mean)) p (1 - p)
    # where v is the variance of the mean, with `Sample.design` for examples, and q its quantile.
    # If seeds agree it is Wilson's interval with the design effect of clusters; if they dominate
    # it is Student's, nearer to 1/2.
    mean, spread = sample.mean, sample.mean * (1 - sample.mean)
    if not spread:
        square = float(stdtrit(sample.freedom, UPPER)) ** 2
        return Interval(mean, *score_ends(mean, square * sample.design))
    half = _half(sample, sample.design * spread)
    return Interval(mean, *score_ends(mean, half**2 / spread))


def mean_interval(sample: Sample) -> Interval:
    half = _half(sample, sample.examples)
    return Interval(sample.mean, sample.mean - half, sample.mean + half)


def interval_like(mean: float, samples: Sequence[Sample]) -> Interval:
    # For a mean of unknown answers to the same examples: the median over samples of the variance
    # of one seed.
    seeds = [replace(sample, totals=sample.totals[:1]) for sample in samples]
    square = float(stdtrit(samples[0].freedom, UPPER)) ** 2
    if samples[0].bounded:
        factor = square * float(np.median([seed.design for seed in seeds]))
        return Interval(mean, *score_ends(mean, factor))
    half = (square * float(np.median([seed.examples for seed in seeds]))) ** 0.5
    return Interval(mean, mean - half, mean + half)


def _half(sample: Sample, examples: float) -> float:
    # `examples` is the variance of the mean over examples.
    if sample.seeds == 1:
        return float(stdtrit(sample.freedom, UPPER)) * examples**0.5
    variances = (sample.between, examples, sample.interaction)
    return _width(sample.seeds, sample.freedom, *variances)


def _width(
    seeds: int, clusters: float, between: float, examples: float, interaction: float = 0.0
) -> float:
    variance, share = combined(*np.array([between, examples, interaction])[:, None])
    q = quantile(share, np.array([seeds - 1.0]), np.array([clusters]))
    return float(q[0] * variance[0] ** 0.5)


def combined(between: Array, examples: Array, interaction: Array) -> tuple[Array, Array]:
    # Both variances contain the interaction, which is subtracted once. The difference may be
    # negative by chance, so a third of the interaction is the minimum: with 0 as minimum 92 % of
    # intervals cover a mean of twelve clusters whose variance is nearly all interaction, with the
    # whole interaction 99 %. The weight is the seeds' share of the variance to the power 3/2: then
    # 94 to 97 % of intervals contain the true value, with the share itself up to 97.2 %.
    variance = np.maximum(between + examples - interaction, interaction / 3)
    share = np.minimum(between / np.maximum(variance, np.finfo(float).tiny), 1.0)
    return variance, share**1.5


def tail(t: Array, share: Array, seeds: Array, clusters: Array) -> Array:
    # Two-sided probability that an error exceeds t >= 0 standard errors: two Student distributions
    # with degrees of freedom `seeds` and `clusters`, weighted by `share`. The far tail, for a
    # correction for many pairs, is conservative. Satterthwaite's is not: with three seeds it is up
    # to 30 times too small at 0.05/66.
    return 2 * (share * stdtr(seeds, -t) + (1 - share) * stdtr(clusters, -t))


def quantile(share: Array, seeds: Array, clusters: Array) -> Array:
    t = np.minimum(stdtrit(seeds, UPPER), stdtrit(clusters, UPPER)) * np.ones_like(share)
    # The tail is convex: Newton's steps from below rise to the quantile, and seven suffice.
    for _ in range(7):
        slope = 2 * (share * _density(t, seeds) + (1 - share) * _density(t, clusters))
        t = t + (tail(t, share, seeds, clusters) - 2 * (1 - UPPER)) / slope
    return t


def _density(t: Array, freedom: Array) -> Array:
    return (1 + t * t / freedom) ** (-(freedom + 1) / 2) / (freedom**0.5 * beta(0.5, freedom / 2))


def score_ends(mean: float, factor: float) -> tuple[float, float]:
    # The solutions p in [0, 1] of (mean - p)^2 = factor p (1 - p).
    centre = (mean + factor / 2) / (1 + factor)
    half = (factor * mean * (1 - mean) + factor**2 / 4) ** 0.5 / (1 + factor)
    # Rounding may put an end on the wrong side of the mean.
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def interval(accuracies: Sequence[float], examples: int) -> Interval:
    # From fractions correct of runs on one test split. One run has Wilson's interval. For several
    # runs the unknown interaction counts twice, so the interval covers at least 95 %.
    mean, runs = fmean(accuracies), len(accuracies)
    spread = mean * (1 - mean)
    if runs == 1 or not spread or examples == 1:
        return Interval(mean, *wilson(mean, examples))
    half = _width(runs, examples - 1.0, stdev(accuracies) ** 2 / runs, spread / examples)
    return Interval(mean, *score_ends(mean, half**2 / spread))


def wilson(accuracy: float, examples: int) -> tuple[float, float]:
    # Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927.
    return score_ends(accuracy, float(ndtri(UPPER)) ** 2 / examples)
