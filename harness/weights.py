"""The weights that a run keeps: those before training, and those of each evaluation on dev."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from harness.checkpoint import DAMAGE, write
from zoo.registry import UserError

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
        UserError: the file is damaged, or is of another model.
    """
    try:
        state: Mapping[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state)
    except DAMAGE as error:
        raise UserError(
            f"{path} does not hold the weights of this run; make them again with: harness run "
            "--rerun --keep-checkpoints"
        ) from error
