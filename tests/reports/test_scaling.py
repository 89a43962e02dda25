"""Exponents and crossovers of costs with known growth."""

import math

import numpy as np
import pytest

from reports.scaling import Crossover, crossover, exponent

LENGTHS = [256, 512, 1024, 2048, 4096]


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_a_power_law_has_its_exponent_and_no_width(power):
    fitted = exponent({n: 3e-6 * n**power for n in LENGTHS})
    assert fitted is not None
    assert fitted[:3] == pytest.approx((power, power, power), abs=1e-9)
    assert fitted[3:] == (512, 4096)


def test_a_constant_cost_of_short_lengths_does_not_lower_the_exponent():
    costs = {n: max(2048**2, n**2) * 1.0 for n in [256, 1024, 2048, 4096, 8192, 16384]}
    fitted = exponent(costs)
    assert fitted is not None and fitted.value == pytest.approx(2.0)


def test_the_interval_of_an_exponent_is_that_of_the_slope_of_a_least_squares_line():
    costs = {n: n * factor for n, factor in zip(LENGTHS, (1, 1.1, 0.95, 1.05, 1), strict=True)}
    fitted = exponent(costs)
    longest = LENGTHS[-4:]
    (slope, _), covariance = np.polyfit(
        np.log(longest), np.log([costs[n] for n in longest]), 1, cov=True
    )
    # Student's 97.5 % quantile with two degrees of freedom.
    half = 4.302653 * covariance[0, 0] ** 0.5
    assert fitted is not None and fitted[:3] == pytest.approx((slope, slope - half, slope + half))


def test_two_lengths_have_no_exponent():
    assert exponent({256: 1.0, 512: 2.0}) is None


def test_ratios_that_fall_as_the_length_cross_where_they_are_one():
    ratios = {n: 1000 / n for n in LENGTHS}
    assert crossover(ratios, ratios) == pytest.approx((1000, 1000, 256, 4096))


def test_the_ends_of_the_interval_cross_at_the_ends_of_the_crossover():
    low, high = {n: 800 / n for n in LENGTHS}, {n: 1500 / n for n in LENGTHS}
    assert crossover(low, high) == pytest.approx((800, 1500, 256, 4096))


def test_a_ratio_that_returns_above_one_crosses_at_its_last_fall():
    ratios = {256: 0.9, 512: 1.1, 1024: 0.9, 2048: 1.25, 4096: 0.8}
    crossing = crossover(ratios, ratios)
    assert crossing is not None and crossing.low == pytest.approx(math.sqrt(2048 * 4096))


def test_a_crossover_outside_the_measured_lengths_is_a_bound():
    below, above = dict.fromkeys(LENGTHS, 0.5), dict.fromkeys(LENGTHS, 2.0)
    assert crossover(below, below) == Crossover(0, 0, 256, 4096)
    assert crossover(above, above) == Crossover(math.inf, math.inf, 256, 4096)
    assert crossover(below, above) == Crossover(0, math.inf, 256, 4096)
    assert crossover({}, {}) is None
