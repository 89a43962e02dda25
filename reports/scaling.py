"""Growth of a cost with the number of tokens: the exponent, and the length at which ratios cross 1.

Nothing is extrapolated: an exponent is that of the longest measured lengths, and a crossover lies
between two measured lengths or is given as a bound.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy.special import stdtrit

from reports.statistics import UPPER

FITTED = 4
"""The longest lengths that an exponent is fitted to: shorter ones have constant costs."""


class Exponent(NamedTuple):
    """The exponent b of `cost = a N^b` with its 95 % interval, and the lengths it was fitted to."""

    value: float
    low: float
    high: float
    shortest: int
    longest: int


class Crossover(NamedTuple):
    """The length from which a ratio stays below 1, as an interval, and the measured lengths.

    An end of 0 is below the shortest length, an infinite one above the longest.
    """

    low: float
    high: float
    shortest: int
    longest: int


def exponent(costs: Mapping[int, float]) -> Exponent | None:
    """The slope of log cost against log length over the `FITTED` longest lengths.

    The interval is Student's for the slope of a least-squares line, whose residuals are the
    deviation from a power law rather than noise alone.

    Args:
        costs: cost of one sample by its length, all positive.

    Returns:
        None with fewer than three lengths, which have no interval.
    """
    lengths = sorted(costs)[-FITTED:]
    if len(lengths) < 3:
        return None
    x = [math.log(length) for length in lengths]
    y = [math.log(costs[length]) for length in lengths]
    count, x_mean, y_mean = len(x), sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - x_mean) ** 2 for a in x)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread
    residuals = [b - y_mean - slope * (a - x_mean) for a, b in zip(x, y, strict=True)]
    error = math.sqrt(sum(r * r for r in residuals) / (count - 2) / spread)
    half = float(stdtrit(count - 2, UPPER)) * error
    return Exponent(slope, slope - half, slope + half, lengths[0], lengths[-1])


def crossover(low: Mapping[int, float], high: Mapping[int, float]) -> Crossover | None:
    """The interval of lengths from which a ratio stays below 1.

    Args:
        low: the lower end of the interval of the ratio, by length.
        high: the upper end, at the same lengths.

    Returns:
        None without lengths.
    """
    if not low:
        return None
    # The lower end of the ratio's interval crosses first.
    return Crossover(_crossing(low), _crossing(high), min(low), max(low))


def _crossing(ratios: Mapping[int, float]) -> float:
    """The length from which the ratios stay below 1: 0 where all are, infinite if the last is not.

    Between two lengths the logarithm of the ratio is taken to be linear in that of the length.
    """
    lengths: Sequence[int] = sorted(ratios)
    above = [length for length in lengths if ratios[length] >= 1]
    if not above:
        return 0.0
    if above[-1] == lengths[-1]:
        return math.inf
    before = above[-1]
    after = lengths[lengths.index(before) + 1]
    start, end = math.log(ratios[before]), math.log(ratios[after])
    share = start / (start - end)
    return math.exp(math.log(before) + share * (math.log(after) - math.log(before)))
