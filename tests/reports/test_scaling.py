"""Exponents and crossovers of costs with known growth."""

import math

import pandas as pd
import pytest

from reports.layer_costs import Crossover, crossover, exponent

LENGTHS = [256, 512, 1024, 2048, 4096]
BELOW, ABOVE = dict.fromkeys(LENGTHS, 0.5), dict.fromkeys(LENGTHS, 2.0)


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_a_power_law_has_its_exponent_and_no_width(power):
    fitted = exponent({n: 3e-6 * n**power for n in LENGTHS})
    assert fitted and fitted == pytest.approx((power, power, power), abs=1e-6)


def test_only_the_longest_lengths_are_fitted_and_two_have_no_exponent():
    costs = {n: max(2048**2, n**2) * 1.0 for n in [256, 1024, 2048, 4096, 8192, 16384]}
    fitted = exponent(costs)
    assert fitted and fitted.value == pytest.approx(2.0)
    assert exponent({256: 1.0, 512: 2.0}) is None


def test_the_interval_of_an_exponent_is_that_of_the_slope_of_a_least_squares_line():
    # Of log2: x = -1.5 .. 1.5, residuals 0.1 (1, -1, -1, 1): their squares over 2 and over 5.
    costs = {2**n: 2 ** (n + 0.1 * sign) for n, sign in zip(range(4), (1, -1, -1, 1), strict=True)}
    # Student's 97.5 % quantile with two degrees of freedom.
    half = 4.302653 * math.sqrt(4 * 0.1**2 / 2 / 5)
    fitted = exponent(pd.Series(costs))
    assert fitted and fitted == pytest.approx((1, 1 - half, 1 + half))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ({n: 800 / n for n in LENGTHS}, {n: 1500 / n for n in LENGTHS}, (800, 1500)),
        # A ratio that returns above 1 crosses at its last fall, linear in logarithms.
        (*[{256: 0.9, 512: 1.1, 1024: 0.9, 2048: 1.25, 4096: 0.8}] * 2, (math.sqrt(2**23),) * 2),
        (BELOW, BELOW, (0, 0)), (ABOVE, ABOVE, (math.inf, math.inf)), (BELOW, ABOVE, (0, math.inf)),
    ],
)  # fmt: skip
def test_ratios_cross_where_they_are_one_or_at_a_bound(low, high, expected):
    assert crossover(pd.Series(low), high) == pytest.approx((*expected, 256, 4096))
    assert crossover({}, {}) is None


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1000.2, 1000.2, "1,000"), (900, 1200, "900 to 1,200"), (0, 0, "below 256"),
        (0, 1200, "below 1,200"), (900, math.inf, "above 900"),
        (math.inf, math.inf, "above 2,048"), (0, math.inf, "undecided"),
    ],
)  # fmt: skip
def test_a_crossover_is_shown_within_the_measured_lengths(low, high, text):
    assert Crossover(low, high, 256, 2048).text == text
