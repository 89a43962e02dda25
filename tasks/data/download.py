"""Downloading public files with pooch: verified, of a known size, complete or absent.

A file is stored in the folder `downloads` of the cache, under a temporary name until its digest is
verified.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from tasks.data import cache
from tasks.data.files import File, system_errors
from tasks.data.sources import base_key, find_imported
from zoo.registry import UserError, in_one_line

RETRIES = 3
"""Attempts after the first, some seconds apart."""

CHUNK = 1 << 16

Progress = Callable[[str, int, int], None]
"""Called with the name of a file, the bytes received, and the bytes in all."""


class Fetched(NamedTuple):
    """A data set's file in the cache, its licence, and whether it was in the cache before."""

    path: Path
    terms: str
    present: bool


def fetch_data(
    task: str, progress: Progress, offline: bool = False, timeout: float = 30.0
) -> Fetched:
    """Download the data of the imported task `task`, and import them.

    What was downloaded before is used; with `offline`, nothing else. `timeout` is how long to wait
    for the next bytes of a server, in seconds.
    """
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
            raise UserError(
                f"{folder} holds no {file.name}; run 'harness data fetch {task}' without "
                "--offline, or put it there"
            )
    path = folder / source.downloads[0].name if len(source.downloads) == 1 else folder
    return Fetched(factory.import_files(path), source.terms, present=False)


def download(file: File, folder: Path, progress: Progress, timeout: float) -> None:
    """Download `file` to `folder` unless it is there, in `timeout` seconds for each part."""
    import pooch
    import requests

    def stream(url: str, path: str, _: object) -> None:
        # Unencoded bytes: a server may declare the compression of the archive as an encoding.
        headers, received = {"Accept-Encoding": "identity"}, 0
        with requests.get(url, headers=headers, stream=True, timeout=timeout) as response:
            response.raise_for_status()
            with Path(path).open("wb") as output:
                for chunk in response.iter_content(CHUNK):
                    received += len(chunk)
                    if received > file.size:
                        raise ValueError(f"more than {file.size} bytes")
                    output.write(chunk)
                    progress(file.name, received, file.size)

    pooch.get_logger().setLevel(logging.WARNING)
    registry = pooch.Pooch(
        folder, "", {file.name: file.digest}, {file.name: file.url}, retry_if_failed=RETRIES
    )
    with system_errors(file.name, f"stored in {folder}", cache.NO_ROOM):
        try:
            registry.fetch(file.name, downloader=cast(Any, stream))
        except (ValueError, requests.RequestException) as error:
            raise UserError(
                f"{file.url} gave no complete {file.name} ({in_one_line(error)}); try again later, "
                "or import it from another place with 'harness data import'"
            ) from error
