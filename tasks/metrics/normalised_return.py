"""The mean of 100 (return - random) / (expert - random) over episodes.

The returns are measured by rollouts, not from the scores of a split: see `tasks.control.rollouts`.
"""

from tasks.metric import Metric
from tasks.metrics import Measure, register
from zoo.registry import UserError

NORMALISED_RETURN = Metric(name="normalised return", unit="", better="higher", digits=1, chance=0.0)


def _values(answers: object, scores: object, targets: object) -> object:
    raise UserError("the normalised return is measured by rollouts; leave train.best_on_test out")


register("normalised-return")(Measure(NORMALISED_RETURN, _values))
