"""Intervals and rank groups of simulated tables, whose true means are known."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from harness.records.interval import Interval, Sample, mean_interval, score_interval
from reports.statistics import is_comparable, separable_pairs

Floats = NDArray[np.float64]
Rng = np.random.Generator
Draw = Callable[[Floats, float, Floats, Rng], Floats]

SEQUENCE, EXAMPLE, INTERACTION = 0.7, 0.7, 0.5
"""Standard deviations of the effects of sequence and example, and of the interaction of example and
row, on the score of an answer; the residual's is 1."""


class Kind(NamedTuple):
    """A kind of score.

    Attributes:
        draw: the sums of each cluster (r, k, c) of r rows of k seeds, from the mean (r, k) of each
            run, the standard deviation of the means that remains to be added, and `sizes`.
        sizes: answers of each cluster.
        level: the mean of a seed that does not fail; there is one `baseline`.
        point: the unit of differences.
    """

    draw: Draw
    sizes: Floats
    interval: Callable[[Sample], Interval]
    level: float
    baseline: float
    point: float


class Scenario(NamedTuple):
    """Equal rows of a table: standard deviation of their seeds in points, probability to fail.

    A seed that fails has a mean of so many points `above` the baseline.
    """

    sd: float = 0.0
    failing: float = 0.0
    rows: int = 6
    above: float = 0.0


def answers(means: Floats, sd: float, sizes: Floats, rng: Rng) -> Floats:
    """Correct answers: see `Kind.draw`."""

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    (rows, seeds), clusters, size = means.shape, len(sizes), int(sizes[0])
    shared = SEQUENCE * normal(clusters, 1) + EXAMPLE * normal(clusters, size)
    # The density of the score at 0 converts the standard deviation of accuracies near 70 %.
    effect = sd * (SEQUENCE**2 + EXAMPLE**2 + INTERACTION**2 + 1) ** 0.5 / 0.348
    scale = (SEQUENCE**2 + EXAMPLE**2 + INTERACTION**2 + 1 + effect**2) ** 0.5
    of_run = ndtri(means) * scale + effect * rng.standard_normal(means.shape)
    score = shared + INTERACTION * normal(rows, 1, clusters, size)
    score = score + normal(rows, seeds, clusters, size) + of_run.astype("f4")[:, :, None, None]
    return (score > 0).sum(3, dtype=np.float64)


def sums(noise: Callable[..., Floats], of_cluster: float, of_row: float, of_run: float) -> Draw:
    """Draws sums of numbers: see `Kind.draw`.

    An effect is `noise` times its standard deviation; all rows have the same effect of a cluster.
    """

    def draw(means: Floats, sd: float, sizes: Floats, rng: Rng) -> Floats:
        (rows, seeds), clusters = means.shape, len(sizes)
        values = (means + sd * rng.standard_normal(means.shape))[:, :, None]
        shared = of_cluster * noise(rng, size=clusters)
        shared = shared + of_row * noise(rng, size=(rows, 1, clusters))
        return sizes * (values + shared + of_run * noise(rng, size=(rows, seeds, clusters)))

    return draw


def skewed(rng: Rng, size: int | tuple[int, ...]) -> Floats:
    """Noise of mean 0 and variance 1 with a long lower tail."""
    return 1 - rng.exponential(size=size)


LENGTHS = np.round(np.exp(9.5 + 0.85 * ndtri((np.arange(60) + 0.5) / 60)))

KINDS = {
    "answers": Kind(answers, np.ones(2000), score_interval, 0.7, 0.3, 0.01),
    "sequences": Kind(answers, np.full(500, 8.0), score_interval, 0.7, 0.3, 0.01),
    "losses": Kind(
        sums(Rng.standard_normal, 0.07, 0.01, 0.005), LENGTHS, mean_interval, -1.7, -3.0, 0.005
    ),
    "returns": Kind(sums(skewed, 10, 8, 15), np.ones(20), mean_interval, 70.0, 0.0, 1.0),
}


def table(kind: Kind, means: Floats, sd: float, rng: Rng) -> list[Sample]:
    """The rows of a table, from the mean (r, k) of each run."""
    totals = kind.draw(means, sd * kind.point, kind.sizes, rng)
    return [Sample(of_row, kind.sizes) for of_row in totals]


def simulate(kind: Kind, seeds: int, scenario: Scenario, rng: Rng) -> tuple[float, bool]:
    """The share of rows whose interval contains the mean, and whether rows are separated."""
    sd, failing, rows, above = scenario
    fails, failed = rng.random((rows, seeds)) < failing, kind.baseline + above * kind.point
    samples = table(kind, np.where(fails, failed, kind.level), sd, rng)
    mean = (1 - failing) * kind.level + failing * failed
    ends = np.array([kind.interval(sample)[1:3] for sample in samples])
    covered = np.mean((ends[:, 0] <= mean) & (mean <= ends[:, 1]))
    return float(covered), bool(separated(samples, kind.baseline).any())


def separated(samples: Sequence[Sample], baseline: float) -> NDArray[np.bool_]:
    """Return whether two rows of a table are separable, (r, r)."""
    found = np.zeros((len(samples), len(samples)), dtype=bool)
    used = [i for i, sample in enumerate(samples) if is_comparable(sample, [baseline])]
    if len(used) > 1:
        found[np.ix_(used, used)] = separable_pairs([samples[i] for i in used])
    return found


def power(kind: Kind, seeds: int, rng: Rng) -> float:
    """The share of pairs of rows that differ by 5 points that is separated."""
    means = np.full((6, seeds), kind.level)
    means[3:] -= 5 * kind.point
    return float(separated(table(kind, means, 1, rng), kind.baseline)[:3, 3:].mean())
