"""States of unfinished runs on disk, from which another process continues, and kept weights.

A line with the SHA-256 follows what `torch.save` writes: `torch.load`, which ignores the line, does
not verify the checksums of its archive.
"""

import hashlib
import io
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.environment import is_outdated
from harness.records import files
from harness.records.fields import require_known
from harness.records.record import Record
from harness.records.store import Store
from harness.train import Progress, Trainer
from zoo.registry import UserError, in_one_line

# Errors of reading a damaged file.
DAMAGE = (
    AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError,
    UnpicklingError, ValueError, struct.error,
)  # fmt: skip
TRAILER = len(b"sha256 \n") + 64  # Bytes of the line with the SHA-256
PARTS = ("progress", "steps", "sums", "best_state", "model", "optimizer", "random")
WEIGHTS_NAME = re.compile(r"step-(\d+)\.pt")
WEIGHTS_REMEDY = "make them again with: harness run --rerun --keep-checkpoints"


class DamagedError(UserError):
    """A file is damaged, or of another machine or version."""


def save(path: Path, trainer: Trainer, progress: Progress) -> None:
    random = {"cpu": torch.get_rng_state()}
    if trainer.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state()
    state = {
        "progress": progress.model_dump_json(), "steps": trainer.spec.steps, "sums": progress.sums,
        "best_state": progress.best_state, "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(), "random": random,
    }  # fmt: skip
    write(path, state, "checkpoint")


def write(path: Path, state: Mapping[str, Any], what: str) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    files.save(path, content + _trailer(content), what)


def read(path: Path) -> Any:
    if not path.is_file():
        raise DamagedError(f"{path} is damaged: it is not a regular file")
    with files.usable(path, "read", "make it readable"):
        data = path.read_bytes()
    content = data[:-TRAILER]
    if data[-TRAILER:] != _trailer(content):
        raise DamagedError(f"{path} is damaged: it does not have the SHA-256 in its last line")
    try:
        # The states of random generators must stay on the CPU.
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except DAMAGE as error:
        raise DamagedError(f"{path} is damaged: it does not hold tensors by name") from error


def load(
    path: Path, trainer: Trainer, rejects: Callable[[Progress], str] = lambda progress: ""
) -> Progress:
    saved = read(path)
    state: dict[str, Any] = saved if isinstance(saved, dict) else {}
    with _problem(path):
        if missing := [part for part in PARTS if part not in state]:
            raise LookupError(f"it has no {', '.join(missing)}")
        progress = Progress.model_validate_json(state["progress"])
        steps = [point.step for point in progress.curve]
        in_range = max([progress.best_step, *steps]) <= progress.step <= trainer.spec.steps
        if state["steps"] != trainer.spec.steps or steps != sorted(set(steps)) or not in_range:
            raise ValueError("its steps are not this run's")
    if reason := rejects(progress):
        raise DamagedError(f"{path} is {reason}")
    with _problem(path):
        progress.sums = _to_device(trainer.device, state["sums"])
        progress.best_state = _to_device(trainer.device, state["best_state"])
        if progress.best_state or progress.best is not None:
            # A state that does not fit the model must fail now, not after training.
            trainer.model.load_state_dict(progress.best_state)
        trainer.model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"]["cpu"])
        if "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"])
    return progress


def _trailer(content: bytes) -> bytes:
    return f"sha256 {hashlib.sha256(content).hexdigest()}\n".encode()


@contextmanager
def _problem(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise UserError(
            f"{path} is not a checkpoint of this run ({in_one_line(error)}); delete it, or start "
            "the run again with --rerun"
        ) from error


def _to_device(device: torch.device, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def save_weights(folder: Path, step: int, model: nn.Module) -> Path:
    path = folder / f"step-{step:08d}.pt"
    write(path, model.state_dict(), "weights")
    return path


def find_weights(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    found = {path: WEIGHTS_NAME.fullmatch(path.name) for path in sorted(folder.iterdir())}
    # Opening a named pipe would block forever.
    return {int(match[1]): path for path, match in found.items() if match and path.is_file()}


class KeptRun(NamedTuple):
    name: str
    record: Record
    files: dict[int, Path]


def kept_runs(store: Store, names: Sequence[str] = ()) -> Iterator[KeptRun]:
    recorded = [*store.entries()]
    wanted = [Path(name).name.removesuffix(".json") for name in names]
    require_known("run", wanted, recorded)
    found = {name: find_weights(store.folder / "weights" / name) for name in wanted or recorded}
    without = [name for name in wanted if not found[name]]
    if without or not any(found.values()):
        which = f"run {without[0]!r}" if without else f"no run of store {str(store.folder)!r}"
        raise UserError(
            f"{which} has {'no ' if without else ''}saved weights; make them with: harness run "
            "--keep-checkpoints --rerun"
        )
    for name, paths in found.items():
        if paths:
            record = store.require(name)
            if is_outdated(record):
                raise UserError(f"run {name!r} is of other code than now; {WEIGHTS_REMEDY}")
            yield KeptRun(name, record, paths)


def load_weights(path: Path, model: nn.Module) -> None:
    try:
        state = read(path)
    except DamagedError as error:
        raise UserError(f"{error}; {WEIGHTS_REMEDY}") from error
    try:
        model.load_state_dict(state)
    except DAMAGE as error:
        message = f"{path} does not hold the weights of this run; {WEIGHTS_REMEDY}"
        raise UserError(message) from error
