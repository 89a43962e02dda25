"""Environments of gymnasium, with actions scaled to [-1, 1]."""

from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from tasks.data.extras import import_extra
from zoo.registry import UserError, first_line

Action = Float[np.ndarray, " a"]
Observation = Float32[np.ndarray, " s"]


class Environment:
    def __init__(self, name: str) -> None:
        gymnasium: Any = import_extra("control", "gymnasium", "control")
        mujoco: Any = import_extra("control", "mujoco", "control")
        # The simulator writes its warnings into a file of the working folder by default.
        mujoco.set_mju_user_warning(lambda message: None)
        try:
            self._env = gymnasium.make(name, disable_env_checker=True)
        except Exception as error:
            problem = f"environment {name!r} cannot be built ({first_line(error)})"
            raise UserError(f"{problem}; give one of gymnasium, such as Hopper-v5") from error
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
