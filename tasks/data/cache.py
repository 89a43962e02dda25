"""The cache folder of data sets, each a file whose name contains its SHA-256.

`KEY.SHA256.npz` is written under a temporary name and then renamed: it is complete or absent, also
when two processes write it at once or one is killed, and a damaged file is recognised. A data set
that is written again with other content replaces the one before; where a killed process left both,
the newer is used.
"""

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from jaxtyping import Shaped, jaxtyped

from tasks.data.files import require_regular
from zoo.registry import UserError

HOME_VARIABLE = "HARNESS_DATA"

LOCK_TIMEOUT = 3600.0
"""Seconds that a process waits for another one that computes the same data set."""


def data_home() -> Path:
    """The cache folder: `HARNESS_DATA`, else the user's cache folder for this project.

    Raises:
        UserError: `HARNESS_DATA` is a file.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        if os.path.isfile(chosen):  # noqa: PTH113 - Path's raises in a folder without permission
            raise UserError(f"{HOME_VARIABLE}={chosen} is a file; set it to a folder")
        return Path(chosen)
    import pooch  # only for the default location; it takes a fifth of a second

    return Path(pooch.os_cache("attention-harness"))


def find(key: str) -> Path | None:
    """The file of the data set `key`, unread, or None; the newest of several.

    Raises:
        UserError: the folder cannot be read.
    """
    # A listing that runs while one file replaces another may miss both; the next has one of them.
    return max(find_all(key, "") or find_all(key, ""), key=_age, default=None)


def find_all(name: str, options: str = r"(\[.*\])?(-[0-9a-f]{16})?") -> list[Path]:
    """The files of the data sets whose key is `name`, and then matches `options`: by default any.

    Raises:
        UserError: the folder cannot be read.
    """
    folder = data_home()
    pattern = re.compile(rf"{re.escape(name)}{options}\.[0-9a-f]{{64}}\.npz")
    try:
        return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read ({error.strerror}); set {HOME_VARIABLE} to a folder that can"
        ) from error


def read(key: str, arrays: Mapping[str, str], how_to_get: str) -> list[np.ndarray]:
    """Arrays of the data set `key`, after the whole file has been verified.

    Args:
        key: the data set.
        arrays: the type and shape of each array by name, as in `"uint8 n 1024"`; a letter is the
            same number in all of them.
        how_to_get: the remedy of every error.

    Raises:
        UserError: the data set is absent, damaged, or has other arrays.
    """
    remove_partial()
    while path := find(key):
        require_regular(path)
        try:
            with path.open("rb") as file:
                return _verified(file, path, arrays, how_to_get)
        except FileNotFoundError:
            if path.is_symlink():
                break
            continue  # another process has replaced it
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); change its permissions"
            ) from error
    raise UserError(f"{key} is not in {data_home()}; {how_to_get}")


def require_writable() -> None:
    """Raise UserError where the folder cannot be written, before work is done for it."""
    folder = data_home()
    try:
        # The folder is not created yet: the work may fail.
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); set {HOME_VARIABLE} to one that can"
        ) from error


def write(key: str, arrays: Mapping[str, np.ndarray]) -> Path:
    """Put a data set in the cache, replacing another of the same key, and return its path.

    Raises:
        UserError: the folder cannot be written, or the file cannot be written completely.
    """
    require_writable()
    folder = data_home()
    partial = folder / f".{key}-{uuid4().hex}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial()
        with partial.open("xb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        return _rename(partial, key)
    except OSError as error:
        raise UserError(
            f"{key} cannot be written to {folder} ({error.strerror or error}); make room there, "
            f"or set {HOME_VARIABLE} to another folder"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def one_at_a_time(key: str) -> Iterator[None]:
    """Wait while another process computes the data set `key`: afterwards it may be in the cache.

    Only time depends on it: without locks of the folder, or after `LOCK_TIMEOUT`, both compute.
    """
    import filelock

    with ExitStack() as stack:
        with suppress(OSError, NotImplementedError):  # a timeout is an OSError
            data_home().mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(data_home() / f".{key}.computing.lock", timeout=LOCK_TIMEOUT)
            stack.enter_context(lock)
        yield


def remove_partial() -> None:
    """Remove temporary files that killed processes have left: those not written for an hour."""
    with suppress(OSError):
        for path in data_home().glob(".*.partial"):
            if time.time() - path.stat().st_mtime > LOCK_TIMEOUT:
                path.unlink(missing_ok=True)


def is_valid(path: Path) -> bool:
    """Return whether a file of the cache has the digest of its name; False if unreadable."""
    try:
        return path.is_file() and digest(path) == _digest_of(path)
    except OSError:
        return False


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verified(
    file: BufferedReader, path: Path, arrays: Mapping[str, str], how_to_get: str
) -> list[np.ndarray]:
    actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != _digest_of(path):
        raise UserError(
            f"{path} is damaged: its SHA-256 is {actual}, its name says {_digest_of(path)}; "
            f"delete it, then {how_to_get}"
        )
    file.seek(0)
    stored: dict[str, np.ndarray] = {}
    try:
        with np.load(file, allow_pickle=False) as content:
            stored = {name: content[name] for name in arrays if name in content}
        problem = _difference(stored, arrays)
    except Exception as error:  # decoders of damaged files raise errors of a dozen types
        if isinstance(error, OSError) and error.errno:  # raised by the system, not a decoder
            raise
        problem = "it is not an NPZ file"
    if problem:
        raise UserError(
            f"{path} was not written by this version: {problem}; delete it, then {how_to_get}"
        )
    return list(stored.values())


def _difference(stored: Mapping[str, np.ndarray], expected: Mapping[str, str]) -> str:
    """The first array that is not as expected, for a message; empty where there is none."""
    with jaxtyped("context"):  # a letter is the same number in all arrays
        for name, specification in expected.items():
            if name not in stored:
                return f"{name} is missing"
            array = stored[name]
            dtype, _, shape = specification.partition(" ")
            of_shape: Any = Shaped[np.ndarray, shape]
            if not (isinstance(array, of_shape) and array.dtype.name.startswith(dtype)):
                return f"{name} is {array.dtype.name} {array.shape}, {specification!r} expected"
    return ""


def _rename(partial: Path, key: str) -> Path:
    """Give a complete file its final name, and remove the older files of its key."""
    final = partial.with_name(f"{key}.{digest(partial)}.npz")
    others = set(find_all(key, "")) - {final}
    newest = max((_age(other)[0] for other in others), default=0)
    if _age(partial)[0] <= newest:  # by a coarse clock
        os.utime(partial, ns=(newest + 1, newest + 1))
    partial.replace(final)
    # Of several processes at once, none removes the newest file.
    for other in set(find_all(key, "")) - {final}:
        if _age(other) < _age(final):
            with suppress(OSError):  # a system may not delete a file that is being read
                other.unlink()
    return final


def _digest_of(path: Path) -> str:
    return path.name.split(".")[-2]


def _age(path: Path) -> tuple[int, str]:
    """The time at which a file was written, in nanoseconds, and its name; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns, path.name
    except OSError:
        return 0, path.name
