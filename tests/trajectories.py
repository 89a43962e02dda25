"""Small files of trajectories for tests: episodes of a pendulum that a formula balances."""

from pathlib import Path

import numpy as np

from tasks.control.environment import Environment

PENDULUM = "InvertedPendulum-v5"


def balance(observation: np.ndarray) -> np.ndarray:
    return np.clip(np.array([0.5, 8.0, 1.0, 1.5]) @ observation / 3, -1, 1)[None]


def save(path: Path, content, **attributes) -> str:
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in content.items():
            file[name] = values
        file.attrs.update(attributes)
    return str(path)


def record_short(path: Path, lengths=(25, 7, 40, 3, 30, 12), **attributes) -> str:
    """Trajectories of those lengths, cut off, in a new file; returns its path."""
    environment, observations, actions = Environment(PENDULUM), [], []
    rng = np.random.default_rng(0)
    for i, length in enumerate(lengths):
        state = environment.reset(i)
        for _ in range(length):
            observations.append(state)
            actions.append(balance(state) + 0.1 * rng.uniform(-1, 1, 1))
            state, *_ = environment.step(actions[-1])
    content = {
        "observations": np.stack(observations), "rewards": np.ones(sum(lengths)),
        "actions": np.clip(np.stack(actions), -1, 1).astype(np.float32) * environment.bound,
        "terminals": np.zeros(sum(lengths), bool),
        "timeouts": np.isin(np.arange(1, sum(lengths) + 1), np.cumsum(lengths)),
    }  # fmt: skip
    attributes = {"env_id": PENDULUM, "random_return": 5.0, "expert_return": 105.0, **attributes}
    return save(path, content, **attributes)
