"""Tasks with cached data: imported from known files, which pooch downloads, or generated.

Nothing unverified is cached: the digests of a file and of its arrays and the number of examples are
verified; without a published digest, the form of every example. An error does not change the cache.
"""

import hashlib
import inspect
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from jaxtyping import Int64

from tasks.contract import Minimum, SplitName, Task
from tasks.data import cache
from tasks.data.files import File, Source, SourceFiles, decoding, system_errors
from tasks.registry import tasks
from zoo.registry import UserError, in_one_line

Progress = Callable[[str, int, int], None]  # Name of a file, bytes received, bytes in all

RETRIES = 3  # Attempts to download a file after the first, some seconds apart

CHUNK = 1 << 16


class CachedTask(Task):
    @classmethod
    def how_to_get(cls) -> str:
        """The remedy where the data are missing, for a message."""
        return "run the task: its data are generated on first use"

    @property
    def cache_key(self) -> str:
        """The key of the data in the cache: by default the same for all options."""
        return base_key(type(self))

    def is_cached(self) -> bool:
        """Return whether the cache holds the data; they are not read."""
        return cache.find(self.cache_key) is not None

    def arrays(self, fields: Mapping[str, str], prefix: str = "") -> list[np.ndarray]:
        """The arrays `PREFIX_FIELD`, verified; see `cache.read` for `fields`."""
        names = {f"{prefix}_{name}".lstrip("_"): form for name, form in fields.items()}
        return cache.read(self.cache_key, names, self.how_to_get())

    def subset(self, split: SplitName, indices: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " c"]:
        """As many evenly spaced indices of a split as the option of its name says."""
        count, most = getattr(self, split), len(indices)
        if not 1 <= count <= most:
            raise UserError(f"{self.name}.{split}={count} is out of range; give 1 to {most}")
        return indices[np.arange(count) * most // count]


class ImportedTask(CachedTask):
    """A task whose data are made from known files, which a user has or downloads."""

    source: ClassVar[Source]

    @classmethod
    @abstractmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        """The arrays to cache, the same for every form of the files."""
        # `SPLIT_targets` has one item per example of that official split. An error of a decoder
        # means a damaged file.

    @classmethod
    def how_to_get(cls) -> str:
        fetch = f"run 'harness data fetch {cls.name}', or " if cls.source.downloads else "run "
        return (
            f"{fetch}'harness data import {cls.name} PATH' with {cls.source.give}; public "
            f"original: {cls.source.origin}"
        )

    @classmethod
    def import_files(cls, path: Path) -> Path:
        """Verify the files at `path`, convert them, and cache the result; return its path."""
        files = SourceFiles(cls.source, path)
        cache.require_writable()
        with decoding(files):
            arrays = cls.convert(files)
        cls.source.verify(arrays, str(path))
        return cache.write(base_key(cls), arrays)


class GeneratedTask(CachedTask):
    """A task whose data are generated on first use, and cached under all their options."""

    seed: int

    @abstractmethod
    def generate(self, workers: int) -> dict[str, np.ndarray]:
        """The arrays to cache, by that many threads: for the same options always the same."""

    def _require(self, **minima: Minimum) -> None:
        super()._require(**minima)
        if self.seed >= 2**32:
            raise UserError(f"{self.name}.seed={self.seed} must be below 2**32={2**32}; lower it")

    @property
    def cache_key(self) -> str:
        """One for each set of options, and for the code of a plug-in, which may lack versions."""
        module = inspect.getmodule(type(self))
        if module and not module.__name__.startswith("tasks."):
            with suppress(OSError, TypeError):  # without a file, as of a notebook
                digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
                return f"{self.key}-{digest[:16]}"
        return self.key

    def arrays(self, fields: Mapping[str, str], prefix: str = "") -> list[np.ndarray]:
        if not self.is_cached():
            cache.require_writable()
            with cache.one_at_a_time(self.cache_key):
                if not self.is_cached():
                    cache.write(self.cache_key, self.generate(os.cpu_count() or 1))
        return super().arrays(fields, prefix)


class Fetched(NamedTuple):
    path: Path
    terms: str
    present: bool  # The file was in the cache before


class CacheEntry(NamedTuple):
    task: str
    paths: list[Path]  # One for each set of options in use
    how_to_get: str  # Empty if there are files


def base_key(task: type[Task]) -> str:
    return f"{task.name}@{task.version}"


def import_all(task: str, path: Path) -> list[Path]:
    # For a family of tasks, import all that have files at `path`: `uea` for `uea-heartbeat`.
    family = [name for name in tasks.names() if name.startswith(f"{task}-")]
    if not family or task in tasks.names():
        return [find_imported(task, "import").import_files(path)]
    members = [find_imported(name, "import") for name in family]
    found = [member for member in members if SourceFiles(member.source, path).exist()]
    if not found:
        sources = ", ".join(member.source.give for member in members)
        raise UserError(f"{path} has no file of {', '.join(family)}; give {sources}")
    return [member.import_files(path) for member in found]


def find_imported(task: str, action: str) -> type[ImportedTask]:
    factory = tasks.find(task)
    if not issubclass(factory, ImportedTask):
        other, remedy = f"{task}-lra", f"nothing to {action}"
        if other in tasks.names():
            remedy = f"the official files are for {other}"
        raise UserError(f"{task} needs no files from 'harness data'; {remedy}")
    return factory


def fetch_data(
    task: str, progress: Progress, offline: bool = False, timeout: float = 30.0
) -> Fetched:
    # The folder `downloads` of the cache keeps complete files; `offline` uses these alone. A server
    # has `timeout` seconds to send the next bytes.
    factory = find_imported(task, "fetch")
    source, folder = factory.source, cache.data_home() / "downloads"
    if not source.downloads:
        raise UserError(f"{task} has no source that can be verified; {factory.how_to_get()}")
    if cached := cache.find(key := base_key(factory)):
        with suppress(UserError):  # it is damaged
            cache.read(key, {}, "")
            return Fetched(cached, source.terms, present=True)
    for file in source.downloads:
        if not offline:
            download(file, folder, progress, timeout)
        elif not (folder / file.name).exists():
            command = f"run 'harness data fetch {task}' without --offline"
            raise UserError(f"{folder} holds no {file.name}; {command}, or put it there")
    path = folder / source.downloads[0].name if len(source.downloads) == 1 else folder
    return Fetched(factory.import_files(path), source.terms, present=False)


def download(file: File, folder: Path, progress: Progress, timeout: float) -> None:
    import pooch
    import requests

    def stream(url: str, path: str, _: object) -> None:
        # Unencoded bytes: a server may declare the compression of the archive as an encoding.
        headers = {"Accept-Encoding": "identity"}
        with (
            requests.get(url, headers=headers, timeout=timeout, stream=True) as response,
            Path(path).open("wb") as output,
        ):
            response.raise_for_status()
            for content in response.iter_content(CHUNK):
                output.write(content)
                if output.tell() > file.size:
                    raise ValueError(f"more than {file.size} bytes")
                progress(file.name, output.tell(), file.size)

    pooch.get_logger().setLevel(logging.WARNING)
    registry = pooch.Pooch(
        folder, "", {file.name: file.digest}, {file.name: file.url}, retry_if_failed=RETRIES
    )
    with system_errors(file.name, f"stored in {folder}", cache.NO_ROOM):
        try:
            registry.fetch(file.name, downloader=cast(Any, stream))
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno:  # of the folder, not of the server
                raise
            problem = f"{file.url} gave no complete {file.name} ({in_one_line(error)})"
            remedy = "try again later, or import it from another place with 'harness data import'"
            raise UserError(f"{problem}; {remedy}") from error


def status() -> list[CacheEntry]:
    cache.remove_partial()
    cached = [task for _, task in tasks.items() if issubclass(task, CachedTask)]
    paths = {task: cache.find_all(base_key(task)) for task in cached}
    return [CacheEntry(t.name, paths[t], "" if paths[t] else t.how_to_get()) for t in cached]
