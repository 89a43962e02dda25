"""Reference scores: the returns that are 0 and 100 on the normalised scale.

Fu et al., "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", 2020, arXiv 2004.07219:
100 (return - random) / (expert - random).
"""

import csv
import math
from importlib import resources
from typing import NamedTuple

from zoo.registry import UserError


class Reference(NamedTuple):
    """The mean returns of a random and of an expert policy: 0 and 100 when normalised."""

    random: float
    expert: float

    def normalised(self, value: float) -> float:
        """The normalised return of the return `value`."""
        return 100 * (value - self.random) / (self.expert - self.random)

    def denormalised(self, value: float) -> float:
        """The return whose normalised return is `value`."""
        return self.random + value / 100 * (self.expert - self.random)


def parse(text: str) -> Reference:
    """The two numbers of an option, `RANDOM,EXPERT`.

    Raises:
        UserError: it is of another form, or the second does not exceed the first.
    """
    try:
        random, expert = map(float, text.split(","))
    except ValueError:
        raise UserError(
            f"control.reference={text!r} is not of the form RANDOM,EXPERT; give two returns"
        ) from None
    if not (math.isfinite(random) and math.isfinite(expert) and random < expert):
        raise UserError(
            f"control.reference={text!r}: the second return must exceed the first; give "
            "RANDOM,EXPERT"
        )
    return Reference(random, expert)


def published(environment: str) -> Reference | None:
    """The reference of D4RL for an environment, of any version, such as Hopper-v5."""
    table = resources.files(__package__ or "").joinpath("references.csv").read_text("utf-8")
    for row in csv.DictReader(table.splitlines()):
        if row["environment"] == environment.partition("-")[0]:
            return Reference(float(row["random_return"]), float(row["expert_return"]))
    return None
