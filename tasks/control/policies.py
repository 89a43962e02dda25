"""Scripted policies, and the recording of their trajectories.

Policies are formulas, not trained models, so that a small data set can be made anywhere in seconds.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float

from tasks.control.environment import Action, Environment, Observation
from tasks.data.trajectories import Trajectories
from zoo.registry import UserError, require_at_least, unknown

Policy = Callable[[Observation, int], Action]
"""The action in [-1, 1] for an observation and its time step."""

REFERENCE_EPISODES = 20
"""Episodes whose mean return is a reference score."""


def balance(observation: Observation, step: int) -> Action:
    """Linear feedback for InvertedPendulum: position, angle, and their velocities."""
    return np.clip(np.array([0.5, 8.0, 1.0, 1.5]) @ observation / 3, -1, 1)[None]


def run(observation: Observation, step: int) -> Action:
    """Joints of HalfCheetah in oscillation, found by random search; it falls in some episodes."""
    return np.clip(GAIT[2] + GAIT[0] * np.sin(1.17 * step + GAIT[1]), -1, 1)


GAIT: Float[np.ndarray, "3 6"] = np.array(
    [
        [0.74, 0.65, 0.77, 0.7, 1.55, 0.52],
        [-1.42, 1.24, -0.83, 0.4, -0.15, 1.19],
        [-0.05, 0.4, -0.47, -0.03, -0.73, 0.03],
    ]
)
"""Amplitude, phase and mean of the action of each joint."""

SCRIPTED: Mapping[str, Policy] = {"HalfCheetah-v5": run, "InvertedPendulum-v5": balance}
"""The policies by environment."""


def record(name: str, episodes: int, seed: int) -> Trajectories:
    """Trajectories of the scripted policy with noise, and the reference scores as attributes.

    An action is `(1 - w)` times the policy's plus `w` times a uniform one, where w is uniform
    in [0, 1] and the same for all steps of an episode: the returns of the episodes differ widely.
    The reference scores are mean returns over episodes with w = 1 and with w = 0.

    Args:
        name: environment, one of `SCRIPTED`.
        episodes: number of episodes.
        seed: seed of all random numbers.

    Raises:
        UserError: the environment has no scripted policy, gymnasium is missing, or a number is out
            of range.
    """
    if name not in SCRIPTED:
        raise UserError(unknown("environment with a scripted policy", name, SCRIPTED))
    require_at_least(1, "record", episodes=episodes)
    require_at_least(0, "record", seed=seed)
    environment = Environment(name)
    shares = np.random.default_rng([seed, 0]).random(episodes)
    parts = [_episode(environment, w, [seed, 1, i]) for i, w in enumerate(shares)]
    random, expert = (
        math.fsum(
            _episode(environment, w, [seed, 2, i]).rewards.sum() for i in range(REFERENCE_EPISODES)
        )
        / REFERENCE_EPISODES
        for w in (1.0, 0.0)
    )
    return Trajectories.join(
        parts, {"env_id": name, "random_return": random, "expert_return": expert}
    )


def uniform(rng: np.random.Generator, actions: int) -> Float[np.ndarray, " a"]:
    """An action drawn uniformly from [-1, 1]."""
    return rng.uniform(-1, 1, actions)


def _episode(environment: Environment, noise: float, seeds: list[int]) -> Trajectories:
    """One episode; `noise` is the share of uniform actions."""
    rng, policy = np.random.default_rng(seeds), SCRIPTED[environment.name]
    observation = environment.reset(int(rng.integers(2**31)))
    steps: list[tuple[Observation, Action, float]] = []
    while True:
        action = (1 - noise) * policy(observation, len(steps))
        action = action + noise * uniform(rng, len(environment.bound))
        outcome = environment.step(action)
        steps.append((observation, action * environment.bound, outcome.reward))
        if outcome.terminated or outcome.truncated:
            break
        observation = outcome.observation
    observations, actions, rewards = map(np.array, zip(*steps, strict=True))
    return Trajectories(
        observations.astype(np.float32),
        actions.astype(np.float32),
        rewards.astype(np.float64),
        np.array([len(steps)]),
        np.array([outcome.terminated]),
        {},
    )
