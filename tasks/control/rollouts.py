"""Rollouts: the returns of a policy in an environment, and the scale on which they are shown.

Fu et al., "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", 2020, arXiv 2004.07219: a
normalised return is 100 (return - random) / (expert - random).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tasks.contract import Split
from tasks.control.environment import Environment
from tasks.control.windows import RETURN, STATES, TIME, Scale
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

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """The two numbers of an option, `RANDOM,EXPERT`.

        Raises:
            UserError: it is of another form, or the second does not exceed the first.
        """
        try:
            random, expert = map(float, text.split(","))
        except ValueError:
            random, expert = math.nan, math.nan
        if not (math.isfinite(random) and math.isfinite(expert) and random < expert):
            raise UserError(
                f"control.reference={text!r} is not of the form RANDOM,EXPERT; give two returns, "
                "the second must exceed the first"
            )
        return cls(random, expert)


PUBLISHED = {
    "Ant": Reference(-325.6, 3879.7),
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Hopper": Reference(-20.272305, 3234.3),
    "Walker2d": Reference(1.629008, 4592.3),
}
"""The references of D4RL, whatever the version (d4rl/infos.py, REF_MIN_SCORE, REF_MAX_SCORE)."""

Windows = Float[Tensor, "e k f"]

Policy = Callable[[Windows, int], Float[Tensor, "e a"]]
"""The actions of all episodes, in [-1, 1], from windows and the number of their steps; the other
steps of the windows are 0, and so is the last action."""


@runtime_checkable
class TrajectoryTask(Protocol):
    """A task of trajectories, whose models are tested by rollouts: see `Control`."""

    classes: int

    def references(self) -> Reference:
        """The returns that are 0 and 100 on the normalised scale."""
        ...

    def returns(self, policy: Policy, test: Split) -> list[float]:
        """The return of a policy in each episode of test."""
        ...


def returns_of(
    policy: Policy, start: Split, environments: Sequence[Environment], scale: Scale, limit: int
) -> list[float]:
    """The return of each episode, from its first step to its end or to `limit` steps.

    All episodes take their steps together; those that have ended are ignored. After each step the
    return-to-go is lowered by the reward.

    Args:
        policy: gives the actions.
        start: the first step of each episode; see `tasks.control.windows.episodes`.
        environments: one for each episode, at that step.
        scale: of the windows.
        limit: the most steps of an episode.
    """
    count, length, channels = start.sequences.shape
    actions = len(scale.actions)
    history = torch.zeros(count, limit + 1, channels)
    history[:, 0] = start.sequences[:, 0].cpu()
    returns, active = np.zeros(count), np.ones(count, bool)
    for step in range(limit):
        first = max(0, step + 1 - length)
        windows = torch.zeros(count, length, channels)
        windows[:, : step + 1 - first] = history[:, first : step + 1]
        history[:, step, -actions:] = policy(windows, step + 1 - first).clamp(-1, 1)
        history[:, step + 1, TIME] = step + 1
        for i in np.flatnonzero(active).tolist():
            outcome = environments[i].step(history[i, step, -actions:].numpy())
            returns[i] += outcome.reward
            active[i] = not (outcome.terminated or outcome.truncated)
            history[i, step + 1, RETURN] = history[i, step, RETURN] - outcome.reward / scale.returns
            state = torch.from_numpy(scale.states(outcome.observation))
            history[i, step + 1, STATES:-actions] = state
        if not active.any():
            break
    return returns.tolist()
