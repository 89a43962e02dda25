"""Control: the actions of recorded trajectories, and rollouts in their environment.

Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling", 2021, arXiv
2106.01345. An example is a window of up to `context` successive steps of a trajectory, each with
the return that followed (*return-to-go*), the state and the action, which is the target.

Test has no targets: an example is the first step of an episode with a fixed seed, and the test is
the return of a model's actions from there; see docs/decisions/data.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tasks.contract import Baseline, Split, SplitName, Splits, Task
from tasks.control.environment import Environment
from tasks.control.windows import STATES, Policy, Scale, Windows, episodes, returns_of, windows
from tasks.data import trajectories
from tasks.data.trajectories import Trajectories
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

# The environment's seed in the first test episode; the next ones have the following seeds.
TEST_SEED = 10**6


class Reference(NamedTuple):
    """The mean returns of a random and of an expert policy: 0 and 100 when normalised.

    Fu et al., "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", 2020, arXiv 2004.07219.
    """

    random: float
    expert: float

    def normalised(self, value: float) -> float:
        return 100 * (value - self.random) / (self.expert - self.random)

    def denormalised(self, value: float) -> float:
        return self.random + value / 100 * (self.expert - self.random)

    @classmethod
    def parse(cls, text: str) -> "Reference":
        try:
            random, expert = map(float, text.split(","))
        except ValueError:
            random, expert = math.nan, math.nan
        if not (math.isfinite(random) and math.isfinite(expert) and random < expert):
            problem = f"control.reference={text!r} is not of the form RANDOM,EXPERT"
            raise UserError(f"{problem}; give two returns, the second above the first")
        return cls(random, expert)


# The references of D4RL, whatever the version (d4rl/infos.py, REF_MIN_SCORE, REF_MAX_SCORE).
PUBLISHED = {
    "Ant": Reference(-325.6, 3879.7),
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Hopper": Reference(-20.272305, 3234.3),
    "Walker2d": Reference(1.629008, 4592.3),
}


@dataclass(frozen=True, kw_only=True)
class Control(Task):
    """Trajectories in HDF5, in the form of D4RL or Minari, and rollouts in gymnasium.

    Attributes:
        path: the file.
        context: k, steps of a window.
        steps: the most steps of an episode.
        episodes: rollouts of test.
        dev: share of the trajectories in dev.
        seed: seed of the splits.
        env: the environment, such as Hopper-v5; empty where the file names it.
        reference: returns of a random and an expert policy, `RANDOM,EXPERT`; empty for the file's,
            or else D4RL's.
        target: target return of a rollout, normalised.
        scale: returns-to-go are divided by it.
    """

    name = "control"
    version = 1
    inputs = "trajectories"
    packages = ("gymnasium", "mujoco")
    causal = True

    path: str
    env: str = ""
    reference: str = ""
    context: int = 20
    target: float = 100.0
    scale: float = 1000.0
    steps: int = 1000
    episodes: int = 20
    dev: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        counts = {"context": self.context, "steps": self.steps, "episodes": self.episodes}
        require_at_least(1, "control", **counts)
        require_at_least(0, "control", seed=self.seed)
        if not self.scale > 0 or not 0 < self.dev < 1:
            values = f"control.scale={self.scale:g} and control.dev={self.dev:g}"
            raise UserError(f"{values} are out of range; give a scale above 0, and dev in 0 to 1")
        data = self._data()
        if len(data.ends) < 2:
            raise UserError(f"{self.path} has one trajectory; two are needed, for train and dev")
        if (longest := data.lengths.max()) > self.steps:
            limit = f"more than control.steps={self.steps}; raise it"
            raise UserError(f"{self.path} has a trajectory of {longest} steps, {limit}")
        states, actions = data.observations.shape[1], data.actions.shape[1]
        self._derive(classes=actions, channels=STATES + states + actions)
        self._derive(vocabulary=self.steps, max_len=3 * self.context)
        self.references()

    def load(self, split: SplitName) -> Split:
        environment = self._environment()
        scale = self._scale(environment)
        if split == "test":
            first = [environment.reset(TEST_SEED + i) for i in range(self.episodes)]
            target = self.references().denormalised(self.target)
            return episodes(np.stack(first), target, scale, self.context)
        chosen = self._in_dev() if split == "dev" else ~self._in_dev()
        return windows(self._data(), chosen, scale, self.context)

    def references(self) -> Reference:
        attributes, name = self._data().attributes, self._environment_name()
        if self.reference:
            return Reference.parse(self.reference)
        if "random_return" in attributes and "expert_return" in attributes:
            returns = attributes["random_return"], attributes["expert_return"]
            return Reference.parse(",".join(map(str, returns)))
        if (environment := name.partition("-")[0]) in PUBLISHED:
            return PUBLISHED[environment]
        remedy = "give --set control.reference=RANDOM,EXPERT"
        raise UserError(f"no reference returns are known for {name}; {remedy}")

    def returns(self, policy: Policy, test: Split) -> list[float]:
        environments = [self._environment() for _ in range(self.episodes)]
        for i, environment in enumerate(environments):
            environment.reset(TEST_SEED + i)
        return returns_of(policy, test, environments, self._scale(environments[0]), self.steps)

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        def act(rng: np.random.Generator, windows: Windows, count: int) -> Float[Tensor, "e a"]:
            actions = [rng.uniform(-1, 1, self.classes) for _ in windows]
            return torch.from_numpy(np.stack(actions).astype(np.float32))

        def random(splits: Splits) -> float:
            policy = partial(act, np.random.default_rng(TEST_SEED))
            return self.references().normalised(fmean(self.returns(policy, splits["test"])))

        def recorded(splits: Splits) -> float:
            return self.references().normalised(float(self._data().returns.mean()))

        return {"random policy": random, "trajectories of the file": recorded}

    def show(self, split: Split, example: int) -> list[str]:
        first = split.sequences[int(split.sequence_ids[example, 0]), 0].tolist()
        return [" ".join(f"{value:.2f}" for value in first)]

    def _data(self) -> Trajectories:
        return trajectories.read(self.path)

    def _in_dev(self) -> Bool[np.ndarray, " e"]:
        # At least one trajectory, and not all.
        count = len(self._data().ends)
        keys = np.random.Generator(np.random.PCG64(self.seed)).random(count)
        held_out = min(max(1, round(self.dev * count)), count - 1)
        return keys.argsort(kind="stable").argsort() < held_out

    def _scale(self, environment: Environment) -> Scale:
        return Scale.of(self._data(), ~self._in_dev(), self.scale, environment.bound)

    def _environment_name(self) -> str:
        name = self.env or str(self._data().attributes.get("env_id", ""))
        if not name:
            remedy = "give --set control.env=NAME, such as Hopper-v5"
            raise UserError(f"{self.path} names no environment; {remedy}")
        return name

    def _environment(self) -> Environment:
        data, environment = self._data(), Environment(self._environment_name())
        expected = environment.states, len(environment.bound)
        found = data.observations.shape[1], data.actions.shape[1]
        if found != expected:
            problem = f"{found} numbers in states and actions, {environment.name} has {expected}"
        elif (largest := float((np.abs(data.actions) / environment.bound).max())) > 1 + 1e-6:
            problem = f"an action of {largest:.3g} times the bound of {environment.name}"
        else:
            return environment
        raise UserError(f"{self.path} has {problem}; give its environment as control.env")


# As a decorator, `register` would give the class the type `type[Task]`.
tasks.register("control")(Control)
