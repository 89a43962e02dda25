"""The mean cross-entropy of a byte, with the logarithm to base 2."""

import math

from tasks.metric import Metric
from tasks.metrics import Measure, register

BITS_PER_BYTE = Metric(
    name="bits per byte", unit="bits per byte", better="lower", digits=3, scale=1 / math.log(2)
)

register("bits-per-byte")(
    Measure(
        BITS_PER_BYTE,
        lambda answers, scores, targets: answers.losses(scores, targets),
        chance=math.log,
    )
)
