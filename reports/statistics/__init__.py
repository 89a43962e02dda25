"""Statistics of a board: intervals of accuracies, comparisons of rows, and tiers.

The quantiles are from `scipy.special`: `scipy.stats`, which wraps it, takes longer to import than a
leaderboard takes to build.
"""

from reports.statistics.comparison import (
    LEVEL,
    compare,
    differences,
    holm,
    is_comparable,
    separable_pairs,
)
from reports.statistics.interval import UPPER, Interval, interval, mean_interval, score_interval
from reports.statistics.sample import Sample
from reports.statistics.tiers import tiers

__all__ = [
    "LEVEL",
    "UPPER",
    "Interval",
    "Sample",
    "compare",
    "differences",
    "holm",
    "interval",
    "is_comparable",
    "mean_interval",
    "score_interval",
    "separable_pairs",
    "tiers",
]
