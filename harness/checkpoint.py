"""The state of an unfinished run on disk, from which another process continues it."""

import io
import struct
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from harness.records.files import write_atomic
from harness.records.record import Environment, Fraction, Point, Seconds
from harness.records.spec import Frozen
from harness.train import Progress, Trainer
from zoo.registry import UserError

DAMAGE = (
    AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError,
    UnpicklingError, ValueError, struct.error,
)  # fmt: skip
"""Errors of reading a damaged file."""

Step = Annotated[int, Field(ge=0, lt=2**63)]


class Figures(Frozen):
    """The fields of `Progress` that are not tensors, as they are in a checkpoint."""

    step: Step
    steps: Step
    seconds: Seconds
    best_accuracy: Fraction | None
    best_step: Step
    elapsed: Seconds
    environment: Environment | None
    curve: list[Point]

    @model_validator(mode="after")
    def _steps_in_order(self) -> "Figures":
        steps = [point.step for point in self.curve]
        increasing = steps == sorted(set(steps))
        if not increasing or not max([self.best_step, *steps]) <= self.step <= self.steps:
            raise ValueError("its steps are not in order")
        return self


def save(path: Path, trainer: Trainer, progress: Progress) -> None:
    """Write everything that the rest of the run depends on, atomically.

    Raises:
        UserError: the file cannot be written.
    """
    figures = Figures(
        step=progress.step,
        steps=trainer.spec.steps,
        seconds=progress.seconds,
        best_accuracy=progress.best_accuracy if progress.best_state else None,
        best_step=progress.best_step,
        elapsed=progress.elapsed,
        environment=progress.environment,
        curve=progress.curve,
    )
    state = {
        "figures": figures.model_dump_json(),
        "sums": progress.sums,
        "best_state": progress.best_state,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "random": _random_state(trainer.device),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    try:
        write_atomic(path, buffer.getvalue())
    except OSError as error:
        raise UserError(
            f"checkpoint {path} cannot be written ({error.strerror}); free space, or give another "
            "--store"
        ) from error


def load(path: Path, trainer: Trainer) -> Progress:
    """Put `trainer` and the random generators in the saved state, and return the progress.

    Raises:
        UserError: the file is damaged, or belongs to another run.
    """
    try:
        if not path.is_file():
            raise ValueError("it is not a regular file")
        # CPU first: the states of random generators must stay there.
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        figures = Figures.model_validate_json(state["figures"])
        if figures.steps != trainer.spec.steps:
            raise ValueError("it is of a run with another number of steps")
        best = _to_device(trainer.device, state["best_state"])
        if best or figures.best_accuracy is not None:
            # A state that does not fit the model is an error now rather than after training.
            trainer.model.load_state_dict(best)
        trainer.model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        sums = _to_device(trainer.device, state["sums"])
        _set_random_state(state["random"])
    except DAMAGE as error:
        raise UserError(
            f"{path} is not a checkpoint of this run ({type(error).__name__}); "
            "delete it to start the run again"
        ) from error
    return Progress(
        step=figures.step,
        seconds=figures.seconds,
        curve=list(figures.curve),
        best_accuracy=-1.0 if figures.best_accuracy is None else figures.best_accuracy,
        best_step=figures.best_step,
        best_state=best,
        sums=sums,
        elapsed=figures.elapsed,
        environment=figures.environment,
    )


def _to_device(device: torch.device, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if device.type == "cuda" else {})


def _set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
