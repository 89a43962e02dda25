"""The mean squared error."""

from tasks.metric import Metric
from tasks.metrics import Measure, register

SQUARED_ERROR = Metric(name="squared error", unit="", better="lower", digits=4)

register("squared-error")(
    Measure(SQUARED_ERROR, lambda answers, scores, targets: answers.losses(scores, targets))
)
