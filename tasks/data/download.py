"""Downloading public archives: verified, resumable, from the first mirror that has them.

An archive, or each file of a set without one, is stored in the folder `downloads` of the cache. The
bytes received so far are in `.NAME.partial` next to it, and the next attempt continues from there,
from any mirror. The file is renamed after its size and digest are verified.
"""

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tasks.data import cache
from tasks.data.files import File
from tasks.data.sources import base_key, find_imported
from zoo.registry import UserError, first_line, in_one_line

TIMEOUT_SECONDS = 30.0
"""How long to wait for the next bytes of a server."""

ATTEMPTS = 5
"""Connections to one mirror, as long as each of them brings new bytes."""

CHUNK = 1 << 16

Progress = Callable[[str, int, int], None]
"""Called with the archive's name, the bytes received, and the bytes in all."""


class Fetched(NamedTuple):
    """A data set's file in the cache, its licence, and whether it was in the cache before."""

    path: Path
    terms: str
    present: bool


class _MirrorError(Exception):
    """A mirror did not give the archive."""


def fetch_data(
    task: str, progress: Progress, offline: bool = False, timeout: float = TIMEOUT_SECONDS
) -> Fetched:
    """Download the data of the imported task `task`, and import them.

    What was downloaded before is used; with `offline`, nothing else. `progress` is called while
    bytes arrive; `timeout` is how long to wait for the next bytes of a server, in seconds.

    Raises:
        UserError: the task is unknown or has no public source that can be verified, no mirror gives
            it, or it cannot be stored.
    """
    factory = find_imported(task, "fetch")
    source = factory.source()
    if not source.downloads:
        raise UserError(f"{task} has no source that can be verified; {factory.how_to_get()}")
    cached = cache.find(base_key(factory))
    if cached and cache.is_valid(cached):
        return Fetched(cached, source.terms, present=True)
    folder = cache.data_home() / "downloads"
    for file in source.downloads:
        if offline and not (folder / file.name).exists():
            raise UserError(
                f"{folder} holds no {file.name}; run 'harness data fetch {task}' without "
                "--offline, or put it there"
            )
        if not offline and not download(file, folder, progress, timeout):
            raise UserError(
                f"no mirror gave a complete {file.name}; try again later, or get it from "
                f"{source.origin} and run 'harness data import {task} PATH'"
            )
    path = folder / source.downloads[0].name if source.public else folder
    return Fetched(factory.import_files(path, source), source.terms, present=False)


def download(archive: File, folder: Path, progress: Progress, timeout: float) -> bool:
    """Download `archive` to `folder` unless it is there; return False where no mirror gives it.

    Raises:
        UserError: `folder` cannot be written, or another process downloads the same archive.
    """
    import filelock

    transfer = _Transfer(archive, folder, progress, timeout)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f".{archive.name}.lock", timeout=0):
            for url in archive.mirrors:
                try:
                    transfer.retrieve(url)
                    return True
                except _MirrorError as error:
                    warnings.warn(f"{url} is skipped: {error}", stacklevel=2)
    except filelock.Timeout as error:
        raise UserError(
            f"{archive.name} is being fetched by another process; wait for it"
        ) from error
    except OSError as error:
        raise UserError(
            f"{folder} cannot store {archive.name} ({error.strerror or error}); make room there, "
            f"or set {cache.HOME_VARIABLE} to another folder"
        ) from error
    return False


@dataclass
class _Transfer:
    """Downloads an archive with pooch, continuing an earlier attempt that was interrupted."""

    archive: File
    folder: Path
    progress: Progress
    timeout: float

    def __post_init__(self) -> None:
        self.partial = self.folder / f".{self.archive.name}.partial"

    @property
    def received(self) -> int:
        """Number of bytes received so far."""
        return self.partial.stat().st_size if self.partial.exists() else 0

    def retrieve(self, url: str) -> None:
        """Verify the archive in the folder; download it from `url` where it is missing or damaged.

        Raises:
            _MirrorError: the mirror gives something else, or no new bytes.
            OSError: the file cannot be written.
        """
        import pooch

        pooch.get_logger().setLevel(logging.WARNING)
        resumed = self.partial.exists()
        downloader: Any = self._download  # pooch's annotation names other arguments
        try:
            pooch.retrieve(
                url, self.archive.digest, self.archive.name, self.folder, downloader=downloader
            )
        except ValueError as error:  # another digest
            if not resumed:
                raise _MirrorError(first_line(error)) from error
            self.retrieve(url)  # once more, without the bytes of an earlier attempt

    def _download(self, url: str, output_file: str, pooch: Any) -> None:
        import requests

        for attempt in range(1, ATTEMPTS + 1):
            before = self.received
            try:
                self._continue(url)
                break
            except requests.RequestException as error:
                if attempt == ATTEMPTS or self.received <= before:
                    raise _MirrorError(
                        f"{self.archive.size} bytes expected, {self.received} received before "
                        f"{in_one_line(_root_cause(error))}"
                    ) from error
        self.partial.replace(output_file)

    def _continue(self, url: str) -> None:
        import requests

        size, received = self.archive.size, self.received
        if received == size:
            return
        # Unencoded bytes: a server may declare the archive's own compression as an encoding.
        headers = {"Accept-Encoding": "identity"}
        if received:
            headers["Range"] = f"bytes={received}-"
        with requests.get(url, headers=headers, stream=True, timeout=self.timeout) as response:
            received = self._first_byte(response)
            response.raw.headers.pop("Content-Encoding", None)
            with self.partial.open("ab" if received else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    received += len(chunk)
                    if received > size:
                        break
                    file.write(chunk)
                    self.progress(self.archive.name, received, size)
        if received != size:
            self.partial.unlink()
            actual = "more" if received > size else received
            raise _MirrorError(f"{size} bytes expected, {actual} received")

    def _first_byte(self, response: Any) -> int:
        """The offset at which the response begins; raises _MirrorError where it cannot be used."""
        first = {200: 0, 206: self.received}.get(response.status_code)
        if first is None:
            status = f"{response.status_code} {response.reason}"
            raise _MirrorError(f"HTTP 200 expected, {status} received")
        if first and not response.headers.get("Content-Range", "").startswith(f"bytes {first}-"):
            raise _MirrorError(f"bytes from {first} expected, {dict(response.headers)} received")
        length = response.headers.get("Content-Length")
        if length is not None and length != str(self.archive.size - first):
            raise _MirrorError(f"{self.archive.size - first} bytes expected, {length} received")
        return first


def _root_cause(error: BaseException) -> BaseException:
    """The first error of a chain: libraries wrap the system's error in several of their own."""
    while cause := error.__cause__ or (not error.__suppress_context__ and error.__context__):
        error = cause
    return error
