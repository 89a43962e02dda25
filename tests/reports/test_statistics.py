import pytest
from scipy import stats

from reports.statistics import interval


def test_two_seeds_give_the_student_interval_computed_by_hand():
    # Standard error 0.02, and t(1) = 12.7062 at 97.5 %.
    result = interval([0.50, 0.54], examples=100)
    assert result == pytest.approx((0.52, 0.265876, 0.774124, "seeds and examples"), abs=1e-6)


def test_three_seeds_give_the_student_interval_of_scipy():
    runs = [0.60, 0.62, 0.64]
    expected = stats.t.interval(0.95, 2, loc=0.62, scale=stats.sem(runs))
    assert interval(runs, examples=10_000)[1:3] == pytest.approx(expected)


def test_seeds_that_agree_keep_the_sampling_of_the_test_split():
    one, three = interval([0.125], examples=2000), interval([0.125] * 3, examples=2000)
    assert three[:3] == one[:3] and three.low < 0.12 < 0.13 < three.high


@pytest.mark.parametrize("correct", [0, 3, 977, 1000])
def test_one_seed_gives_the_wilson_interval_of_scipy(correct):
    expected = stats.binomtest(correct, 1000).proportion_ci(method="wilson")
    result = interval([correct / 1000], examples=1000)
    assert result[1:3] == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert result.over == "examples"


def test_an_interval_never_leaves_the_range_of_an_accuracy():
    result = interval([0.1, 0.99], examples=100)
    assert (result.low, result.high) == (0.0, 1.0)
