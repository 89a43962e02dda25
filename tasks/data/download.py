"""Downloading public archives: verified, resumable, from the first mirror that gives them whole.

An archive waits in the folder `downloads` of the cache. What has come of it so far stands beside it
as `.NAME.partial`, and the next attempt goes on from there, at whichever mirror. It takes its final
name when its size and its digest are right, and not before.
"""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tasks.data import cache
from tasks.data.files import Archive, Source
from tasks.data.sources import imported, versioned
from zoo.registry import UserError, first_line, in_one_line

TIMEOUT_SECONDS = 30.0
"""Longest silence of a server that is borne."""

ATTEMPTS = 5
"""How often one mirror may be cut off and go on, as long as something comes each time."""

CHUNK = 1 << 16

Watch = Callable[[str, int, int], None]
"""Told of progress: the archive's name, the bytes that have come, the bytes that there are."""


class Fetched(NamedTuple):
    """A data set from a public source.

    Attributes:
        path: its place in the cache.
        terms: those of its use.
        present: whether it was there before.
    """

    path: Path
    terms: str
    present: bool


class _Faulty(Exception):
    """A mirror gave something else than the archive."""


def fetch_data(
    task: str, watch: Watch, offline: bool = False, timeout: float = TIMEOUT_SECONDS
) -> Fetched:
    """Download the data of `task` unless that was done before, and import them unless they were.

    Args:
        task: name of an imported task.
        watch: told of progress.
        offline: whether to use only what was downloaded before.
        timeout: longest silence of a server, in seconds.

    Raises:
        UserError: the task is unknown or has no public source that can be verified, no mirror gives
            it whole, or it cannot be kept.
    """
    found = imported(task, "fetch")
    source = found.source()
    if not source.public:
        raise UserError(f"{task} has no source that can be verified; {found.remedy()}")
    held = cache.find(versioned(found))
    if held and cache.is_whole(held):
        return Fetched(held, source.terms, present=True)
    folder = cache.data_home() / "downloads"
    if not offline:
        archive = download(source, folder, watch, timeout)
        if archive is None:
            raise UserError(
                f"no mirror gave {source.names} whole; try again later, or get it from "
                f"{source.origin} and run 'harness data import {task} PATH'"
            )
    elif present := [folder / one.name for one in source.public if (folder / one.name).exists()]:
        archive = present[0]
    else:
        raise UserError(
            f"{folder} holds no {source.names}; run 'harness data fetch {task}' without --offline, "
            "or put it there"
        )
    return Fetched(found.bring(archive, source), source.terms, present=False)


def download(source: Source, folder: Path, watch: Watch, timeout: float) -> Path | None:
    """A public archive of `source` in `folder`: one that is there, or the first that comes whole.

    None where no mirror gives one.

    Raises:
        UserError: `folder` cannot take it, or another process is at it.
    """
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f".{source.public[0].name}.lock", timeout=0):
            return _first_whole(source, folder, watch, timeout)
    except filelock.Timeout as error:
        raise UserError(
            f"{source.names} is being fetched by another process; wait for it"
        ) from error
    except OSError as error:
        raise UserError(
            f"{folder} cannot take {source.names} ({error.strerror or error}); make room there, or "
            f"set {cache.HOME_VARIABLE} to another folder"
        ) from error


def _first_whole(source: Source, folder: Path, watch: Watch, timeout: float) -> Path | None:
    # One that was downloaded before comes first: unless it is damaged, nobody is asked.
    for archive in sorted(source.public, key=lambda one: not (folder / one.name).exists()):
        for url in archive.mirrors:
            try:
                return _retrieve(url, _Resuming(archive, folder, watch, timeout))
            except _Faulty as fault:
                warnings.warn(f"{url} is passed over: {fault}", stacklevel=2)
    return None


class _Resuming:
    """A downloader for pooch, which goes on where an earlier attempt was cut off."""

    def __init__(self, archive: Archive, folder: Path, watch: Watch, timeout: float) -> None:
        """Bring `archive` to `folder`; what has come of it is kept there, too."""
        self.archive, self.folder = archive, folder
        self.partial = folder / f".{archive.name}.partial"
        self._watch, self._timeout = watch, timeout

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Put what `url` gives into `output_file`, if it has the right size.

        Raises:
            _Faulty: the mirror gives something else, or is cut off without getting on.
            OSError: the file cannot be written.
        """
        import requests

        for attempt in range(1, ATTEMPTS + 1):
            before = _size(self.partial)
            try:
                self._go_on(url, before)
                self.partial.replace(output_file)
                return
            except requests.RequestException as error:
                now = _size(self.partial)
                if attempt == ATTEMPTS or now <= before:
                    raise _Faulty(
                        f"{self.archive.size} bytes expected, {now} found before "
                        f"{in_one_line(_root(error))}"
                    ) from error

    def _go_on(self, url: str, have: int) -> None:
        import requests

        size = self.archive.size
        if have == size:
            return
        # Bytes as they are: a server may take the archive's own compression for the transfer's.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=self._timeout) as response:
            have = self._agree(response, have)
            response.raw.headers.pop("Content-Encoding", None)
            with self.partial.open("ab" if have else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    have += len(chunk)
                    if have > size:
                        break
                    file.write(chunk)
                    self._watch(self.archive.name, have, size)
        if have != size:
            self.partial.unlink()
            raise _Faulty(f"{size} bytes expected, {'more' if have > size else have} found")

    def _agree(self, response: Any, have: int) -> int:
        """How many bytes the answer goes on from; refuse one that cannot lead to the archive."""
        if response.status_code == 200:
            have = 0
        elif response.status_code != 206:
            raise _Faulty(f"HTTP 200 expected, {response.status_code} {response.reason} found")
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise _Faulty(f"bytes from {have} expected, {dict(response.headers)} found")
        told = response.headers.get("Content-Length")
        if told is not None and told != str(self.archive.size - have):
            raise _Faulty(f"{self.archive.size - have} bytes expected, {told} found")
        return have


def _retrieve(url: str, downloader: _Resuming) -> Path:
    """The verified archive; one that has been there, too."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    resumed = downloader.partial.exists()
    archive = downloader.archive
    bring: Any = downloader  # pooch's own annotation of a downloader names other arguments
    try:
        return Path(
            pooch.retrieve(
                url,
                known_hash=archive.digest,
                fname=archive.name,
                path=downloader.folder,
                downloader=bring,
            )
        )
    except ValueError as error:
        if not resumed:
            raise _Faulty(first_line(error)) from error
    # What had come before may have spoiled it.
    return _retrieve(url, downloader)


def _root(error: BaseException) -> BaseException:
    """What an error goes back to: libraries wrap the system's word in several of their own."""
    while deeper := error.__cause__ or (not error.__suppress_context__ and error.__context__):
        error = deeper
    return error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
