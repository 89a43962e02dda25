"""Downloading public archives: verified, resumable, from the first mirror that has them.

An archive is stored in the folder `downloads` of the cache. The bytes received so far are in
`.NAME.partial` next to it, and the next attempt continues from there, from any mirror. The file is
renamed after its size and digest are verified.
"""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tasks.data import cache
from tasks.data.files import Archive, Source
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
    """A data set from a public source.

    Attributes:
        path: its file in the cache.
        terms: its licence, and whom to cite.
        present: whether it was in the cache before.
    """

    path: Path
    terms: str
    present: bool


class _MirrorError(Exception):
    """A mirror did not give the archive."""


def fetch_data(
    task: str, progress: Progress, offline: bool = False, timeout: float = TIMEOUT_SECONDS
) -> Fetched:
    """Download the data of `task` unless they were downloaded before, and import them.

    Args:
        task: name of an imported task.
        progress: called while bytes arrive.
        offline: whether to use only what was downloaded before.
        timeout: how long to wait for the next bytes of a server, in seconds.

    Raises:
        UserError: the task is unknown or has no public source that can be verified, no mirror gives
            it, or it cannot be stored.
    """
    factory = find_imported(task, "fetch")
    source = factory.source()
    if not source.public:
        raise UserError(f"{task} has no source that can be verified; {factory.how_to_get()}")
    cached = cache.find(base_key(factory))
    if cached and cache.is_valid(cached):
        return Fetched(cached, source.terms, present=True)
    folder = cache.data_home() / "downloads"
    names = " or ".join(archive.name for archive in source.public)
    if not offline:
        path = download(source, folder, progress, timeout)
        if path is None:
            raise UserError(
                f"no mirror gave a complete {names}; try again later, or get it from "
                f"{source.origin} and run 'harness data import {task} PATH'"
            )
    elif present := [folder / one.name for one in source.public if (folder / one.name).exists()]:
        path = present[0]
    else:
        raise UserError(
            f"{folder} holds no {names}; run 'harness data fetch {task}' without --offline, "
            "or put it there"
        )
    return Fetched(factory.import_files(path, source), source.terms, present=False)


def download(source: Source, folder: Path, progress: Progress, timeout: float) -> Path | None:
    """A public archive of `source` in `folder`, downloaded unless it is there.

    None where no mirror gives it.

    Raises:
        UserError: `folder` cannot be written, or another process downloads the same archive.
    """
    import filelock

    for archive in source.public:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(folder / f".{archive.name}.lock", timeout=0):
                path = _from_mirrors(archive, folder, progress, timeout)
        except filelock.Timeout as error:
            raise UserError(
                f"{archive.name} is being fetched by another process; wait for it"
            ) from error
        except OSError as error:
            raise UserError(
                f"{folder} cannot store {archive.name} ({error.strerror or error}); make room "
                f"there, or set {cache.HOME_VARIABLE} to another folder"
            ) from error
        if path:
            return path
    return None


def _from_mirrors(
    archive: Archive, folder: Path, progress: Progress, timeout: float
) -> Path | None:
    for url in archive.mirrors:
        downloader = _Downloader(archive, folder / f".{archive.name}.partial", progress, timeout)
        try:
            return _retrieve(url, downloader, folder)
        except _MirrorError as error:
            warnings.warn(f"{url} is skipped: {error}", stacklevel=2)
    return None


def _retrieve(url: str, downloader: "_Downloader", folder: Path) -> Path:
    """The verified archive, which pooch downloads unless it is in `folder`."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    archive, resumed = downloader.archive, downloader.partial.exists()
    function: Any = downloader  # pooch's annotation of a downloader names other arguments
    try:
        path = pooch.retrieve(
            url, archive.digest, fname=archive.name, path=folder, downloader=function
        )
        return Path(path)
    except ValueError as error:  # another digest
        if not resumed:
            raise _MirrorError(first_line(error)) from error
    return _retrieve(url, downloader, folder)  # once more, without the bytes of an earlier attempt


class _Downloader:
    """A downloader for pooch that continues an earlier attempt that was interrupted."""

    def __init__(self, archive: Archive, partial: Path, progress: Progress, timeout: float) -> None:
        """Prepare to download `archive`, whose bytes are collected in `partial`."""
        self.archive, self.partial = archive, partial
        self._progress, self._timeout = progress, timeout

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download `url` to `output_file`.

        Raises:
            _MirrorError: the mirror gives something else, or no new bytes.
            OSError: the file cannot be written.
        """
        import requests

        for attempt in range(1, ATTEMPTS + 1):
            before = self._received()
            try:
                self._continue(url, before)
                self.partial.replace(output_file)
                return
            except requests.RequestException as error:
                received = self._received()
                if attempt == ATTEMPTS or received <= before:
                    raise _MirrorError(
                        f"{self.archive.size} bytes expected, {received} received before "
                        f"{in_one_line(_root_cause(error))}"
                    ) from error

    def _received(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0

    def _continue(self, url: str, received: int) -> None:
        import requests

        size = self.archive.size
        if received == size:
            return
        # Unencoded bytes: a server may declare the archive's own compression as an encoding.
        headers = {"Accept-Encoding": "identity"}
        if received:
            headers["Range"] = f"bytes={received}-"
        with requests.get(url, headers=headers, stream=True, timeout=self._timeout) as response:
            received = self._first_byte(response, received)
            response.raw.headers.pop("Content-Encoding", None)
            with self.partial.open("ab" if received else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    received += len(chunk)
                    if received > size:
                        break
                    file.write(chunk)
                    self._progress(self.archive.name, received, size)
        if received != size:
            self.partial.unlink()
            actual = "more" if received > size else received
            raise _MirrorError(f"{size} bytes expected, {actual} received")

    def _first_byte(self, response: Any, received: int) -> int:
        """The offset at which the response begins; raises _MirrorError where it cannot be used."""
        if response.status_code == 200:
            received = 0
        elif response.status_code != 206:
            status = f"{response.status_code} {response.reason}"
            raise _MirrorError(f"HTTP 200 expected, {status} received")
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {received}-"):
            raise _MirrorError(f"bytes from {received} expected, {dict(response.headers)} received")
        length = response.headers.get("Content-Length")
        if length is not None and length != str(self.archive.size - received):
            raise _MirrorError(f"{self.archive.size - received} bytes expected, {length} received")
        return received


def _root_cause(error: BaseException) -> BaseException:
    """The first error of a chain: libraries wrap the system's error in several of their own."""
    while cause := error.__cause__ or (not error.__suppress_context__ and error.__context__):
        error = cause
    return error
