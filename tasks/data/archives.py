"""Locate the files of a layout at a path that a user gives, and read them one after the other.

Nothing is extracted: an archive is read member by member, and members of other names are skipped.
"""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from tasks.data.files import UNPUBLISHED, File, Layout, Source, require_regular, unreadable
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
        """All bytes of a file of at most `limit`.

        Raises:
            UserError: the file is larger.
        """
        content = self.stream.read(limit + 1)
        if len(content) > limit:
            raise UserError(f"{self.location} has more than {limit} bytes; get it again")
        return content

    def lines(self, limit: int) -> Iterator[bytes]:
        """The lines of a file, each of at most `limit` bytes.

        Raises:
            UserError: a line is longer.
        """
        number = 1
        while line := self.stream.readline(limit + 1):
            if len(line) > limit:
                raise UserError(
                    f"{self.location}, line {number} has more than {limit} bytes; get it again"
                )
            yield line
            number += 1


Reader: TypeAlias = Callable[[Layout, Path], Iterator[tuple[File, int, Member]]]
"""Opens the files of a layout at a path; yields the entry of each, its size, and the open file."""


class SourceFiles:
    """The files of a layout, verified, one after the other; each closes when the next opens.

    Attributes:
        layout: which layout it is.
        path: where it is: a folder, an archive, or its only file.
        location: the location of the latest file, for a message.
    """

    def __init__(self, layout: Layout, path: Path, reader: Reader) -> None:
        """Store the arguments; files are opened by iteration."""
        self.layout, self.path, self.location = layout, path, str(path)
        self._reader = reader

    def __iter__(self) -> Iterator[Member]:
        """Each file.

        Raises:
            UserError: a file is missing, duplicate, unreadable, or has another size or digest.
        """
        try:
            for file, size, member in self._reader(self.layout, self.path):
                self.location = member.location
                yield _verified(file, size, member)
        except OSError as error:
            if error.errno is None:  # raised by a decoder, not by the system
                raise
            raise unreadable(error.filename or self.location, error) from error


def locate(source: Source, path: Path) -> SourceFiles:
    """The files of `source` at `path`: a layout's folder or its parent, an archive, or a file.

    Raises:
        UserError: `path` is none of them, or cannot be read.
    """
    try:
        if not path.exists():
            raise UserError(f"{path} does not exist; give the folder of {source.description}")
        files = _in_folder(source, path) if path.is_dir() else _from_file(source, path)
    except OSError as error:
        raise unreadable(path, error) from error
    if files is None:
        rule = "contains no known file" if path.is_dir() else "is not a known file"
        raise UserError(f"{path} {rule}; give the folder of {source.description}")
    return files


def _in_folder(source: Source, path: Path) -> SourceFiles | None:
    for layout in source.layouts:
        for folder in (path, *(path / name for name in layout.folders)):
            if any((folder / file.name).exists() for file in layout.files):
                return SourceFiles(layout, folder, _read_folder)
        for archive in layout.archives:
            if (path / archive.name).exists():
                return SourceFiles(layout, path / archive.name, _read_archive)
    return None


def _from_file(source: Source, path: Path) -> SourceFiles | None:
    require_regular(path)
    for layout in source.layouts:
        if any(archive.matches(path) for archive in layout.archives):
            return SourceFiles(layout, path, _read_archive)
        if any(file.matches(path) for file in layout.files):
            if len(layout.files) > 1:
                names = " and ".join(file.name for file in layout.files)
                raise UserError(f"{path} is one file of several; give the folder of {names}")
            return SourceFiles(layout, path, _read_file)
    return None


def _read_folder(layout: Layout, path: Path) -> Iterator[tuple[File, int, Member]]:
    # Before the first file is read, which can take minutes.
    for file in layout.files:
        if not (path / file.name).exists():
            raise UserError(f"{path} contains no {file.name}; get it again")
    for file in layout.files:
        top = path / file.name
        paths = [p for p in top.iterdir() if p.name[0] != "."] if top.is_dir() else [top]
        for member in sorted(paths):
            require_regular(member)
            name = file.name if member == top else f"{file.name}/{member.name}"
            with member.open("rb") as stream:
                yield file, member.stat().st_size, Member(name, str(member), stream)


def _read_file(layout: Layout, path: Path) -> Iterator[tuple[File, int, Member]]:
    (file,) = layout.files
    with path.open("rb") as stream:
        yield file, path.stat().st_size, Member(file.name, str(path), stream)


def _read_archive(layout: Layout, path: Path) -> Iterator[tuple[File, int, Member]]:
    require_regular(path)
    archive = next(one for one in layout.archives if one.matches(path))
    archive.verify_size(path.stat().st_size, str(path))
    with path.open("rb") as stream:
        archive.verify_digest(stream, str(path))
    missing = {file.name for file in layout.files}
    names: set[str] = set()
    with tarfile.open(path, "r|*") as members:
        for info in members:
            entry = layout.member(info.name) if info.isreg() else None
            stream = members.extractfile(info) if entry else None
            if entry is None or stream is None:
                continue
            file, name = entry
            if name in names:
                raise UserError(f"{path} contains {name} twice; get it again")
            names.add(name)
            missing.discard(file.name)
            yield file, info.size, Member(name, f"{path}:{info.name}", stream)
            if name == file.name and not missing:
                return  # gigabytes that are not needed may follow
    if missing:
        raise UserError(f"{path} contains no {min(missing)}; get it again")


def _verified(file: File, size: int, member: Member) -> Member:
    file.verify_size(size, member.location)
    if file.digest == UNPUBLISHED:
        return member
    # Read once, so that the decoded bytes are those that were verified.
    content = io.BytesIO(member.stream.read())
    file.verify_digest(content, member.location)
    content.seek(0)
    return member._replace(stream=content)
