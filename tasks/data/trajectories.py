"""Files of trajectories: HDF5 in the forms of D4RL and of Minari.

* D4RL (Fu et al., 2020, arXiv 2004.07219): arrays of all steps, `observations`, `actions`,
  `rewards`, `terminals` and `timeouts`. A trajectory ends where one of the last two is 1; steps
  after the last end are left out. Where there are `next_observations`, they must be the
  observations of the next step, except at an end.
* Minari: a group `episode_0`, `episode_1`, ... for each trajectory, with `observations` (one more
  than steps), `actions`, `rewards`, `terminations` and `truncations`.

Only arrays of numbers that the file itself stores are read: none in another file, which an external
link, external storage or a virtual array names. No object is unpickled.
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
from zoo.registry import UserError, first_line, require_memory

ENDS = {"d4rl": ("terminals", "timeouts"), "minari": ("terminations", "truncations")}
"""The two arrays that end a trajectory: by a terminal state, or by a limit of steps."""

ATTRIBUTES = {"env_id": str, "random_return": float, "expert_return": float}
"""Attributes of a file that are read, with their types; files from elsewhere have none."""

Attributes = Mapping[str, str | float]


class Trajectories(NamedTuple):
    """All steps of all trajectories, in order.

    Attributes:
        observations: (v, s), the state before each step.
        actions: (v, a), as the environment takes them.
        rewards: (v,).
        ends: (e,), the first step after each trajectory, ascending; the last is v.
        terminal: (e,), whether a trajectory ended by a terminal state, not by a limit of steps.
        attributes: what the file has of `ATTRIBUTES`.
    """

    observations: Float32[np.ndarray, "v s"]
    actions: Float32[np.ndarray, "v a"]
    rewards: Float64[np.ndarray, " v"]
    ends: Int64[np.ndarray, " e"]
    terminal: Bool[np.ndarray, " e"]
    attributes: Attributes

    @classmethod
    def join(cls, recordings: Sequence["Trajectories"], attributes: Attributes) -> "Trajectories":
        """The trajectories of all recordings, in order."""
        rows = ((*each[:3], each.lengths, each.terminal) for each in recordings)
        joined = map(np.concatenate, zip(*rows, strict=True))
        observations, actions, rewards, lengths, terminal = joined
        return cls(observations, actions, rewards, lengths.cumsum(), terminal, attributes)

    @property
    def lengths(self) -> Int64[np.ndarray, " e"]:
        """Steps of each trajectory, (e,)."""
        return np.diff(self.ends, prepend=0)

    @property
    def returns(self) -> Float64[np.ndarray, " e"]:
        """The sum of the rewards of each trajectory, (e,)."""
        return np.add.reduceat(self.rewards, self.ends - self.lengths)


def read(path: str) -> Trajectories:
    """The trajectories of a file."""
    return _read(*stamp(path, "an HDF5 file of trajectories"))


def write(path: Path, trajectories: Trajectories) -> None:
    """Write trajectories in the form of D4RL, and their attributes."""
    h5py: Any = import_extra("trajectories", "h5py", "control")
    last = np.zeros((2, len(trajectories.rewards)), dtype=bool)
    last[0, trajectories.ends[trajectories.terminal] - 1] = True
    last[1, trajectories.ends[~trajectories.terminal] - 1] = True
    try:
        with h5py.File(path, "x") as file:
            for name in ("observations", "actions", "rewards"):
                file[name] = getattr(trajectories, name)
            for name, values in zip(ENDS["d4rl"], last, strict=True):
                file[name] = values
            file.attrs.update(trajectories.attributes)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({first_line(error)}); give another file"
        ) from error


@lru_cache(maxsize=1)  # a run builds its task several times
def _read(file: Path, modified: int, size: int) -> Trajectories:
    h5py: Any = import_extra("trajectories", "h5py", "control")
    with decoding(file), h5py.File(file, "r") as content:
        _require_no_external_link(file, content)
        attributes = _attributes(file, content.attrs)
        names = [name for name in content if re.fullmatch(r"episode_\d+", name)]
        if not names:
            return _d4rl(file, content, attributes)
        names.sort(key=lambda name: int(name.removeprefix("episode_")))
        episodes = [_minari(file, content[name]) for name in names]
    shapes = {(part.observations.shape[1], part.actions.shape[1]) for part in episodes}
    if len(shapes) > 1:
        raise UserError(f"{file} has episodes of several widths; give one environment's file")
    return Trajectories.join(episodes, attributes)


def _array(
    file: Path, group: Any, name: str, axes: int, count: int | None = None, kind: Any = np.float32
) -> np.ndarray:
    """The array of a group, with `axes` axes, and `count` rows where that is given, as a `kind`.

    UserError where there is none, or it is of other numbers or of another shape.
    """
    found, label = group.get(name), f"{file} {group.name.strip('/')}".strip()
    if found is None or not hasattr(found, "dtype") or found.dtype.kind not in "biuf":
        raise UserError(
            f"{label} has no array of numbers {name!r}; give a file in the form of D4RL or Minari"
        )
    if found.external or found.is_virtual:
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


def _require_no_external_link(file: Path, content: Any) -> None:
    """Follow no link of the file, at any depth, to another: a named pipe would block for ever."""
    h5py: Any = import_extra("trajectories", "h5py", "control")

    def external(name: str, link: Any) -> str | None:  # h5py replaces errors that it raises
        return None if isinstance(link, h5py.HardLink | h5py.SoftLink) else name

    if name := content.visititems_links(external):
        raise UserError(f"{file}: {name} is a link to another file; copy it into this one")


def _marks(file: Path, group: Any, form: str, count: int) -> list[Bool[np.ndarray, " v"]]:
    """True where the two arrays that end a trajectory are 1."""
    marks = [_array(file, group, name, 1, count) for name in ENDS[form]]
    for name, values in zip(ENDS[form], marks, strict=True):
        if (wrong := np.flatnonzero((values != 0) & (values != 1))).size:
            raise UserError(f"{file}: {name} is {values[wrong[0]]:g} at step {wrong[0]}; mark by 1")
    return [values == 1 for values in marks]


def _d4rl(file: Path, group: Any, attributes: Attributes) -> Trajectories:
    rewards = _array(file, group, "rewards", 1, kind=np.float64)
    count = len(rewards)
    terminal, truncated = _marks(file, group, "d4rl", count)
    ends = np.flatnonzero(terminal | truncated) + 1
    if not len(ends):
        raise UserError(f"{file}: terminals and timeouts mark no end; mark the last steps")
    observations = _array(file, group, "observations", 2, count)
    if "next_observations" in group:
        following = _array(file, group, "next_observations", 2, count)
        _require_continued(file, observations, following, terminal | truncated)
    return Trajectories(
        observations[: ends[-1]],
        _array(file, group, "actions", 2, count)[: ends[-1]],
        rewards[: ends[-1]],
        ends,
        terminal[ends - 1],
        attributes,
    )


def _require_continued(
    file: Path,
    observations: Float32[np.ndarray, "v s"],
    following: Float32[np.ndarray, "v t"],
    is_end: Bool[np.ndarray, " v"],
) -> None:
    """Raise UserError where `following` is not the next observation, and no end is marked."""
    if following.shape != observations.shape:
        raise UserError(
            f"{file}: next_observations has shape {following.shape}, {observations.shape} expected"
            "; correct it"
        )
    close = np.isclose(following[:-1], observations[1:], rtol=1e-4, atol=1e-5).all(1)
    if (broken := np.flatnonzero(~close & ~is_end[:-1])).size:
        raise UserError(
            f"{file}: next_observations of step {broken[0]} is not the observation of the next "
            "step, and terminals and timeouts mark no end there; mark the ends of trajectories"
        )


def _minari(file: Path, group: Any) -> Trajectories:
    """One episode; it ends with its last step, whatever its flags are."""
    rewards = _array(file, group, "rewards", 1, kind=np.float64)
    count = len(rewards)
    terminal, _ = _marks(file, group, "minari", count)
    return Trajectories(
        _array(file, group, "observations", 2, count + 1)[:-1],
        _array(file, group, "actions", 2, count),
        rewards,
        np.array([count]),
        terminal[-1:],
        {},
    )


def _attributes(file: Path, found: Mapping[str, Any]) -> Attributes:
    attributes: dict[str, str | float] = {}
    for name, kind in ATTRIBUTES.items():
        if name not in found:
            continue
        value = found[name]
        if not isinstance(value, kind) or (kind is float and not np.isfinite(value)):
            raise UserError(
                f"{file}: attribute {name} is {value!r}, {kind.__name__} needed; correct it"
            )
        attributes[name] = kind(value)
    return attributes
