"""The exponential of the mean cross-entropy of a token."""

import math

from tasks.metric import Metric
from tasks.metrics import Measure, register

PERPLEXITY = Metric(name="perplexity", unit="", better="lower", digits=1, exponential=True)

register("perplexity")(
    Measure(
        PERPLEXITY,
        lambda answers, scores, targets: answers.losses(scores, targets),
        chance=math.log,
    )
)
