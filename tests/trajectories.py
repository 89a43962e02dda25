"""Small files of trajectories for tests: episodes of a pendulum under the scripted policy."""

from pathlib import Path

import numpy as np

from tasks.control.environment import Environment, balance
from tasks.data.trajectories import Trajectories, write

PENDULUM = "InvertedPendulum-v5"


def record_short(path: Path, lengths=(25, 7, 40, 3, 30, 12), **attributes) -> str:
    """Trajectories of those lengths, cut off, in a new file; returns its path."""
    environment, recorded = Environment(PENDULUM), []
    rng = np.random.default_rng(0)
    for i, length in enumerate(lengths):
        states, actions = [environment.reset(i)], []
        for step in range(length):
            actions.append(balance(states[-1], step) + 0.1 * rng.uniform(-1, 1, 1))
            states.append(environment.step(actions[-1])[0])
        taken = np.clip(np.stack(actions), -1, 1).astype(np.float32) * environment.bound
        ends = np.array([length]), np.array([False])
        recorded.append(Trajectories(np.stack(states[:-1]), taken, np.ones(length), *ends, {}))
    attributes = {"env_id": PENDULUM, "random_return": 5.0, "expert_return": 105.0, **attributes}
    write(path, Trajectories.join(recorded, attributes))
    return str(path)
