"""Growth of a cost with the number of tokens: the exponent, and the length at which ratios cross 1.

Nothing is extrapolated: an exponent is fitted to the longest measured lengths, and a crossover lies
between two measured lengths or is given as a bound.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import stdtrit

from harness.records.interval import UPPER

if TYPE_CHECKING:
    import pandas as pd

    ByLength = Mapping[int, float] | pd.Series

FITTED = 4
"""The longest lengths that an exponent is fitted to: shorter ones have constant costs."""


class Exponent(NamedTuple):
    """The exponent b of `cost = a N^b` with its 95 % interval, and the lengths it was fitted to."""

    value: float
    low: float
    high: float
    shortest: int
    longest: int

    @property
    def text(self) -> str:
        """The exponent with its interval."""
        return f"{self.value:z.2f} [{self.low:z.2f}, {self.high:z.2f}]"


class Crossover(NamedTuple):
    """The length from which a ratio stays below 1, as an interval, and the measured lengths.

    An end of 0 is below the shortest length, an infinite one above the longest.
    """

    low: float
    high: float
    shortest: int
    longest: int

    @property
    def text(self) -> str:
        """The lengths from which a row costs less than softmax, within the measured lengths."""
        if (self.low, self.high) == (0, math.inf):
            return "undecided"
        if self.high == math.inf:
            return f"above {min(self.low, self.longest):,.0f}"
        if self.low == 0:
            return f"below {max(self.high, self.shortest):,.0f}"
        # Memory has no interval.
        return f"{self.low:,.0f}" + (f" to {self.high:,.0f}" if self.low < self.high else "")


def _points(values: "ByLength") -> list[tuple[float, float]]:
    """The lengths with their values, in order."""
    return sorted((float(length), float(value)) for length, value in dict(values).items())


def exponent(costs: "ByLength") -> Exponent | None:
    """The slope of log cost against log length over the `FITTED` longest lengths.

    The interval is Student's for the slope of a least-squares line, whose residuals are the
    deviation from a power law rather than noise alone.

    Args:
        costs: cost of one sample by its length, all positive.

    Returns:
        None with fewer than three lengths, which have no interval.
    """
    points = _points(costs)[-FITTED:]
    if len(points) < 3:
        return None
    lengths, values = np.log(points).T
    (slope, _), covariance = np.polyfit(lengths, values, 1, cov=True)
    half = stdtrit(len(points) - 2, UPPER) * covariance[0, 0] ** 0.5
    low, high = float(slope - half), float(slope + half)
    return Exponent(float(slope), low, high, int(points[0][0]), int(points[-1][0]))


def crossover(low: "ByLength", high: "ByLength") -> Crossover | None:
    """The interval of lengths from which a ratio stays below 1.

    Args:
        low: the lower end of the interval of the ratio, by length.
        high: the upper end, at the same lengths.

    Returns:
        None without lengths.
    """
    lengths = sorted(low.keys())
    if not lengths:
        return None
    # The lower end of the ratio's interval crosses first.
    return Crossover(_crossing(low), _crossing(high), lengths[0], lengths[-1])


def _crossing(ratios: "ByLength") -> float:
    """The length from which the ratios stay below 1: 0 where all are, infinite if the last is not.

    Between two lengths the logarithm of the ratio is linear in the logarithm of the length.
    """
    points = _points(ratios)
    above = [position for position, (_, ratio) in enumerate(points) if ratio >= 1]
    if not above:
        return 0.0
    if above[-1] == len(points) - 1:
        return math.inf
    (before, start), (after, end) = np.log(points[above[-1] : above[-1] + 2]).tolist()
    return math.exp(before + start / (start - end) * (after - before))
