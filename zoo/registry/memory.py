"""The memory of the machine, which no input may exceed."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from zoo.registry.messages import UserError

GIB = 2**30


@contextmanager
def uncollected() -> Iterator[None]:
    # A collection takes time, and frees memory that is counted.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def allocating(what: str, remedy: str) -> Iterator[None]:
    """Raise an error of allocation inside as a `UserError`: `what` needs more than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not any(word in str(error) for word in ("allocat", "overflow")):
            raise
        raise UserError(f"{what} needs more memory than there is; {remedy}") from error


def require_memory(needed: int, what: str, remedy: str, available: int | None = None) -> None:
    """Reject input that needs more bytes than there are, by default on this machine in all."""
    if available is None:
        import psutil

        available = psutil.virtual_memory().total
    if needed > available:
        raise UserError(f"{what} needs {needed / GIB:.3g} GiB of memory, {available / GIB:.3g} GiB "
                        f"is all; {remedy}")  # fmt: skip
