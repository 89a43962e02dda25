"""Where data come from: known files that are verified and imported, or a generator.

Nothing is kept unverified: by the digest of a file, else by that of what is made of it, else, where
none is published, by form and number. The cache stays as it was whenever anything is wrong.
"""

import lzma
import tarfile
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.contract import Task
from tasks.data import cache
from tasks.data.archives import Opened, locate
from tasks.data.files import Source, source_of
from tasks.registry import tasks
from zoo.registry import UserError, in_one_line

UNDECODABLE = (
    AttributeError, EOFError, KeyError, NotImplementedError, OSError, TypeError, ValueError,
    lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the decoders raise on a file that is not what it should be."""


class CachedTask(Task):
    """A task whose data wait in the cache."""

    @classmethod
    @abstractmethod
    def remedy(cls) -> str:
        """What to do where the data are missing, for a message."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the cache holds the data; they are not read for it."""


class ImportedTask(CachedTask):
    """A task whose data are made from known files, which a user has or which are downloaded."""

    @classmethod
    @abstractmethod
    def convert(cls, files: Opened, rows: Mapping[str, int]) -> dict[str, np.ndarray]:
        """The arrays to keep, the same ones whichever edition the files are.

        Args:
            files: the verified files of one edition.
            rows: examples that there must be, by official split.

        Raises:
            UserError: what is inside is not what is known of it.
        """

    @classmethod
    def source(cls) -> Source:
        """The files that the data are made from."""
        return source_of(cls.name)

    @classmethod
    def remedy(cls) -> str:
        """See `Kept.remedy`."""
        source = cls.source()
        fetch = f"run 'harness data fetch {cls.name}', or " if source.public else "run "
        return (
            f"{fetch}'harness data import {cls.name} PATH' with the folder of {source.listing}; "
            f"public original: {source.origin}"
        )

    @classmethod
    def bring(cls, path: Path, source: Source) -> Path:
        """Verify the files of `source` at `path`, convert them, and put the result in the cache.

        Raises:
            UserError: a file is missing, unknown or damaged, or the cache cannot be written.
        """
        files = locate(source, path)
        cache.require_writable()
        try:
            arrays = cls.convert(files, source.rows)
        except UserError:
            raise
        except UNDECODABLE as error:
            raise UserError(
                f"{files.place} cannot be decoded ({in_one_line(error)}); get it again"
            ) from error
        source.verify(arrays, str(path))
        return _keep(versioned(cls), arrays)

    def is_there(self) -> bool:
        """See `Kept.is_there`."""
        return cache.find(versioned(type(self))) is not None

    def arrays(self, names: Iterable[str]) -> list[np.ndarray]:
        """The named arrays, verified.

        Raises:
            UserError: they have not been imported, or are damaged.
        """
        return cache.read(versioned(type(self)), names, self.remedy())


class GeneratedTask(CachedTask):
    """A task whose data are generated on first use, and kept under all their options."""

    @abstractmethod
    def generate(self) -> dict[str, np.ndarray]:
        """The arrays to keep: the same ones for the same options, wherever they are made."""

    @classmethod
    def remedy(cls) -> str:
        """See `Kept.remedy`."""
        return "run the task: its data are generated on first use"

    def is_there(self) -> bool:
        """See `Kept.is_there`."""
        return cache.find(self.key) is not None

    def arrays(self, names: Iterable[str]) -> list[np.ndarray]:
        """The named arrays, verified; generated first where they are missing.

        Raises:
            UserError: what is in the cache is damaged, the cache cannot be written, or the options
                cannot be met.
        """
        if not self.is_there():
            cache.require_writable()
            _keep(self.key, self.generate())
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
        path: the folder of its known files or one above it, a published archive, or the file itself
            where there is only one.

    Raises:
        UserError: the task is unknown or takes no files, or a file is missing, unknown or damaged.
    """
    found = imported(task, "import")
    return found.bring(path, found.source())


def imported(task: str, wish: str) -> type[ImportedTask]:
    """The task of that name, whose data are to be imported or fetched: `wish`, for a message.

    Raises:
        UserError: it is unknown or takes no files.
    """
    found = tasks.find(task)
    if not issubclass(found, ImportedTask):
        raise UserError(f"{task} is generated when it is run; nothing to {wish}")
    return found


def status() -> list[Holding]:
    """What the cache holds of every task that is kept there, in order of name."""
    kept = [(name, task) for name, task in tasks.items() if issubclass(task, CachedTask)]
    found = [(name, task, cache.find_all(versioned(task))) for name, task in kept]
    return [Holding(name, paths, "" if paths else task.remedy()) for name, task, paths in found]


def _keep(key: str, arrays: Mapping[str, np.ndarray]) -> Path:
    try:
        return cache.write(key, arrays)
    except OSError as error:
        raise UserError(
            f"{key} cannot be written to {cache.data_home()} ({error.strerror or error}); make "
            f"room there, or set {cache.HOME_VARIABLE} to a folder that has it"
        ) from error
