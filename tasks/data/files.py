"""What is known of the files that data are made from, and the proof that a given one is it.

Data come in editions: each is some files in a folder, and may be had as a tar archive.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from zoo.registry import UserError

UNPUBLISHED = "unpublished"


@dataclass(frozen=True, kw_only=True)
class File:
    """What is known of one file; or of a folder of files, which only what they make can prove.

    Attributes:
        name: its usual name, with the folders of the edition that it lies in.
        size: bytes; 0 where unpublished.
        digest: `ALGORITHM:HEX`, or `unpublished`.
    """

    name: str
    size: int = 0
    digest: str = UNPUBLISHED

    def verify_size(self, size: int, place: str) -> None:
        """Refuse another size than the known one.

        Raises:
            UserError: what is at `place` has it.
        """
        if self.size and size != self.size:
            raise UserError(f"{place} has {size} bytes, {self.size} expected; get it again")

    def verify(self, stream: BufferedReader | BytesIO, place: str) -> None:
        """Read `stream` to its end, and refuse another content than the known one.

        Raises:
            UserError: what is at `place` has it.
        """
        if self.digest == UNPUBLISHED:
            return
        algorithm, expected = self.digest.split(":")
        found = hashlib.file_digest(stream, algorithm).hexdigest()
        if found != expected:
            raise UserError(
                f"{place} has {algorithm.upper()} {found}, {expected} expected; get it again"
            )

    def suits(self, path: Path) -> bool:
        """Whether `path` has the name or the size of this file: what it is taken for."""
        return path.name == self.name or (self.size > 0 and path.stat().st_size == self.size)

    def require(self, path: Path) -> None:
        """Refuse `path` unless it is this file.

        Raises:
            UserError: it cannot be read, or has another size or content.
        """
        try:
            self.verify_size(path.stat().st_size, str(path))
            with path.open("rb") as stream:
                self.verify(stream, str(path))
        except OSError as error:
            raise unreadable(path, error) from error


@dataclass(frozen=True, kw_only=True)
class Archive(File):
    """A tar archive as it is published.

    Attributes:
        mirrors: addresses to download it from, in this order; none where it cannot be verified.
    """

    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Edition:
    """A form in which data are distributed.

    Attributes:
        name: what it is called.
        files: what belongs to it.
        folders: where the files may lie below what is given.
        archives: the files packed; several where one archive goes by several names.
    """

    name: str
    files: tuple[File, ...]
    folders: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()

    @property
    def listing(self) -> str:
        """What to give, for a message."""
        packed = " or ".join([*self.folders[:1], *(one.name for one in self.archives[:1])])
        return packed or " and ".join(file.name for file in self.files)

    def member(self, name: str) -> tuple[File, str] | None:
        """Which file that member of an archive is, and its name here; None for one of no use."""
        path = PurePosixPath(name)
        for file in () if path.name.startswith(".") else self.files:
            known = PurePosixPath(file.name).parts
            if path.parts[-len(known) :] == known:
                return file, file.name
            if path.parent.parts[-len(known) :] == known:
                return file, f"{file.name}/{path.name}"
        return None


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a task's data are made from.

    Attributes:
        title: what they hold.
        origin: address of the public original.
        terms: licence, and whom to cite.
        rows: examples, by the official split that they belong to.
        arrays: SHA-256 of the bytes of every array that is kept, the same for all editions; empty
            where unpublished.
        editions: the forms in which they come.
    """

    title: str
    origin: str
    terms: str
    rows: Mapping[str, int]
    arrays: Mapping[str, str]
    editions: tuple[Edition, ...]

    @property
    def listing(self) -> str:
        """What to give, for a message."""
        return ", or ".join(edition.listing for edition in self.editions)

    @property
    def public(self) -> tuple[Archive, ...]:
        """The archives that can be downloaded and verified, in order of preference."""
        return tuple(one for edition in self.editions for one in edition.archives if one.mirrors)

    @property
    def names(self) -> str:
        """What the public archives are called, for a message."""
        return " or ".join(archive.name for archive in self.public)

    def verify(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Refuse other arrays than the known ones.

        Raises:
            UserError: what was made of `place` differs.
        """
        for name, expected in self.arrays.items():
            found = hashlib.sha256(arrays[name].tobytes()).hexdigest()
            if found != expected:
                raise UserError(
                    f"{name} made of {place} has SHA256 {found}, {expected} expected; get it again"
                )


def source_of(task: str) -> Source:
    """What `sources.toml` says of an imported task."""
    text = resources.files("tasks.data").joinpath("sources.toml").read_text("utf-8")
    known = tomllib.loads(text)[task]
    return Source(**known | {"editions": tuple(map(_edition, known["editions"]))})


def _edition(known: dict[str, Any]) -> Edition:
    archives = [one | {"mirrors": tuple(one["mirrors"])} for one in known.get("archives", ())]
    return Edition(
        name=known["name"],
        files=tuple(File(**file) for file in known["files"]),
        folders=tuple(known.get("folders", ())),
        archives=tuple(Archive(**one) for one in archives),
    )


def unreadable(path: object, error: OSError) -> UserError:
    """The refusal of a place that the system will not read."""
    return UserError(f"{path} cannot be read ({error.strerror}); give another PATH")
