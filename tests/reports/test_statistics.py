import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.records.interval import Sample, interval, score_interval
from harness.records.record import Metric
from reports import statistics
from reports.statistics import (
    differences,
    holm,
    is_comparable,
    moderated,
    rank_groups,
    separable_pairs,
)


def sample(*seeds, size=1):
    """A row: the number of correct answers of each sequence, for each seed."""
    totals = np.array(seeds, dtype=np.float64)
    return Sample(totals, np.full(totals.shape[1], float(size)))


def answers(correct, of, *, seeds=1):
    return sample(*[np.arange(of) < correct] * seeds)


@pytest.mark.parametrize("correct", [0, 3, 500, 977, 1000])
def test_seeds_that_answer_alike_have_the_wilson_interval_of_scipy(correct):
    expected = stats.binomtest(correct, 1000).proportion_ci(method="wilson")
    ends = pytest.approx((expected.low, expected.high), abs=2e-4)
    for seeds in (1, 4):
        result = score_interval(answers(correct, 1000, seeds=seeds))
        assert result[1:3] == ends and result.low < result.high
    one_seed = interval([correct / 1000], examples=1000)
    assert one_seed[1:3] == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_seeds_that_vary_more_than_examples_have_the_student_interval_of_scipy():
    runs = [0.48, 0.50, 0.52]
    expected = stats.t.interval(0.95, 2, loc=0.50, scale=stats.sem(runs))
    # Every sequence has as many correct answers as any other: examples have no variance.
    result = score_interval(sample(*[[1e4 * run] * 5000 for run in runs], size=1e4))
    assert result[1:3] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("correct", [0, 120, 200])
def test_answers_of_one_sequence_count_once_where_they_agree(correct):
    totals = [answers(correct, 200).totals[0]] * 3
    single, eight = sample(*totals), sample(*[8 * sums for sums in totals], size=8)
    assert score_interval(eight) == pytest.approx(score_interval(single), abs=2e-4)


def separated(rng, seeds, *, rows=6, sd=1.0, failing=0.0, below=0.0) -> np.ndarray:
    """The separated pairs of simulated rows of mean 70 and a standard deviation of their seeds.

    Seeds that fail are at the baseline, 0; the second half of the rows is lower. Twenty episodes
    have an effect in all rows, in a row and in a run.
    """
    means = np.where(rng.random((rows, seeds)) < failing, 0.0, 70.0)
    means[rows // 2 :] -= below
    means += sd * rng.standard_normal(means.shape)
    noise = rng.standard_normal(20) + 0.8 * rng.standard_normal((rows, 1, 20))
    totals = means[:, :, None] + 10 * (noise + 1.5 * rng.standard_normal((rows, seeds, 20)))
    table, found = [Sample(row, np.ones(20), bounded=False) for row in totals], np.eye(rows) > 1
    used = [i for i, row in enumerate(table) if is_comparable(row, [0.0])]
    if len(used) > 1:
        found[np.ix_(used, used)] = separable_pairs([table[i] for i in used])
    return found


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("seeds", "options"), [
    (2, {"failing": 0.3}), (3, {"sd": 5.0}), (2, {"failing": 0.5}), (3, {"failing": 0.3}),
    (3, {"failing": 0.5}), (5, {"failing": 0.5, "rows": 12}), (5, {"sd": 5.0}),
    (2, {"sd": 5.0, "rows": 12}), (3, {"sd": 5.0, "rows": 12}), (3, {"failing": 0.3, "rows": 12}),
])  # fmt: skip
def test_at_most_5_percent_of_tables_separate_equal_rows_whose_seeds_vary_or_fail(seeds, options):
    rng = np.random.default_rng(0)
    assert np.mean([separated(rng, seeds, **options).any() for _ in range(150)]) <= 0.05


def test_rows_that_differ_by_more_than_their_seeds_are_separated():
    rng = np.random.default_rng(0)
    found = [separated(rng, 5, below=25.0)[:3, 3:].mean() for _ in range(50)]
    assert np.mean(found) > 0.9


def test_rows_of_three_seeds_are_separated_by_the_variance_of_all(monkeypatch):
    def found() -> float:
        rng = np.random.default_rng(0)
        tables = (separated(rng, 3, rows=12, sd=2.0, below=15.0) for _ in range(60))
        return float(np.mean([of[:6, 6:].mean() for of in tables]))

    pooled = found()
    monkeypatch.setattr(statistics, "FEWEST_ROWS", 13)
    assert pooled > 0.2 > 3 * found()


def test_variances_of_seeds_that_differ_more_are_pooled_less_and_none_is_lowered():
    rng = np.random.default_rng(0)
    equal, freedom = rng.chisquare(2, 40) / 2, np.full(40, 2.0)
    found, of_equal = moderated(equal, freedom)
    assert np.all(found >= equal) and found.min() > 20 * equal.min() and np.all(of_equal > 2.5)
    # All alike: half of the 40 x 2 degrees of freedom.
    assert np.all(moderated(np.full(40, 3.0), freedom)[1] == 2 + 40)
    of_unequal = moderated(equal * np.exp(2 * rng.standard_normal(40)), freedom)[1]
    assert np.all(of_unequal < of_equal - 0.3)
    mixed = np.array([0.0, *freedom[1:]])
    assert moderated(equal, mixed)[0][0] == equal[0] and moderated(equal, mixed)[1][0] == 0
    for few in (equal[:7], np.zeros(40)):
        assert moderated(few, freedom[: len(few)])[0].tolist() == few.tolist()


@pytest.mark.parametrize(("accuracies", "comparable"), [
    ((0.7, 0.71), True), ((0.7, 0.7, 0.2), False), ((0.7, 0.7, 0.33), False),
    ((0.7, 0.7, 0.45), True), ((0.7, 0.7, 0.5), False),
    ((0.7, 0.7, 0.565), False),  # 0.534: within the error of both, not of one
    ((0.05, 0.05), False), ((0.7,), False), ((0.7, 0.3, 0.3, 0.3, 0.3), True),
    ((0.7, 0.3, 0.3, 0.3), False), ((0.3,) * 5, False), ((0.5,) * 6, False),
    ((0.3, 0.3, 0.3, 0.5, 0.5), True),
])  # fmt: skip
def test_a_row_is_compared_if_no_seed_is_at_a_baseline_and_of_five_not_all(accuracies, comparable):
    order = np.random.default_rng(0).random(1000)
    row = sample(*[order < accuracy for accuracy in accuracies])
    assert is_comparable(row, [0.3, 0.5]) == comparable
    assert not is_comparable(row, [])


def test_rows_that_differ_are_separated_on_the_same_answers_though_intervals_overlap():
    hard = np.random.default_rng(0).random(2000)
    low, high = (sample(*[hard < accuracy] * 3) for accuracy in (0.60, 0.62))
    assert score_interval(low).high > score_interval(high).low
    assert separable_pairs([high, low]).tolist() == [[False, True], [True, False]]
    elsewhere = sample(*[np.random.default_rng(1).random(2000) < 0.60] * 3)
    assert not separable_pairs([high, elsewhere]).any()
    equal = [answers(200, 200, seeds=2)] * 2 + [answers(50, 200, seeds=2)]
    assert separable_pairs(equal).tolist() == [[False, False, True]] * 2 + [[True, True, False]]


def test_the_interval_of_a_difference_of_accuracies_ends_at_100_points():
    rows = {"a": sample([1] * 40, [0] * 40), "b": sample([1] * 40, [1] * 40)}
    metric = Metric(name="accuracy", unit="%", better="higher", digits=1, scale=100)
    (pair,) = statistics.pairs(rows, metric).itertuples()
    assert (pair.low, pair.difference, pair.high) == (-100, -50, 100)
    unbounded = {row: dataclasses.replace(of, bounded=False) for row, of in rows.items()}
    assert statistics.pairs(unbounded, metric)["low"].item() < -100


def test_seeds_that_agree_have_the_paired_test_of_scipy():
    first = np.arange(100) < 60
    second = first ^ (np.arange(100) < 16) ^ (np.arange(100) >= 95)
    # 16 answers are correct in the first row alone, 5 in the second alone.
    expected = stats.ttest_rel(first.astype(float), second)
    found = differences([sample(first, first), sample(second, second)])
    assert found.p[0, 1] == found.p[1, 0] == pytest.approx(expected.pvalue)
    assert found.p.diagonal().tolist() == [1, 1]
    ends = found.mean[0, 1] - found.half[0, 1], found.mean[0, 1] + found.half[0, 1]
    assert ends == pytest.approx([*expected.confidence_interval(0.95)])


def test_holm_adjusts_the_p_values_of_a_worked_example():
    # 0.03 * 2 is more than 0.04 * 1, which is at least as large.
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == [0.03, 0.06, 0.06, 0.02]
    assert holm(np.array([0.02, 0.02])).tolist() == [0.04, 0.04]
    assert holm(np.array([0.9, 0.8])).tolist() == [1, 1]


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_of_a_difference_is_where_p_is_above_5_percent(seeds):
    rows = [Sample(np.random.default_rng(i).normal(0, 1, (seeds, 40)), np.ones(40)) for i in (0, 1)]
    found = differences(rows)
    mean, half = found.mean[0, 1], found.half[0, 1]
    assert mean == pytest.approx(rows[0].mean - rows[1].mean) == -found.mean[1, 0]
    at_ends = [found._replace(mean=found.mean + move) for move in (half - mean, -half - mean)]
    assert [end.p[0, 1] for end in at_ends] == pytest.approx([0.05, 0.05])


@given(st.integers(0, 8), st.integers(0, 2**28 - 1))
def test_rows_share_a_group_if_and_only_if_they_are_not_separable(count, bits):
    every, separable = [*combinations(range(count), 2)], np.zeros((count, count), dtype=bool)
    for n, (first, second) in enumerate(every):
        separable[first, second] = separable[second, first] = bits >> n & 1
    found = rank_groups(separable)
    for first, second in every:
        assert separable[first, second] != bool({*found[first]} & {*found[second]})


def test_seeds_without_answers_have_the_student_interval_of_scipy_within_0_and_1():
    for runs in ([0.499, 0.501], [0.615, 0.62, 0.625]):
        low, high = stats.t.interval(0.95, len(runs) - 1, loc=np.mean(runs), scale=stats.sem(runs))
        result = interval(runs, examples=10**9)
        # Both ends are nearer to 1/2: they solve an equation in the accuracy.
        assert result.mean == pytest.approx(np.mean(runs))
        assert result.high - result.low == pytest.approx(high - low, rel=0.01)
    wide = interval([0.1, 0.99], examples=100)
    assert 0 <= wide.low < 0.01 and 0.99 < wide.high <= 1
    # Seeds that agree keep the sampling of the test split.
    single, three = interval([0.125], examples=2000), interval([0.125] * 3, examples=2000)
    assert three[:3] == pytest.approx(single[:3], abs=1e-4) and three.low < 0.12 < 0.13 < three.high


@pytest.mark.parametrize(("one", "other", "expected"), [
    ([1, 2, "A"], [1, 2, ""], False), ([1, 2, "A"], [1, 2, "B"], True),
    ([1, 2, "AB"], [1, 2, "B"], False), ([1, 2, "A"], [3, 4, "A"], True),
    ([1, 2, ""], [2, 3, ""], False),
])  # fmt: skip
def test_results_differ_by_letters_only_where_both_have_letters(one, other, expected):
    assert statistics.differ(one, other) == statistics.differ(other, one) == expected
