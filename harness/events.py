"""Curves of records as event files, which TensorBoard shows."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.records.record import Record
from harness.records.store import Store
from tasks.data.extras import how_to_install
from zoo.registry import UserError


def require_tensorboard() -> Any:
    """The class `torch.utils.tensorboard.SummaryWriter`.

    Raises:
        UserError: the package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "--tensorboard needs the package tensorboard, which is not installed; "
            + how_to_install("tensorboard")
        ) from error
    return SummaryWriter


def write_events(records: Iterable[Record], folder: Path) -> list[Path]:
    """Write the curve of each record to a folder of its own, and return these folders.

    The scalars are `loss`, `loss/NAME` for each auxiliary loss, and `dev accuracy` as a fraction,
    against steps; the time of a point is that of the beginning of the run plus its seconds of
    training. Event files of an earlier call for the same run are deleted.

    Raises:
        UserError: the package tensorboard is not installed, or a folder cannot be written.
    """
    writer_type = require_tensorboard()
    folders = []
    for record in records:
        own = folder / Store(folder).name(record.spec)
        try:
            for old in own.glob("events.out.tfevents.*"):
                old.unlink()
            with writer_type(str(own)) as writer:
                _write(record, writer)
        except OSError as error:
            raise UserError(f"{own} cannot be written ({error.strerror}); give another") from error
        folders.append(own)
    return folders


def _write(record: Record, writer: Any) -> None:
    start = datetime.fromisoformat(record.started).timestamp()
    for point in record.curve:
        scalars = {"loss": point.loss}
        scalars |= {f"loss/{name}": value for name, value in point.losses.items()}
        scalars |= {} if point.dev is None else {f"dev {record.selection.title}": point.dev}
        for tag, value in scalars.items():
            writer.add_scalar(tag, value, point.step, walltime=start + point.seconds)
