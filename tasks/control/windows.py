"""Windows of trajectories, and rollouts: the returns of a policy that is given windows.

Axis letters as in `tasks.contract`, and `v` steps, `e` trajectories or episodes, `k` steps of a
window, `s` values of a state, `a` values of an action. The channels of a step are its time step,
counted from 0, the return-to-go, its state and its action.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasks.answers import Actions
from tasks.contract import Split
from tasks.control.environment import Environment
from tasks.data.trajectories import Trajectories

# Channels: the time step, the return-to-go, and the first value of the state.
TIME, RETURN, STATES = 0, 1, 2

EPSILON = 1e-6  # Added to the standard deviation of a value, as in the published code of the model

Windows = Float[Tensor, "e k f"]

# The actions of all episodes, in [-1, 1], from windows and the number of their steps; the other
# steps of the windows are 0, and so is the last action.
Policy = Callable[[Windows, int], Float[Tensor, "e a"]]


class Scale(NamedTuple):
    mean: Float[np.ndarray, " s"]  # Of each value of a state, as the deviation
    deviation: Float[np.ndarray, " s"]
    returns: float  # The divisor of returns-to-go
    actions: Float[np.ndarray, " a"]  # The divisors of actions: the bounds of the environment

    def states(self, observations: Float[np.ndarray, "*v s"]) -> Float[np.ndarray, "*v s"]:
        return ((observations - self.mean) / self.deviation).astype(np.float32)

    @classmethod
    def of(
        cls, data: Trajectories, chosen: Bool[np.ndarray, " e"], returns: float,
        actions: Float[np.ndarray, " a"],
    ) -> "Scale":  # fmt: skip
        states = data.observations[chosen.repeat(data.lengths)].astype(np.float64)
        return cls(states.mean(0), states.std(0) + EPSILON, returns, actions)


def windows(data: Trajectories, chosen: Bool[np.ndarray, " e"], scale: Scale, length: int) -> Split:
    # Targets are the actions, NaN after the end. The windows of a trajectory are a cluster.
    used, lengths = chosen.repeat(data.lengths), data.lengths[chosen]
    ends = lengths.cumsum().repeat(lengths)
    numbers = np.arange(len(ends))
    actions = (data.actions[used] / scale.actions).astype(np.float32)
    times, to_go = numbers - (ends - lengths.repeat(lengths)), returns_to_go(data)[used]
    states = scale.states(data.observations[used])
    steps = np.column_stack([times, to_go / scale.returns, states, actions])
    counts = torch.from_numpy(np.minimum(ends - numbers, length).astype(np.int32))
    targets = _unfolded(actions, length).clone()
    targets[torch.arange(length) >= counts[:, None]] = torch.nan
    # A view: no step is copied. A shorter window is padded by the steps of the next trajectory.
    sequences = _unfolded(steps.astype(np.float32), length)
    clusters = torch.from_numpy(np.arange(len(lengths), dtype=np.int32).repeat(lengths))
    return Split.single(sequences, counts, targets, answers=Actions(), clusters=clusters)


def episodes(
    observations: Float[np.ndarray, "e s"], target: float, scale: Scale, length: int
) -> Split:
    count, actions = len(observations), len(scale.actions)
    sequences = torch.zeros(count, length, STATES + observations.shape[1] + actions)
    sequences[:, 0, RETURN] = target / scale.returns
    sequences[:, 0, STATES:-actions] = torch.from_numpy(scale.states(observations))
    targets = torch.full((count, length, actions), torch.nan)
    answers = Actions(measure="normalised-return")
    return Split.single(sequences, torch.ones(count).int(), targets, answers=answers)


def returns_to_go(data: Trajectories) -> Float[np.ndarray, " v"]:
    rewards = np.split(data.rewards, data.ends[:-1])
    return np.concatenate([episode[::-1].cumsum()[::-1] for episode in rewards])


def _unfolded(steps: Float[np.ndarray, "v f"], length: int) -> Float[Tensor, "v k f"]:
    # A view; zeros follow the last row.
    padded = np.concatenate([steps, np.zeros((length - 1, steps.shape[1]), steps.dtype)])
    return torch.from_numpy(padded).unfold(0, length, 1).mT


def returns_of(
    policy: Policy, start: Split, environments: Sequence[Environment], scale: Scale, limit: int
) -> list[float]:
    # All episodes take their steps together; ended ones are ignored. Each reward lowers the
    # return-to-go. `start` has the first step of each episode, the state of its environment.
    count, length, channels = start.sequences.shape
    actions = len(scale.actions)
    history = torch.zeros(count, limit + 1, channels)
    history[:, 0] = start.sequences[:, 0].cpu()
    returns, active = np.zeros(count), np.ones(count, bool)
    for step in range(limit):
        first = max(0, step + 1 - length)
        inputs = torch.zeros(count, length, channels)
        inputs[:, : step + 1 - first] = history[:, first : step + 1]
        history[:, step, -actions:] = policy(inputs, step + 1 - first).clamp(-1, 1)
        history[:, step + 1, TIME] = step + 1
        for i in np.flatnonzero(active).tolist():
            observation, reward, *ended = environments[i].step(history[i, step, -actions:].numpy())
            returns[i] += reward
            active[i] = not any(ended)
            history[i, step + 1, RETURN] = history[i, step, RETURN] - reward / scale.returns
            history[i, step + 1, STATES:-actions] = torch.from_numpy(scale.states(observation))
        if not active.any():
            break
    return returns.tolist()
