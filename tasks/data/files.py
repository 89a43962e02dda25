"""The files that data sets are made from: which ones, where they are, and their verification.

Nothing is extracted: an archive is read member by member, and links and devices are skipped.
"""

import csv
import hashlib
import os
import re
import stat
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EINVAL
from importlib import resources
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from zoo.registry import UserError, in_one_line

# A file, the time of its last change and its size: the key of its cached content.
Stamp: TypeAlias = tuple[Path, int, int]

LARGEST = 1 << 30  # Bytes of a file, at most, unless its size is known

# Bytes of a line, or of a small file, so that a damaged one cannot fill the memory.
SMALL_FILE = 1 << 26


class File(NamedTuple):
    name: str
    size: int  # Bytes; 0 if unknown
    digest: str  # `ALGORITHM:HEX`
    url: str = ""  # Empty if the file is only recognised

    def verify(self, size: int, stream: BufferedReader | BytesIO, location: str) -> None:
        if self.size and size != self.size:
            raise damaged(location, f"has {size} bytes, {self.size} expected")
        algorithm, expected = self.digest.split(":")
        if (actual := hashlib.file_digest(stream, algorithm).hexdigest()) != expected:
            raise damaged(location, f"has {algorithm.upper()} {actual}, {expected} expected")


@dataclass(frozen=True, kw_only=True)
class Source:
    title: str
    origin: str
    terms: str  # Licence, and whom to cite
    give: str  # The folder or archive to give, for a message
    pattern: str  # Regular expression of the last folders and the name of the files to read
    examples: Mapping[str, int] = field(default_factory=dict)  # Their number, by official split
    # SHA-256 of every cached array. Without digests the reader verifies the form of every example.
    arrays: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()  # Files and archives whose content is known

    @property
    def downloads(self) -> tuple[File, ...]:
        return tuple(file for file in self.files if file.url)

    def verify(self, arrays: Mapping[str, np.ndarray], location: str) -> None:
        for split, expected in self.examples.items():
            if (count := len(arrays.get(f"{split}_targets", ()))) != expected:
                raise damaged(location, f"has {count} examples in {split}, {expected} expected")
        for name, digest in self.arrays.items():
            content, made = BytesIO(arrays[name].tobytes()), f"{name} made from {location}"
            File(name, 0, f"sha256:{digest}").verify(0, content, made)


def source_of(data: str, **fields: Any) -> Source:
    # `digests.csv` has its `arrays`, without a size, and its `files`; 0 bytes is an unknown size.
    table, sources = (
        resources.files("tasks.data").joinpath(name).read_text("utf-8")
        for name in ("digests.csv", "sources.toml")
    )
    rows = [row for row in csv.DictReader(table.splitlines()) if row["data"] == data]
    arrays = {r["item"]: r["digest"].removeprefix("sha256:") for r in rows if not r["bytes"]}
    files = [File(r["item"], int(r["bytes"]), r["digest"], r["url"]) for r in rows if r["bytes"]]
    return Source(**fields or tomllib.loads(sources)[data], arrays=arrays, files=tuple(files))


class Member(NamedTuple):
    name: str  # The part of its path that the pattern matches
    location: str
    stream: IO[bytes]

    def read(self, limit: int = LARGEST) -> bytes:
        return _limited(self.stream.read(limit + 1), limit, self.location)

    def lines(self, limit: int = SMALL_FILE) -> Iterator[tuple[str, bytes]]:
        for number, line in enumerate(iter(lambda: self.stream.readline(limit + 1), b""), 1):
            location = f"{self.location}, line {number}"
            yield location, _limited(line, limit, location)


@dataclass
class SourceFiles:
    source: Source
    path: Path
    location: str = ""  # Of the file that is open: each closes when the next opens

    def __str__(self) -> str:
        return self.location or str(self.path)

    def __iter__(self) -> Iterator[Member]:
        # Verify files whose content is known.
        names: set[str] = set()
        for member, size in self._open():
            if member.name in names:
                raise damaged(self.path, f"contains {member.name} twice")
            names.add(member.name)
            self.location = member.location
            if published := self._known(member.name):
                # Read once, so that the verified bytes are decoded.
                content = BytesIO(member.stream.read((published.size or LARGEST) + 1))
                published.verify(size, content, member.location)
                content.seek(0)
                member = member._replace(stream=content)
            yield member
        if not names:
            raise UserError(f"{self.path} contains no known file; give {self.source.give}")

    def exist(self) -> bool:
        return self.path.exists() and next(self._open(), None) is not None

    def _known(self, path: str) -> File | None:
        return next((file for file in self.source.files if file.name == Path(path).name), None)

    def _name(self, path: str) -> str:
        found = re.search(rf"(?:^|/)({self.source.pattern})$", path)
        return found.group(1) if found and not Path(path).name.startswith(".") else ""

    def _open(self) -> Iterator[tuple[Member, int]]:
        if not self.path.exists():
            raise UserError(f"{self.path} does not exist; give {self.source.give}")
        if self.path.is_dir() or self._name(self.path.absolute().as_posix()):
            walk = [(folder, file) for folder, _, files in os.walk(self.path) for file in files]
            for path in sorted(Path(*parts) for parts in walk) or [self.path]:
                if name := self._name(path.absolute().as_posix()):
                    require_regular(path)
                    with path.open("rb") as stream:
                        yield Member(name, str(path), stream), path.stat().st_size
            return
        require_regular(self.path)
        if published := self._known(str(self.path)):
            with self.path.open("rb") as stream:
                published.verify(self.path.stat().st_size, stream, str(self.path))
        for path, size, stream in _members(self.path):
            if name := self._name(path):
                yield Member(name, f"{self.path}:{path}", stream), size


def damaged(location: object, problem: str) -> UserError:
    return UserError(f"{location} {problem}; get it again")


@contextmanager
def system_errors(
    path: object, verb: str = "read", remedy: str = "give another PATH"
) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path} cannot be {verb} ({reason}); {remedy}") from error


@contextmanager
def decoding(
    location: object, remedy: str = "get it again", of_system: str = "give another PATH"
) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # decoders of damaged files raise errors of a dozen types
        # A damaged offset is an error of the system, EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, EINVAL):
            with system_errors(error.filename or location, remedy=of_system):
                raise
        raise UserError(f"{location} cannot be read ({in_one_line(error)}); {remedy}") from error


def require_regular(path: Path) -> None:
    # Opening a named pipe would block for ever. The opener reports a missing file.
    with suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is not a regular file; remove it or give another PATH")


def stamp(path: str, what: str) -> Stamp:
    require_regular(file := Path(path))
    with system_errors(path, remedy=f"give {what}"):
        return file, file.stat().st_mtime_ns, file.stat().st_size


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for info in (info for info in archive.infolist() if not info.is_dir()):
                with archive.open(info) as stream:
                    yield info.filename, info.file_size, stream
        return
    with tarfile.open(path, "r|*") as members:
        for member in (member for member in members if member.isreg()):
            if (content := members.extractfile(member)) is not None:
                yield member.name, member.size, content


def _limited(content: bytes, limit: int, location: str) -> bytes:
    if len(content) > limit:
        raise damaged(location, f"has more than {limit} bytes")
    return content
