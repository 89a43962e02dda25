"""Curves of records as event files, which TensorBoard shows."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.records.files import usable
from harness.records.record import Record
from tasks.data.extras import import_extra


def require_tensorboard() -> Any:
    module: Any = import_extra("--tensorboard", "torch.utils.tensorboard", "tensorboard")
    return module.SummaryWriter


def write_events(records: Iterable[Record], folder: Path) -> list[Path]:
    writer_type = require_tensorboard()
    folders = []
    for record in records:
        path = folder / record.spec.file_name
        with usable(path, "written", "give another"):
            for old in path.glob("events.out.tfevents.*"):
                old.unlink()
            start = datetime.fromisoformat(record.started).timestamp()
            with writer_type(str(path)) as writer:
                for point in record.curve:
                    scalars = {f"loss/{name}": value for name, value in point.losses.items()}
                    scalars = {"loss": point.loss, **scalars}
                    if point.dev is not None:
                        scalars[f"dev {record.selection.title}"] = point.dev
                    for tag, value in scalars.items():
                        writer.add_scalar(tag, value, point.step, walltime=start + point.seconds)
        folders.append(path)
    return folders
