"""The state of an unfinished run on disk, so that a run that was killed goes on where it was."""

import io
import struct
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from harness.records.files import write_atomic
from harness.records.record import Environment, Point
from harness.train import Progress, Trainer
from zoo.registry import UserError

DAMAGE = (
    AssertionError, AttributeError, EOFError, LookupError, RuntimeError, TypeError,
    UnpicklingError, ValueError, struct.error,
)  # fmt: skip
"""What reading raises on a file that is not what it should be."""


def save(path: Path, trainer: Trainer, progress: Progress) -> None:
    """Write everything that the rest of the run depends on, whole or not at all."""
    state = {
        "step": progress.step,
        "seconds": progress.seconds,
        "best_accuracy": progress.best_accuracy,
        "best_step": progress.best_step,
        "best_state": progress.best_state,
        "elapsed": progress.elapsed,
        "environment": progress.environment and progress.environment.model_dump(),
        "curve": [point.model_dump() for point in progress.curve],
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "random": _random_state(trainer.device),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomic(path, buffer.getvalue())


def load(path: Path, trainer: Trainer) -> Progress:
    """Put `trainer` and the random generators in the saved state, and return how far it had come.

    Raises:
        UserError: the file is damaged or of another model.
    """
    try:
        # CPU first: the states of random generators must stay there.
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        trainer.model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        _set_random_state(state["random"])
        begun = state["environment"]
        best = {name: value.to(trainer.device) for name, value in state["best_state"].items()}
        return Progress(
            step=state["step"],
            seconds=state["seconds"],
            curve=[Point.model_validate(point) for point in state["curve"]],
            best_accuracy=state["best_accuracy"],
            best_step=state["best_step"],
            best_state=best,
            elapsed=state["elapsed"],
            environment=begun and Environment.model_validate(begun),
        )
    except DAMAGE as error:
        raise UserError(
            f"{path} is not a checkpoint of this run ({type(error).__name__}); "
            "delete it to start the run again"
        ) from error


def _random_state(device: torch.device) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if device.type == "cuda" else {})


def _set_random_state(state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
