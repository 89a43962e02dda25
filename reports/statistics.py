"""Comparison of the rows of a table on the same test answers: differences, pairs and groups."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# Not `scipy.stats`, which wraps it: that takes longer to import than a table to build.
from scipy.special import digamma, polygamma, stdtrit

from harness.records.interval import UPPER, Array, Sample, combined, quantile, tail
from harness.records.record import Metric

# The highest probability that any two equal rows of a table are separated.
LEVEL = 0.05
MANY_SEEDS = 5  # With so many seeds a row may have some of them at a baseline
SEED = 0
TAU_DRAWS = 4000  # Samples for each tau of an interval
FEWEST_ROWS = 8  # From here on the seeds of other rows count
PAIRS = ("metric", "first", "second", "difference", "low", "high", "p", "p_holm")

# Columns of the pairs of several suites, see `SuiteResults.pairs`
COLUMNS = ["table", "question", *PAIRS, "outdated"]


def is_comparable(sample: Sample, baselines: Sequence[float]) -> bool:
    # With fewer than `MANY_SEEDS` seeds none may be at a baseline. With more it is enough that they
    # are not all at the same one; without any of the `baselines` no row is comparable. The reasons:
    # docs/decisions/statistics.md.
    # A seed is at a baseline where a two-sided test at 5 % does not tell their accuracies apart.
    # The baseline has the sampling error of the seed. A seed below all baselines is at the lowest
    # one.
    if sample.seeds < 2 or not len(baselines):
        return False
    levels = np.array(baselines)
    difference = sample.means[:, None] - levels
    margin = 2**0.5 * stdtrit(sample.freedom, UPPER) * sample.errors[:, None]
    failed = (np.abs(difference) <= margin) | ((difference < 0) & (levels == levels.min()))
    return not (failed.all(0) if sample.seeds >= MANY_SEEDS else failed).any()


def separable_pairs(samples: Sequence[Sample]) -> NDArray[np.bool_]:
    # (r, r), symmetric, by Holm's correction over all pairs.
    count = len(samples)
    first, second = np.triu_indices(count, 1)
    separable = np.zeros((count, count), dtype=bool)
    separable[first, second] = holm(differences(samples).p[first, second]) <= LEVEL
    return separable | separable.T


class Differences(NamedTuple):
    # The means of rows i minus the means of rows j, (r, r), with their standard errors. `share` of
    # the variance is due to seeds; `seeds` and `clusters` are the degrees of freedom of its parts.
    mean: Array
    error: Array
    share: Array
    seeds: Array
    clusters: Array

    @property
    def p(self) -> Array:
        t = np.abs(self.mean) / np.maximum(self.error, np.finfo(float).tiny)
        return np.where(self.mean != 0, tail(t, self.share, self.seeds, self.clusters), 1.0)

    @property
    def half(self) -> Array:
        return quantile(self.share, self.seeds, self.clusters) * self.error


def differences(samples: Sequence[Sample]) -> Differences:
    # Rows answer the same examples: the variance over them is the jackknife's of the difference,
    # with the differences between the deviations of both rows.
    means = np.array([row.mean for row in samples])
    interaction = np.array([row.interaction for row in samples])
    seeds = np.array([row.seeds for row in samples])
    between = np.array([row.between for row in samples])
    variance_of_seeds, freedom = moderated(seeds * between, seeds - 1.0)
    between = variance_of_seeds / seeds
    deviations = np.array([row.deviations for row in samples])
    products = deviations @ deviations.T
    norms = products.diagonal()
    examples = np.maximum(norms[:, None] + norms - 2 * products, 0)
    of_seeds = between[:, None] + between
    variance, share = combined(of_seeds, examples, interaction[:, None] + interaction)
    squares = between**2 / freedom
    welch = of_seeds**2 / np.maximum(squares[:, None] + squares, np.finfo(float).tiny)
    welch = np.maximum(welch, np.minimum(freedom[:, None], freedom))
    clusters = np.array(samples[0].freedom)
    return Differences(means[:, None] - means, variance**0.5, share, welch, clusters)


def moderated(variance: Array, freedom: Array) -> tuple[Array, Array]:
    # The variance over the seeds of each row, with the other rows as its prior, as for genes with
    # few samples: Smyth, "Linear models and empirical Bayes methods for assessing differential
    # expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3(1), 2004, section 6.
    # The less the variances of rows differ, the more degrees of freedom the prior has. More careful
    # than there: they are taken to differ by one standard error more than estimated, the prior has
    # half of its degrees of freedom, at most half of those of all rows, and no variance is lowered.
    # Why: docs/decisions/statistics.md.
    several = freedom > 0
    v, d = variance[several], freedom[several]
    if len(v) < FEWEST_ROWS or np.median(v) == 0:
        return variance, freedom
    logs = np.log(np.maximum(v, 1e-5 * np.median(v))) - digamma(d / 2) + np.log(d / 2)
    spread = logs.var(ddof=1) * (1 + (2 / (len(v) - 1)) ** 0.5) - polygamma(1, d / 2).mean()
    # Trigamma falls: the largest prior that explains the spread.
    priors = np.geomspace(0.01, d.sum() / 2, 1000)
    prior = priors[polygamma(1, priors) >= spread].max(initial=priors[0])
    usual = np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))
    found = (prior * usual + freedom * variance) / (prior + freedom)
    return (
        np.where(several, np.maximum(found, variance), variance),
        np.where(several, prior + freedom, freedom),
    )


def holm(p: Array) -> Array:
    # A true hypothesis is rejected with probability `LEVEL` at most: Holm, "A simple sequentially
    # rejective multiple test procedure", 1979. The i-th smallest of m, counted from 0, is
    # multiplied by m - i, and is at least as large as the smaller ones.
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def pairs(samples: Mapping[str, Sample], metric: Metric) -> pd.DataFrame:
    # Columns: `metric`, its name; `first`, `second`; `difference`, the metric of the first row
    # minus the second's, with the ends `low` and `high` of its 95 % interval; `p`, the p-value that
    # there is no difference, and `p_holm`, adjusted for the number of pairs of the table.
    rows = [*samples]
    if len(rows) < 2:
        return pd.DataFrame(columns=[*PAIRS])
    found = differences([*samples.values()])
    at = np.triu_indices(len(rows), 1)
    # An exponential is compared by its logarithm.
    scale = metric.sign * (1.0 if metric.exponential else metric.scale)
    name = f"log {metric.name}" if metric.exponential else metric.name
    mean, half, p = scale * found.mean[at], abs(scale) * found.half[at], found.p[at]
    first, second = ([rows[i] for i in side] for side in at)
    # Accuracies are at most 100 points apart.
    most = abs(scale) if all(sample.bounded for sample in samples.values()) else np.inf
    return pd.DataFrame({
        "metric": name, "first": first, "second": second, "difference": mean,
        "low": np.maximum(mean - half, -most), "high": np.minimum(mean + half, most), "p": p,
        "p_holm": holm(p),
    })  # fmt: skip


def joined(tables: Iterable[pd.DataFrame], columns: list[str] = COLUMNS) -> pd.DataFrame:
    found = [table for table in tables if len(table)] or [pd.DataFrame(columns=columns)]
    return pd.concat(found, ignore_index=True)[columns]


def told_apart(
    answers: pd.DataFrame, pairs: pd.DataFrame, ceiling: float | None
) -> set[frozenset[str]]:
    # `answers` and `pairs` are of one question; higher is better. A row does not solve it if its
    # whole interval on test is below the ceiling. Training ended at the ceiling: two rows that
    # solve it are never told apart.
    separable = pairs.loc[pairs["p_holm"] <= LEVEL, ["first", "second"]]
    found = {*map(frozenset, separable.itertuples(index=False, name=None))}
    solved = answers["solved"].astype(bool)
    if ceiling is not None:
        # `solved` is of dev, the interval of test.
        reached = answers.loc[solved & (answers["high"] >= ceiling), "row"]
        below = answers.loc[~solved & (answers["high"] < ceiling), "row"]
        found |= {*map(frozenset, product(reached, below))}
    both = {*answers.loc[solved, "row"]}
    return {pair for pair in found if pair <= {*answers["row"]} and not pair <= both}


def between(found: pd.DataFrame, named: Sequence[tuple[str, str]]) -> pd.DataFrame:
    # These comparisons were chosen before the results: `p_holm` is corrected for their number in
    # each question, not for the number of all pairs.
    mirrored = found.rename(columns={"first": "second", "second": "first"})
    ends = {"difference": -found["difference"], "low": -found["high"], "high": -found["low"]}
    every = pd.concat([found, mirrored.assign(**ends)])[[*found]].rename_axis("at").reset_index()
    order = pd.DataFrame([*dict.fromkeys(named)], columns=["first", "second"])
    chosen = order.merge(every, on=["first", "second"]).sort_values("at")[[*found]]
    adjusted = chosen.groupby(["table", "question"])["p"].transform(lambda p: holm(p.to_numpy()))
    return chosen.assign(p_holm=adjusted)


def rank_groups(separable: NDArray[np.bool_]) -> list[str]:
    # The groups are the maximal sets of rows without a separable pair, (r, r), the best row first;
    # found by insertion and absorption (Piepho, "An algorithm for a letter-based representation of
    # all-pairwise comparisons", 2004), in order of their first rows.
    sets = [frozenset(range(len(separable)))] if len(separable) else []
    for first, second in np.argwhere(np.triu(separable)).tolist():
        split = [part for part in sets if {first, second} <= part]
        sets = [part for part in sets if part not in split]
        sets += [part - {row} for part in split for row in (second, first)]
        sets = [rows for rows in dict.fromkeys(sets) if not any(rows < other for other in sets)]
    ordered = sorted(sets, key=sorted)
    return [
        "".join(chr(ord("A") + place) for place, rows in enumerate(ordered) if row in rows)
        for row in range(len(separable))
    ]


def score_groups(rows: pd.DataFrame) -> dict[Hashable, int]:
    # A row begins a group if it differs from the first row of the last group. Columns of rows:
    # `mean`, `low`, `high`, `rank_group`, `better`.
    signs = rows["better"].map({"higher": 1.0, "lower": -1.0}).astype(float)
    scores = rows[["mean", "low", "high"]].mul(signs, axis=0)
    scores = scores.sort_values("mean", ascending=False, kind="stable")
    groups: dict[Hashable, int] = {}
    group, first = 0, None
    for row, _, low, high in scores.itertuples():
        found = (min(low, high), max(low, high), str(rows["rank_group"][row]))
        if first is None or differ(first, found):
            group, first = group + 1, found
        groups[row] = group
    return groups


def differ(one: Sequence[Any], other: Sequence[Any]) -> bool:
    # A result is the ends of its interval and the letters of its rank groups, which may be empty.
    (low, high, letters), (of_low, of_high, of_letters) = one, other
    share_none = bool(letters and of_letters) and not {*letters} & {*of_letters}
    return share_none or high < of_low or of_high < low


def tau(first: Array, second: Array) -> tuple[float, float, float]:
    # The interval has the taus of bivariate normal scores under which a tau like this one is not
    # among the 2.5 % lowest or highest, by simulation; ties count half (mid-p).
    from scipy.stats import kendalltau

    found: Any = kendalltau(first, second)
    value = float(found.statistic)
    levels, drawn = _simulated_taus(len(first))
    below = (drawn < value - 1e-9).mean(1) + 0.5 * (np.abs(drawn - value) <= 1e-9).mean(1)
    inside = levels[(below >= LEVEL / 2) & (below <= 1 - LEVEL / 2)]
    low, high = (inside.min(), inside.max()) if len(inside) else (value, value)
    return value, float(min(low, value)), float(max(high, value))


@cache
def _simulated_taus(count: int) -> tuple[Array, Array]:
    rng, levels = np.random.default_rng(SEED), np.linspace(-0.99, 0.99, 199)
    x, noise = rng.standard_normal((2, TAU_DRAWS, count))
    first, second = np.triu_indices(count, 1)
    signs = np.sign(x[:, first] - x[:, second])
    drawn = []
    for level in levels:
        correlation = np.sin(np.pi * level / 2)
        y = correlation * x + (1 - correlation**2) ** 0.5 * noise
        drawn.append((signs * np.sign(y[:, first] - y[:, second])).mean(1))
    return levels, np.array(drawn)
