"""The files that commands write."""

from collections.abc import Mapping
from pathlib import Path

import typer

from zoo.registry import UserError, printable


def within(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """The files by their path in `folder`."""
    return {folder / name: content for name, content in files.items()}


def write_pages(files: Mapping[Path, bytes]) -> list[Path]:
    """Write all files, or none of them; print and return their paths."""
    from harness.records.files import remove_partial, write_all

    for folder in {file.parent for file in files}:
        remove_partial(folder)
    try:
        write_all(files)
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be written ({error.strerror}); nothing is changed; free "
            "space, or give another folder"
        ) from error
    for file in files:
        typer.echo(printable(str(file)))
    return [*files]
