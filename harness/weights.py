"""The weights that a run keeps: before training, and at each evaluation on dev."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from harness.checkpoint import DAMAGE, DamagedError, read, write
from harness.records.record import Record
from harness.records.store import Broken, Store
from zoo.registry import UserError, unknown

REMEDY = "make them again with: harness run --rerun --keep-checkpoints"

NAME = re.compile(r"step-(\d+)\.pt")


def save(folder: Path, step: int, model: nn.Module) -> Path:
    """Write the parameters and buffers of `model` after `step` optimiser steps, atomically.

    Raises:
        UserError: the file cannot be written.
    """
    path = folder / f"step-{step:08d}.pt"
    write(path, model.state_dict(), "weights")
    return path


def find(folder: Path) -> dict[int, Path]:
    """The files of saved weights by step, in order; empty where there are none."""
    if not folder.is_dir():
        return {}
    found = {path: NAME.fullmatch(path.name) for path in sorted(folder.iterdir())}
    # Opening a named pipe would block for ever.
    return {int(match[1]): path for path, match in found.items() if match and path.is_file()}


class KeptRun(NamedTuple):
    """A run, its name, and the files of its weights by step."""

    name: str
    record: Record
    files: dict[int, Path]


def kept_runs(store: Store, names: Sequence[str] = ()) -> Iterator[KeptRun]:
    """The runs of those names, or paths, or every run with saved weights.

    Raises:
        UserError: there is no such run, it kept no weights, or its file is no record.
    """
    known = [name.removesuffix(".json") for name in store.files()]
    wanted = [Path(name).name.removesuffix(".json") for name in names]
    if wrong := [name for name in wanted if name not in known]:
        raise UserError(unknown("run", wrong[0], known))
    folders = {name: find(store.folder / "weights" / name) for name in wanted or known}
    without = [name for name in wanted if not folders[name]]
    if without or not any(folders.values()):
        which = f"run {without[0]!r}" if without else f"no run of store {str(store.folder)!r}"
        raise UserError(
            f"{which} has {'no ' if without else ''}saved weights; make them with: harness run "
            "--keep-checkpoints --rerun"
        )
    for name, files in folders.items():
        if files:
            record = store.read_file(f"{name}.json")
            if isinstance(record, Broken):
                raise UserError(f"{record.path} is not a record ({record.reason}); move it away")
            yield KeptRun(name, record, files)


def load(path: Path, model: nn.Module) -> None:
    """Load the weights of a file into `model`.

    Raises:
        UserError: the content is not the one that was written, or is of another model.
    """
    try:
        state = read(path)
    except DamagedError as error:
        raise UserError(f"{error}; {REMEDY}") from error
    try:
        model.load_state_dict(state)
    except DAMAGE as error:
        raise UserError(f"{path} does not hold the weights of this run; {REMEDY}") from error
