"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from zoo.registry import UserError


def require_writable(folder: Path, what: str, remedy: str) -> None:
    """Make `folder` where there is none.

    Raises:
        UserError: it cannot be written: known now, no work is lost for it later.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        there = isinstance(error, FileExistsError)
        reason = f"{folder} is a file" if there else error.strerror
        raise UserError(f"{what} cannot be written ({reason}); {remedy}") from error


def require_page(path: Path) -> None:
    """See to it that the page `path` can be written.

    Raises:
        UserError: it cannot: known now, no work is lost for it later.
    """
    remedy = "give another --out"
    if path.is_dir():
        raise UserError(f"{path} cannot be written (it is a folder); {remedy}")
    require_writable(path.parent, str(path), remedy)


def write_atomic(path: Path, content: bytes) -> Path:
    """Write `content` beside `path`, then rename it to `path`, and return `path`.

    A reader sees the old file or the new one; a kill in between leaves a hidden `.partial` file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_all(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write each of `contents` by its name into `folder`, as `place` does, and return the paths."""
    return [write_atomic(folder / name, content) for name, content in contents.items()]
