"""Finding the known files in what somebody has, and opening them one after the other.

Nothing is extracted: an archive is read member by member, and only members of known names are.
"""

import io
import tarfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from tasks.data.files import UNPUBLISHED, Edition, File, Source, unreadable
from zoo.registry import UserError


class Member(NamedTuple):
    """One file of an edition, open.

    Attributes:
        name: its name in the edition.
        place: where it is, for a message.
        stream: its bytes.
    """

    name: str
    place: str
    stream: IO[bytes]


Walk: TypeAlias = Generator[tuple[File, int, Member], None, None]
"""What is known of each file, its size, and itself."""


class Opened:
    """The files of an edition, verified, one after the other; each closes when the next opens.

    Attributes:
        edition: which it is.
        path: where it is: a folder, an archive, or its only file.
        place: the latest file's, for a message.
    """

    def __init__(self, edition: Edition, path: Path, walk: Callable[[Edition, Path], Walk]) -> None:
        """Remember what to open; nothing is opened before the first file is asked for."""
        self.edition, self.path, self.place = edition, path, str(path)
        self._walk = walk

    def __iter__(self) -> Generator[Member, None, None]:
        """Each file.

        Raises:
            UserError: one is missing, there twice, unreadable, or not what is known of it.
        """
        try:
            for file, size, member in self._walk(self.edition, self.path):
                self.place = member.place
                yield _proven(file, size, member)
        except OSError as error:
            if error.errno is None:  # a decoder's, not the system's
                raise
            raise unreadable(error.filename or self.place, error) from error


def locate(source: Source, path: Path) -> Opened:
    """What `path` is: the folder of an edition or one above it, an archive, or its only file.

    Raises:
        UserError: it is none of them, or cannot be read.
    """
    try:
        if not path.exists():
            raise UserError(f"{path} does not exist; give the folder of {source.listing}")
        found = (_within if path.is_dir() else _given)(source, path)
    except OSError as error:
        raise unreadable(path, error) from error
    if not found:
        known = "holds no file that is known" if path.is_dir() else "has no name that is known"
        raise UserError(f"{path} {known}; give the folder of {source.listing}")
    return found[0]


def _within(source: Source, path: Path) -> list[Opened]:
    found = []
    for edition in source.editions:
        for at in (path, *(path / name for name in edition.folders)):
            if any((at / file.name).exists() for file in edition.files):
                found.append(Opened(edition, at, _loose))
        packed = [path / one.name for one in edition.archives]
        found += [Opened(edition, one, _packed) for one in packed if one.exists()]
    return found


def _given(source: Source, path: Path) -> list[Opened]:
    found = []
    for edition in source.editions:
        if any(one.suits(path) for one in edition.archives):
            found.append(Opened(edition, path, _packed))
        if not any(file.suits(path) for file in edition.files):
            continue
        if len(edition.files) > 1:
            names = " and ".join(file.name for file in edition.files)
            raise UserError(f"{path} is one file of several; give the folder of {names}")
        found.append(Opened(edition, path, _alone))
    return found


def _loose(edition: Edition, path: Path) -> Walk:
    # Before the first is read: that can take minutes.
    for file in edition.files:
        if not (path / file.name).exists():
            raise UserError(f"{path} holds no {file.name}; get it again")
    for file in edition.files:
        top = path / file.name
        visible = [one for one in top.iterdir() if one.name[0] != "."] if top.is_dir() else [top]
        for place in sorted(visible):
            name = file.name if place == top else f"{file.name}/{place.name}"
            with place.open("rb") as stream:
                yield file, place.stat().st_size, Member(name, str(place), stream)


def _alone(edition: Edition, path: Path) -> Walk:
    (file,) = edition.files
    with path.open("rb") as stream:
        yield file, path.stat().st_size, Member(file.name, str(path), stream)


def _packed(edition: Edition, path: Path) -> Walk:
    next(one for one in edition.archives if one.suits(path)).require(path)
    wanted = {file.name for file in edition.files}
    seen: set[str] = set()
    with tarfile.open(path, "r|*") as archive:
        for info in archive:
            known = edition.member(info.name) if info.isreg() else None
            stream = archive.extractfile(info) if known else None
            if known is None or stream is None:
                continue
            file, name = known
            if name in seen:
                raise UserError(f"{path} holds {name} twice; get it again")
            seen |= {name, file.name}
            yield file, info.size, Member(name, f"{path}:{info.name}", stream)
            if name == file.name and seen == wanted:
                return  # gigabytes of no use may follow
    for name in sorted(wanted - seen):
        raise UserError(f"{path} holds no {name}; get it again")


def _proven(file: File, size: int, member: Member) -> Member:
    file.verify_size(size, member.place)
    if file.digest == UNPUBLISHED:
        return member
    # Read once, so that what is decoded is what was verified.
    content = io.BytesIO(member.stream.read())
    file.verify(content, member.place)
    content.seek(0)
    return member._replace(stream=content)
