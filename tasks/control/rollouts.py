"""Rollouts: the returns of a policy in an environment, from given first steps on."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tasks.contract import Split
from tasks.control.environment import Environment
from tasks.control.references import Reference
from tasks.control.windows import RETURN, STATES, TIME, Scale

Windows = Float[Tensor, "e k f"]

Policy = Callable[[Windows, int], Float[Tensor, "e a"]]
"""The actions of all episodes, in [-1, 1], from windows and the number of their steps; the other
steps of the windows are 0, and so is the last action."""


@runtime_checkable
class TrajectoryTask(Protocol):
    """A task of trajectories, of which a model is tested by rollouts: see `Control`."""

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
        scale: that of the windows.
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
