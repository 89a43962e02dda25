import pytest
from scipy import stats

from harness.records.record import Quartiles
from reports.statistics import interval, middle


def test_two_seeds_give_the_student_interval_computed_by_hand():
    # Standard error 0.02, and t(1) = 12.7062 at 97.5 %.
    found = interval([0.50, 0.54], examples=100)
    assert found == pytest.approx((0.52, 0.265876, 0.774124, "seeds"), abs=1e-6)


def test_three_seeds_give_the_student_interval_of_scipy():
    runs = [0.60, 0.62, 0.64]
    expected = stats.t.interval(0.95, 2, loc=0.62, scale=stats.sem(runs))
    assert interval(runs, examples=100)[1:3] == pytest.approx(expected)


def test_one_seed_gives_the_wilson_interval_computed_by_hand():
    found = interval([0.5], examples=100)
    assert found == pytest.approx((0.5, 0.4038316, 0.5961684, "examples"), abs=1e-6)


@pytest.mark.parametrize("right", [0, 3, 977, 1000])
def test_one_seed_gives_the_wilson_interval_of_scipy(right):
    expected = stats.binomtest(right, 1000).proportion_ci(method="wilson")
    found = interval([right / 1000], examples=1000)
    assert found[1:3] == pytest.approx((expected.low, expected.high))


def test_an_interval_never_leaves_what_an_accuracy_can_be():
    found = interval([0.1, 0.99], examples=100)
    assert (found.low, found.high) == (0.0, 1.0)


def test_quartiles_of_several_runs_are_the_medians_of_theirs():
    runs = [Quartiles(q1=q1, median=q1 + 1, q3=q1 + 5) for q1 in (1.0, 2.0, 30.0)]
    assert middle(runs) == Quartiles(q1=2.0, median=3.0, q3=7.0)
