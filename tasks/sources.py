"""Where data come from: known files that are verified and imported, or a generator.

Nothing is read unverified, and the cache stays as it was whenever anything is wrong.
"""

import lzma
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks import cache
from tasks.contract import Task
from tasks.known import File, Source, source_of
from tasks.registry import tasks
from zoo.registry import Refused, first_line

UNDECODABLE = (
    AttributeError, EOFError, KeyError, NotImplementedError, OSError, TypeError, ValueError,
    lzma.LZMAError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the decoders raise on a file that is not what it should be."""


class Kept(Task):
    """A task whose data wait in the cache."""

    @classmethod
    @abstractmethod
    def remedy(cls) -> str:
        """What to do where the data are missing, for a message."""


class Imported(Kept):
    """A task whose data are made from known files, by `harness data import`."""

    @classmethod
    @abstractmethod
    def convert(cls, packed: bytes, file: File) -> dict[str, np.ndarray]:
        """The arrays to keep of one verified file.

        Raises:
            Refused: what is inside is not what is known of it.
        """

    @classmethod
    def source(cls) -> Source:
        """The files that the data are made from."""
        return source_of(cls.name)

    @classmethod
    def remedy(cls) -> str:
        """See `Kept.remedy`."""
        source = cls.source()
        return (
            f"run 'harness data import {cls.name} PATH' with the folder of {source.listing}; "
            f"public original: {source.origin}"
        )

    @classmethod
    def bring(cls, path: Path, source: Source) -> Path:
        """Verify the files of `source` at `path`, convert them, and put the result in the cache.

        Raises:
            Refused: a file is missing, unknown or damaged.
        """
        arrays = {}
        for file, place in zip(source.files, source.locate(path), strict=True):
            packed = file.read(place)
            try:
                arrays |= cls.convert(packed, file)
            except Refused:
                raise
            except UNDECODABLE as error:
                raise Refused(
                    f"{place} cannot be decoded ({type(error).__name__}: {first_line(error)}); "
                    "get it again"
                ) from error
        return cache.write(versioned(cls), arrays)

    def arrays(self, names: Iterable[str]) -> list[np.ndarray]:
        """The named arrays, verified.

        Raises:
            Refused: they have not been imported, or are damaged.
        """
        return cache.read(versioned(type(self)), names, self.remedy())


class Generated(Kept):
    """A task whose data are generated on first use, and kept under all their options."""

    @abstractmethod
    def generate(self) -> dict[str, np.ndarray]:
        """The arrays to keep: the same ones for the same options, wherever they are made."""

    @classmethod
    def remedy(cls) -> str:
        """See `Kept.remedy`."""
        return "use it: it is generated on first use"

    def arrays(self, names: Iterable[str]) -> list[np.ndarray]:
        """The named arrays, verified; generated first where they are missing.

        Raises:
            Refused: what is in the cache is damaged, or the options cannot be met.
        """
        if cache.find(self.key) is None:
            cache.write(self.key, self.generate())
        return cache.read(self.key, names, self.remedy())


class Holding(NamedTuple):
    """What the cache holds of a task.

    Attributes:
        task: its name.
        paths: the files of its current version, one for each set of options in use.
        remedy: how to get what is missing, one line; empty where nothing is.
    """

    task: str
    paths: list[Path]
    remedy: str


def versioned(task: type[Task]) -> str:
    """The key of a task without its options."""
    return f"{task.name}@{task.version}"


def import_data(task: str, path: Path) -> Path:
    """Verify and convert the files of `task` at `path`; return their place in the cache.

    Args:
        task: name of an imported task.
        path: the folder of its known files, or the file itself where there is only one.

    Raises:
        Refused: the task is unknown or takes no files, or a file is missing, unknown or damaged.
    """
    found = tasks.find(task)
    if not issubclass(found, Imported):
        raise Refused(f"{task} is generated on first use; nothing to import")
    return found.bring(path, found.source())


def status() -> list[Holding]:
    """What the cache holds of every task that is kept there, in order of name."""
    kept = [(name, task) for name, task in tasks.items() if issubclass(task, Kept)]
    found = [(name, task, cache.find_all(versioned(task))) for name, task in kept]
    return [Holding(name, paths, "" if paths else task.remedy()) for name, task, paths in found]
