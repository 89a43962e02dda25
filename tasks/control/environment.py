"""Environments of gymnasium, with actions scaled to [-1, 1], and recordings of scripted policies.

Policies are formulas, not trained models, so that a small data set can be made anywhere in seconds.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from tasks.data.extras import import_extra
from tasks.data.trajectories import Trajectories
from zoo.registry import UserError, first_line, require_at_least, unknown

Action = Float[np.ndarray, " a"]
Observation = Float32[np.ndarray, " s"]

REFERENCE_EPISODES = 20  # Episodes whose mean return is a reference score


class Environment:
    """An environment whose observations and actions are vectors."""

    def __init__(self, name: str) -> None:
        gymnasium: Any = import_extra("control", "gymnasium", "control")
        mujoco: Any = import_extra("control", "mujoco", "control")
        # By default a warning of the simulator is written into a file of the working folder.
        mujoco.set_mju_user_warning(lambda message: None)
        try:
            self._env = gymnasium.make(name, disable_env_checker=True)
        except Exception as error:
            raise UserError(
                f"environment {name!r} cannot be built ({first_line(error)}); give one of "
                "gymnasium, such as Hopper-v5"
            ) from error
        state, action = self._env.observation_space, self._env.action_space
        vectors, problem = all(len(space.shape or ()) == 1 for space in (state, action)), ""
        if not vectors or not hasattr(action, "high") or not np.isfinite(action.high).all():
            problem = "no vectors of states and bounded actions"
        elif (action.low != -action.high).any():
            problem = "actions whose bounds differ in size"
        if problem:
            raise UserError(f"environment {name!r} has {problem}; give another, such as Hopper-v5")
        self.name, self.states = name, int(state.shape[0])
        self.bound: Float32[np.ndarray, " a"] = action.high.astype(np.float32)

    def reset(self, seed: int) -> Observation:
        observation, _ = self._env.reset(seed=seed)
        return np.asarray(observation, np.float32)

    def step(self, action: Action) -> tuple[Observation, float, bool, bool]:
        # The flags: a terminal state, the limit of steps.
        scaled = (np.clip(action, -1, 1) * self.bound).astype(np.float32)
        observation, reward, terminated, truncated, _ = self._env.step(scaled)
        return np.asarray(observation, np.float32), float(reward), terminated, truncated


def balance(observation: Observation, step: int) -> Action:
    # Linear feedback for InvertedPendulum: position, angle, and their velocities.
    return np.clip(np.array([0.5, 8.0, 1.0, 1.5]) @ observation / 3, -1, 1)[None]


def run(observation: Observation, step: int) -> Action:
    # Joints of HalfCheetah in oscillation, found by random search; it falls in some episodes.
    return np.clip(GAIT[2] + GAIT[0] * np.sin(1.17 * step + GAIT[1]), -1, 1)


# Amplitude, phase and mean of the action of each joint.
GAIT: Float[np.ndarray, "3 6"] = np.array(
    [
        [0.74, 0.65, 0.77, 0.7, 1.55, 0.52],
        [-1.42, 1.24, -0.83, 0.4, -0.15, 1.19],
        [-0.05, 0.4, -0.47, -0.03, -0.73, 0.03],
    ]
)

# The policies by environment: the action in [-1, 1] for an observation and its time step.
SCRIPTED = {"HalfCheetah-v5": run, "InvertedPendulum-v5": balance}


def record(name: str, episodes: int, seed: int) -> Trajectories:
    """Trajectories of the scripted policy with noise, and the reference scores as attributes.

    An action is `(1 - w)` times the policy's plus `w` times a uniform one, where w is uniform
    in [0, 1] and the same for all steps of an episode: the returns of the episodes differ widely.
    The reference scores are mean returns over episodes with w = 1 and with w = 0.
    """
    if name not in SCRIPTED:
        raise UserError(unknown("environment with a scripted policy", name, SCRIPTED))
    require_at_least(1, "record", episodes=episodes)
    require_at_least(0, "record", seed=seed)
    environment = Environment(name)

    def mean_return(noise: float) -> float:
        seeds = ([seed, 2, i] for i in range(REFERENCE_EPISODES))
        returns = (_episode(environment, noise, numbers).rewards.sum() for numbers in seeds)
        return math.fsum(returns) / REFERENCE_EPISODES

    shares = np.random.default_rng([seed, 0]).random(episodes)
    recorded = [_episode(environment, w, [seed, 1, i]) for i, w in enumerate(shares)]
    references = {"random_return": mean_return(1.0), "expert_return": mean_return(0.0)}
    return Trajectories.join(recorded, {"env_id": name, **references})


def _episode(environment: Environment, noise: float, seeds: list[int]) -> Trajectories:
    rng, policy = np.random.default_rng(seeds), SCRIPTED[environment.name]
    observation = environment.reset(int(rng.integers(2**31)))
    steps: list[tuple[Observation, Action, float]] = []
    terminated = truncated = False
    while not (terminated or truncated):
        action = (1 - noise) * policy(observation, len(steps))
        action = action + noise * rng.uniform(-1, 1, len(environment.bound))
        following, reward, terminated, truncated = environment.step(action)
        steps.append((observation, action * environment.bound, reward))
        observation = following
    kinds = np.float32, np.float32, np.float64
    states, actions, rewards = map(np.array, zip(*steps, strict=True), kinds)
    ends, terminal = np.array([len(steps)]), np.array([terminated])
    return Trajectories(states, actions, rewards, ends, terminal, {})
