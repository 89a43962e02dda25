"""The weights that a run keeps: those before training, and those of each evaluation on dev."""

import re
from pathlib import Path

from torch import nn

from harness.checkpoint import DAMAGE, DamagedError, read, write
from zoo.registry import UserError

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
