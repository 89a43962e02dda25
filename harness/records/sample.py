"""The test answers of runs that differ by seed only, and the variance of their mean.

Answer i of seed s is y_si = mu + a_s + b_i + e_si: seeds (a) and test examples (b) are crossed
random effects, since all runs answer the same examples, and e is what differs between seeds on one
example. With k seeds, c clusters and n answers the variance of the mean is

    sigma_a^2 / k + sigma_b^2 / c + sigma_e^2 / (k c)

Its parts come from the analysis of variance of two crossed factors (Searle, Casella and
McCulloch, "Variance Components", 1992, chapter 4), with clusters in place of examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from harness.records.answers import ClusterValues, CorrectAnswers

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sample:
    """The answers of runs that differ by seed only.

    Attributes:
        totals: correct answers by seed and cluster, or the sums of another value of them, (k, c).
        sizes: answers of each cluster, (c,).
        bounded: whether the values of answers are 0 and 1.
    """

    totals: Array
    sizes: Array
    bounded: bool = True

    @classmethod
    def of(cls, answers: Sequence[CorrectAnswers | ClusterValues]) -> "Sample | None":
        """The answers of one or more runs; None where they are of different test splits."""
        sizes = [one.cluster_sizes() for one in answers]
        if not all(np.array_equal(sizes[0], other) for other in sizes[1:]):
            return None
        totals = np.array([one.cluster_sums() for one in answers])
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
        """What each cluster adds to the error of the mean, scaled to its variance, (c,).

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
    def seed_excess(self) -> float:
        """Variance of the mean due to seeds, sigma_a^2/k; 0 where its estimate is negative."""
        return max(self.between - self.interaction, 0.0)

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
