"""The cache folder of data sets: an NPZ file each, complete or absent, named by its key.

A file is written under a temporary name and then renamed: two processes may write it at once, and
one may be killed. The checksums of its arrays are verified before they are used.
"""

import os
import re
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import numpy as np
from jaxtyping import Shaped, jaxtyped

from tasks.data.files import decoding, require_regular, system_errors
from zoo.registry import UserError

HOME_VARIABLE = "HARNESS_DATA"

NO_ROOM = f"make room there, or set {HOME_VARIABLE} to another folder"

# Seconds that a process waits for another one that computes the same data set.
LOCK_TIMEOUT = 3600.0


def data_home() -> Path:
    if chosen := os.environ.get(HOME_VARIABLE):
        if os.path.isfile(chosen):  # noqa: PTH113 - Path's raises in a folder without permission
            raise UserError(f"{HOME_VARIABLE}={chosen} is a file; set it to a folder")
        return Path(chosen)
    import pooch  # only for the default location; it takes a fifth of a second

    return Path(pooch.os_cache("attention-harness"))


def find(key: str) -> Path | None:
    path = data_home() / f"{key}.npz"
    return path if os.path.exists(path) else None  # noqa: PTH110 - see `data_home`


def find_all(name: str) -> list[Path]:
    folder = data_home()
    pattern = re.compile(rf"{re.escape(name)}(\[.*\])?(-[0-9a-f]{{16}})?\.npz")
    with system_errors(folder, "read", f"set {HOME_VARIABLE} to a folder that can"):
        found = folder.iterdir() if folder.exists() else ()
        return sorted(path for path in found if pattern.fullmatch(path.name))


def read(key: str, arrays: Mapping[str, str], how_to_get: str) -> list[np.ndarray]:
    # `arrays` gives the type and shape of each array, as `"uint8 n 1024"`; a letter is the same
    # number in all of them. `how_to_get` is the remedy of every error.
    remove_partial()
    path = data_home() / f"{key}.npz"
    require_regular(path)
    remedy = f"delete it, then {how_to_get}"
    with decoding(path, remedy, "change its permissions"):
        if not path.exists():
            raise UserError(f"{key} is not in {data_home()}; {how_to_get}")
        with path.open("rb") as file:
            # All checksums first: a damaged header of an array may hide the end of its numbers.
            if damaged := zipfile.ZipFile(file).testzip():
                raise ValueError(f"checksum of {damaged}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                stored = {name: content[name] for name in arrays if name in content}
    with jaxtyped("context"):  # a letter is the same number in all arrays
        for name, form in arrays.items():
            dtype, _, shape = form.partition(" ")
            of_shape, found = cast(Any, Shaped[np.ndarray, shape]), "missing"
            if (array := stored.get(name)) is not None:
                if isinstance(array, of_shape) and array.dtype.name.startswith(dtype):
                    continue
                found = f"{array.dtype.name} {array.shape}, {form!r} expected"
            raise UserError(f"{path} was not written by this version: {name} is {found}; {remedy}")
    return [*stored.values()]


def require_writable() -> None:
    folder = data_home()
    with system_errors(folder, "written", f"set {HOME_VARIABLE} to one that can"):
        # The folder is not created yet: the work may fail.
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        tempfile.TemporaryFile(dir=nearest).close()


def write(key: str, arrays: Mapping[str, np.ndarray]) -> Path:
    folder = data_home()
    partial = folder / f".{key}-{uuid4().hex}.partial"
    with system_errors(key, f"written to {folder}", NO_ROOM), ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial()
        stack.callback(partial.unlink, missing_ok=True)
        with partial.open("xb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        return partial.replace(folder / f"{key}.npz")


@contextmanager
def one_at_a_time(key: str) -> Iterator[None]:
    # Without locks of the folder, or after `LOCK_TIMEOUT`, both processes compute the data.
    import filelock

    with ExitStack() as stack:
        with suppress(OSError, NotImplementedError):  # a timeout is an OSError
            data_home().mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(data_home() / f".{key}.computing.lock", timeout=LOCK_TIMEOUT)
            stack.enter_context(lock)
        yield


def remove_partial() -> None:
    # Files of killed processes: not written for an hour.
    with suppress(OSError):
        for path in data_home().glob(".*.partial"):
            if time.time() - path.stat().st_mtime > LOCK_TIMEOUT:
                path.unlink(missing_ok=True)
