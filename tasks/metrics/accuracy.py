"""The share of correct answers."""

from tasks.metric import Metric
from tasks.metrics import Measure, register

ACCURACY = Metric(name="accuracy", unit="%", better="higher", digits=1, scale=100)

register("accuracy")(
    Measure(
        ACCURACY,
        lambda answers, scores, targets: answers.correct(scores, targets),
        chance=lambda classes: 1.0 / classes,
        single_answers=True,
    )
)
