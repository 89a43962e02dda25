"""Files of trajectories: HDF5 in the forms of D4RL (Fu et al., 2020, arXiv 2004.07219) and Minari.

docs/data.md describes both. A file is read alone: external links, external storage and virtual
arrays, which name other files, are rejected. No object is unpickled.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from tasks.data.extras import import_extra
from tasks.data.files import decoding, stamp
from zoo.registry import UserError, require_memory

# The two arrays that end a trajectory: by a terminal state, or by a limit of steps.
ENDS = {"d4rl": ("terminals", "timeouts"), "minari": ("terminations", "truncations")}

# Attributes of a file that are read, with their types; files from elsewhere have none.
ATTRIBUTES = {"env_id": str, "random_return": float, "expert_return": float}

Attributes = Mapping[str, str | float]


class Trajectories(NamedTuple):
    observations: Float32[np.ndarray, "v s"]  # The state before each step
    actions: Float32[np.ndarray, "v a"]  # As the environment takes them
    rewards: Float64[np.ndarray, " v"]
    ends: Int64[np.ndarray, " e"]  # The first step after each trajectory, ascending; the last is v
    terminal: Bool[np.ndarray, " e"]  # False where a limit of steps ended a trajectory
    attributes: Attributes

    @classmethod
    def join(cls, recordings: Sequence["Trajectories"], attributes: Attributes) -> "Trajectories":
        rows = ((*each[:3], each.lengths, each.terminal) for each in recordings)
        joined = map(np.concatenate, zip(*rows, strict=True))
        observations, actions, rewards, lengths, terminal = joined
        return cls(observations, actions, rewards, lengths.cumsum(), terminal, attributes)

    @property
    def lengths(self) -> Int64[np.ndarray, " e"]:
        return np.diff(self.ends, prepend=0)

    @property
    def returns(self) -> Float64[np.ndarray, " e"]:
        return np.add.reduceat(self.rewards, self.ends - self.lengths)


def read(path: str) -> Trajectories:
    return _read(*stamp(path, "an HDF5 file of trajectories"))


@lru_cache(maxsize=1)  # a run builds its task several times
def _read(file: Path, modified: int, size: int) -> Trajectories:
    h5py: Any = import_extra("trajectories", "h5py", "control")
    with decoding(file), h5py.File(file, "r") as content:
        # A link to another file, at any depth, is not followed: a named pipe would block for ever.
        # h5py replaces errors that the function raises.
        if name := content.visititems_links(
            lambda name, link: None if isinstance(link, h5py.HardLink | h5py.SoftLink) else name
        ):
            raise UserError(f"{file}: {name} is a link to another file; copy it into this one")
        attributes: dict[str, str | float] = {}
        for name in ATTRIBUTES.keys() & content.attrs.keys():
            value, kind = content.attrs[name], ATTRIBUTES[name]
            if not isinstance(value, kind) or (kind is float and not np.isfinite(value)):
                problem = f"attribute {name} is {value!r}, {kind.__name__} needed"
                raise UserError(f"{file}: {problem}; correct it")
            attributes[name] = kind(value)
        names = [name for name in content if re.fullmatch(r"episode_\d+", name)]
        if not names:
            return _trajectories(file, content, "d4rl", attributes)
        names.sort(key=lambda name: int(name.removeprefix("episode_")))
        episodes = [_trajectories(file, content[name], "minari", {}) for name in names]
    if len({(part.observations.shape[1], part.actions.shape[1]) for part in episodes}) > 1:
        raise UserError(f"{file} has episodes of several widths; give one environment's file")
    return Trajectories.join(episodes, attributes)


def _array(
    file: Path, group: Any, name: str, axes: int, count: int | None = None, kind: Any = np.float32
) -> np.ndarray:
    found, label = group.get(name), f"{file} {group.name.strip('/')}".strip()
    if found is None or not hasattr(found, "dtype") or found.dtype.kind not in "biuf":
        problem = f"{name} is no array of numbers; give a file in the form of D4RL or Minari"
    elif found.external or found.is_virtual:
        problem = f"the numbers of {name} are in other files; copy them into this one"
    elif len(found.shape) != axes or not found.size:
        problem = f"{name} has shape {found.shape}, {axes} axes needed; correct it"
    elif count is not None and len(found) != count:
        problem = f"{name} has {len(found)} rows, {count} expected; correct it"
    else:
        require_memory(found.nbytes, f"{label}: {name}", "give a smaller file")
        with np.errstate(over="ignore"):  # numbers above those of `kind` become infinite
            values = found[()].astype(kind)
        if np.isfinite(values).all():
            return values
        problem = f"{name} has values that are not finite; correct it"
    raise UserError(f"{label}: {problem}")


def _trajectories(file: Path, group: Any, form: str, attributes: Attributes) -> Trajectories:
    # Up to the last end in the group. A group of Minari is one episode.
    rewards = _array(file, group, "rewards", 1, kind=np.float64)
    count, is_episode = len(rewards), form == "minari"
    marks = [_array(file, group, name, 1, count) for name in ENDS[form]]
    for name, values in zip(ENDS[form], marks, strict=True):
        if (wrong := np.flatnonzero((values != 0) & (values != 1))).size:
            raise UserError(f"{file}: {name} is {values[wrong[0]]:g} at step {wrong[0]}; mark by 1")
    is_end = np.arange(1, count + 1) == count if is_episode else (marks[0] + marks[1]) > 0
    ends = np.flatnonzero(is_end) + 1
    if not len(ends):
        raise UserError(f"{file}: terminals and timeouts mark no end; mark the last steps")
    observations = _array(file, group, "observations", 2, count + is_episode)[:count]
    if "next_observations" in group and not is_episode:
        following = _array(file, group, "next_observations", 2, count)
        if following.shape != observations.shape:
            shapes = f"{following.shape}, {observations.shape} expected"
            raise UserError(f"{file}: next_observations has shape {shapes}; correct it")
        kinds = (group[name].dtype for name in ("observations", "next_observations"))
        # One of them may be stored in half precision.
        rtol = max(1e-4, *(np.finfo(kind).eps for kind in kinds if kind.kind == "f"))
        close = np.isclose(following[:-1], observations[1:], rtol=rtol, atol=1e-5).all(1)
        if (broken := np.flatnonzero(~close & ~is_end[:-1])).size:
            problem = f"next_observations of step {broken[0]} is not the next observation"
            raise UserError(f"{file}: {problem}; mark its end in terminals or timeouts")
    actions, steps = _array(file, group, "actions", 2, count), slice(ends[-1])
    parts = (observations[steps], actions[steps], rewards[steps])
    return Trajectories(*parts, ends, marks[0][ends - 1] == 1, attributes)
