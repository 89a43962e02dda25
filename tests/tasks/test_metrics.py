"""Metrics: scores of means, chance, text, and the values of answers."""

import math

import pytest
import torch
from pydantic import ValidationError

from tasks import metrics
from tasks.answers import Actions, Classes, NextTokens, Number
from tasks.metric import Metric

SCORES = {
    "accuracy": (0.25, 25.0, "25.0 %", 1),
    "bits-per-byte": (math.log(4), 2.0, "2.000 bits per byte", -1),
    "perplexity": (math.log(4), 4.0, "perplexity 4.0", -1),
    "squared-error": (0.25, 0.25, "squared error 0.2500", -1),
    "normalised-return": (40.0, 40.0, "normalised return 40.0", 1),
}


def test_every_metric_is_tried():
    assert metrics.names() == sorted(SCORES)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_a_function_of_a_mean_with_an_inverse(name):
    metric = metrics.find(name).metric
    mean, value, text, sign = SCORES[name]
    assert metric.value(mean) == pytest.approx(value)
    assert metric.mean(value) == pytest.approx(mean)
    assert (metric.sentence(value), metric.sign) == (text, sign)
    assert Metric.model_validate_json(metric.model_dump_json()) == metric


def test_a_perplexity_is_finite_at_any_loss():
    assert math.isfinite(metrics.find("perplexity").metric.value(1e6))


@pytest.mark.parametrize(
    ("answers", "classes", "chance"),
    [
        (Classes(), 10, 10.0), (NextTokens(measure="bits-per-byte"), 256, 8.0),
        (NextTokens(), 50, 50.0), (Number(0.1), 1, None), (Actions(), 3, None),
        (Actions(measure="normalised-return"), 3, 0.0),
    ],
)  # fmt: skip
def test_the_metric_of_a_task_has_the_score_of_uniform_guesses(answers, classes, chance):
    expected = chance if chance is None else pytest.approx(chance)
    assert answers.metric_of(classes).chance == expected


def test_values_are_bits_or_numbers_with_0_where_there_is_no_target():
    scores, targets = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]), torch.tensor([[0, -1]])
    assert Classes().values(scores, targets).tolist() == [[True, False]]
    nats = NextTokens().values(scores, targets)
    assert nats.tolist() == [[pytest.approx(math.log(1 + math.exp(-2))), 0.0]]


@pytest.mark.parametrize("change", [{"better": "larger"}, {"digits": -1}, {"scale": 0}, {"x": 1}])
def test_an_impossible_metric_is_rejected(change):
    fields = metrics.find("accuracy").metric.model_dump()
    with pytest.raises(ValidationError):
        Metric.model_validate(fields | change)
