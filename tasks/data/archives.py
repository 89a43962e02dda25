"""Locate the files of a layout at a path that a user gives, and read them one after the other.

Nothing is extracted: an archive is read member by member, and members of other names are skipped.
"""

import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from tasks.data.files import (
    UNPUBLISHED,
    Archive,
    File,
    Layout,
    Source,
    require_regular,
    unreadable,
)
from zoo.registry import UserError


class Member(NamedTuple):
    """One open file of a layout.

    Attributes:
        name: its name in the layout.
        location: where it is, for a message.
        stream: its bytes.
    """

    name: str
    location: str
    stream: IO[bytes]

    def read(self, limit: int) -> bytes:
        """All bytes of a file; raises UserError where it has more than `limit`."""
        return _limited(self.stream.read(limit + 1), limit, self.location)

    def lines(self, limit: int) -> Iterator[tuple[str, bytes]]:
        """The location of each line, and its bytes; raises UserError on more than `limit` bytes."""
        for number, line in enumerate(iter(lambda: self.stream.readline(limit + 1), b""), 1):
            location = f"{self.location}, line {number}"
            yield location, _limited(line, limit, location)


@dataclass
class SourceFiles:
    """The files of a layout, verified, one after the other; each closes when the next opens.

    Attributes:
        layout: which layout it is.
        path: where it is: a folder, an archive, or its only file.
        location: the location of the latest file, for a message.
    """

    layout: Layout
    path: Path
    location: str

    def __iter__(self) -> Iterator[Member]:
        """Each file.

        Raises:
            UserError: a file is missing, duplicate, or has another size or digest.
        """
        for file, size, member in self._open():
            self.location = member.location
            file.verify_size(size, member.location)
            if file.digest != UNPUBLISHED:
                # Read once, so that the decoded bytes are those that were verified.
                content = io.BytesIO(member.stream.read())
                file.verify_digest(content, member.location)
                content.seek(0)
                member = member._replace(stream=content)
            yield member

    def _open(self) -> Iterator[tuple[File, int, Member]]:
        """The entry of each file, its size, and the open file."""
        if self.path.is_dir():
            return _open_folder(self.layout, self.path)
        for archive in self.layout.archives:
            if archive.matches(self.path):
                return _open_archive(self.layout, archive, self.path)
        return _open_file(self.layout.files[0], self.layout.files[0].name, self.path)


def locate(source: Source, path: Path) -> SourceFiles:
    """The files of `source` at `path`: a layout's folder or its parent, an archive, or a file.

    Raises:
        UserError: `path` is none of them, or cannot be read.
    """
    try:
        if not path.exists():
            raise UserError(f"{path} does not exist; give the folder of {source.description}")
        is_folder = path.is_dir()
        if not is_folder:
            require_regular(path)
        for layout in source.layouts:
            if found := (_in_folder if is_folder else _as_file)(layout, path):
                return SourceFiles(layout, found, str(found))
    except OSError as error:
        raise unreadable(path, error) from error
    rule = "contains no known file" if is_folder else "is not a known file"
    raise UserError(f"{path} {rule}; give the folder of {source.description}")


def is_located(source: Source, path: Path) -> bool:
    """Whether `locate` finds files of `source` at `path`."""
    try:
        return bool(locate(source, path))
    except UserError:
        return False


def _in_folder(layout: Layout, path: Path) -> Path | None:
    for folder in (path, *(path / name for name in layout.folders)):
        if any((folder / file.name).exists() for file in layout.files):
            return folder
    archives = (path / archive.name for archive in layout.archives)
    return next((archive for archive in archives if archive.exists()), None)


def _as_file(layout: Layout, path: Path) -> Path | None:
    if any(archive.matches(path) for archive in layout.archives):
        return path
    if not any(file.matches(path) for file in layout.files):
        return None
    if len(layout.files) > 1:
        names = " and ".join(file.name for file in layout.files)
        raise UserError(f"{path} is one file of several; give the folder of {names}")
    return path


def _open_folder(layout: Layout, path: Path) -> Iterator[tuple[File, int, Member]]:
    # Before the first file is read, which can take minutes.
    for file in layout.files:
        if not (path / file.name).exists():
            raise UserError(f"{path} contains no {file.name}; get it again")
    for file in layout.files:
        top = path / file.name
        if not top.is_dir():
            yield from _open_file(file, file.name, top)
            continue
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                if not name.startswith("."):
                    member = Path(folder, name)
                    below = member.relative_to(top).as_posix()
                    yield from _open_file(file, f"{file.name}/{below}", member)


def _open_file(file: File, name: str, path: Path) -> Iterator[tuple[File, int, Member]]:
    require_regular(path)
    with path.open("rb") as stream:
        yield file, path.stat().st_size, Member(name, str(path), stream)


def _open_archive(
    layout: Layout, archive: Archive, path: Path
) -> Iterator[tuple[File, int, Member]]:
    require_regular(path)
    archive.verify_size(path.stat().st_size, str(path))
    with path.open("rb") as stream:
        archive.verify_digest(stream, str(path))
    missing = {file.name for file in layout.files}
    names: set[str] = set()
    for full_name, size, stream in _members(path):
        entry = layout.member(full_name)
        if entry is None:
            continue
        file, name = entry
        if name in names:
            raise UserError(f"{path} contains {name} twice; get it again")
        names.add(name)
        missing.discard(file.name)
        yield file, size, Member(name, f"{path}:{full_name}", stream)
        if name == file.name and not missing:
            return  # gigabytes that are not needed may follow
    if missing:
        raise UserError(f"{path} contains no {min(missing)}; get it again")


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """The name, size and bytes of each file of a zip or tar archive."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as stream:
                        yield info.filename, info.file_size, stream
        return
    with tarfile.open(path, "r|*") as members:
        for member in members:
            stream = members.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, member.size, stream


def _limited(content: bytes, limit: int, location: str) -> bytes:
    if len(content) > limit:
        raise UserError(f"{location} has more than {limit} bytes; get it again")
    return content
