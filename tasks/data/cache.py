"""The folder where data sets wait, each in one file that carries its own SHA-256 in its name.

`KEY.SHA256.npz` is written beside its final name and then renamed: it is there whole or not at all,
also when two processes write it at once or one is killed; and no damaged file can pass for a good
one. A data set that is written again with other content takes the place of the one before: never is
there none, and where a killed process left both, the newer counts.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path
from threading import get_ident

import numpy as np

from zoo.registry import UserError

HOME_VARIABLE = "HARNESS_DATA"

ATTEMPTS = 10
"""How often a file is looked for that is replaced between being found and being opened."""


def data_home() -> Path:
    """The folder of the cache: `HARNESS_DATA`, else the user's cache folder for this project.

    Raises:
        UserError: `HARNESS_DATA` is a file.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        if os.path.isfile(chosen):  # noqa: PTH113 - Path's raises where a folder may not be searched
            raise UserError(f"{HOME_VARIABLE}={chosen} is a file; set it to a folder")
        return Path(chosen)
    import pooch  # only for the place; it costs a fifth of a second

    return Path(pooch.os_cache("attention-harness"))


def find(key: str) -> Path | None:
    """The file of the data set `key`, unread, or None; of several the newest.

    Raises:
        UserError: the folder cannot be read.
    """
    # A listing that runs while one file takes another's place may miss both; the next has one.
    return max(_editions(key) or _editions(key), key=_written, default=None)


def find_all(name: str) -> list[Path]:
    """The files of every data set whose key is `name`, or `name` with options behind it.

    Raises:
        UserError: the folder cannot be read.
    """
    return _editions(name) + _files(f"{_literally(name)}[[]*].{_DIGEST}.npz")


def read(key: str, names: Iterable[str], remedy: str) -> list[np.ndarray]:
    """The named arrays of the data set `key`, after the whole file has been verified.

    Args:
        key: the data set.
        names: the arrays wanted.
        remedy: what to do to get the data set, for a message.

    Raises:
        UserError: the data set is absent, or its file is damaged.
    """
    for _ in range(ATTEMPTS):
        path = find(key)
        if path is None:
            break
        try:
            with path.open("rb") as file:
                return _arrays(file, path, names, remedy)
        except FileNotFoundError:
            continue  # Another has taken its place.
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); mend its permissions"
            ) from error
    raise UserError(f"{key} is not in {data_home()}; {remedy}")


def require_writable() -> None:
    """See to it that the folder can be written.

    Raises:
        UserError: it cannot: known now, no work is lost for it later.
    """
    folder = data_home()
    try:
        # None is made yet: the work may fail.
        nearest = next(one for one in (folder, *folder.parents) if one.exists())
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); set {HOME_VARIABLE} to one that can"
        ) from error


def write(key: str, arrays: Mapping[str, np.ndarray]) -> Path:
    """Put a data set in the cache, whole or not at all, and return its path.

    Another of the same key goes once this one is there.

    Raises:
        UserError: the folder cannot be written.
        OSError: it does not take the whole file.
    """
    require_writable()
    folder = data_home()
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{key}-{os.getpid()}-{get_ident()}.partial"
    try:
        with partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        return _place(partial, key)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def is_whole(path: Path) -> bool:
    """Whether a file of the cache holds what its name says; not so where it cannot be read."""
    try:
        return digest(path) == _told(path)
    except OSError:
        return False


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _arrays(
    file: BufferedReader, path: Path, names: Iterable[str], remedy: str
) -> list[np.ndarray]:
    """The named arrays of the open file of `path`, which is verified first."""
    expected = _told(path)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    if found != expected:
        raise UserError(
            f"{path} is damaged: its SHA-256 is {found}, its name says {expected}; "
            f"delete it, then {remedy}"
        )
    with np.load(file, allow_pickle=False) as arrays:
        return [arrays[name] for name in names]


def _place(partial: Path, key: str) -> Path:
    """Give a whole file its final name, and remove the other files of its key."""
    place = partial.with_name(f"{key}.{digest(partial)}.npz")
    if not set(_editions(key)) - {place}:
        return partial.replace(place)
    import filelock

    # One process at a time: two that replaced each other's file would leave none.
    with filelock.FileLock(partial.with_name(f".{key}.lock")):
        partial.replace(place)
        for other in set(_editions(key)) - {place}:
            # A system may keep a file that is being read: then the newer counts.
            with suppress(OSError):
                other.unlink()
    return place


def _told(path: Path) -> str:
    """The SHA-256 that a file of the cache has by its name."""
    return path.name.split(".")[-2]


def _editions(key: str) -> list[Path]:
    return _files(f"{_literally(key)}.{_DIGEST}.npz")


def _written(path: Path) -> int:
    """When a file was written, in nanoseconds; 0 where it has gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


_DIGEST = "[0-9a-f]" * 64


def _literally(name: str) -> str:
    # glob.escape does the same, but also splits drive letters off.
    return name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")


def _files(pattern: str) -> list[Path]:
    folder = data_home()
    try:
        return sorted(one for one in folder.iterdir() if fnmatchcase(one.name, pattern))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read ({error.strerror}); set {HOME_VARIABLE} to a folder that can"
        ) from error
