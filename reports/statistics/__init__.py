"""Statistics of a table: intervals of accuracies, comparisons of rows, and tiers.

The quantiles are from `scipy.special`: `scipy.stats`, which wraps it, takes longer to import than a
leaderboard takes to build.
"""

from harness.records.interval import UPPER, Interval, interval, mean_interval, score_interval
from harness.records.sample import Sample
from reports.statistics.comparison import (
    LEVEL,
    differences,
    holm,
    is_comparable,
    probability_of_best,
    separable_pairs,
)
from reports.statistics.tiers import tiers

__all__ = [
    "LEVEL",
    "UPPER",
    "Interval",
    "Sample",
    "differences",
    "holm",
    "interval",
    "is_comparable",
    "mean_interval",
    "probability_of_best",
    "score_interval",
    "separable_pairs",
    "tiers",
]
