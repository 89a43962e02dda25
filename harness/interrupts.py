"""Ctrl-C and SIGTERM, which during training wait until the state is consistent."""

import _thread
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType
from typing import Any

SECONDS_PER_IMPORT = 0.02  # Seconds between attempts to raise a signal


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


class Interrupts:
    """A context manager: inside, SIGINT raises KeyboardInterrupt, SIGTERM raises Terminated.

    If `deferred`, the first signal is stored in `pending`, and the second one raises. Imports and
    pydantic would lose the error, which is raised after them. Ignored signals stay ignored, and
    other threads than the main one install no handler.
    """

    def __init__(self) -> None:
        self.deferred = False
        self.pending: BaseException | None = None
        self._postponed: BaseException | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        error, self._postponed = self._postponed, None
        if error:
            raise error

    def raise_pending(self) -> None:
        if self.pending:
            raise self.pending

    def _handle(self, number: int, frame: FrameType | None) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else Terminated()
        if self.deferred and not self.pending:
            self.pending = error
        elif loses_errors(frame) and not self._postponed:
            self._postponed = error
            # Not a thread of `threading`, whose lock the interrupted code may hold.
            _thread.start_new_thread(self._repeat, (number,))
        else:
            raise error

    def _repeat(self, number: int) -> None:
        time.sleep(SECONDS_PER_IMPORT)
        if self._postponed:
            self._postponed = None
            _thread.interrupt_main(signal.Signals(number))


def loses_errors(frame: FrameType | None) -> bool:
    return any(
        caller.f_code.co_filename.startswith("<frozen importlib")
        or caller.f_globals.get("__name__", "").startswith("pydantic.")
        for caller, _ in (walk_stack(frame) if frame else ())
    )


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    # Processes started inside ignore it for good.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def continued(*, by_same_command: bool = True) -> Iterator[None]:
    # Tells the user of an interrupt that rerunning the command resumes.
    try:
        yield
    except KeyboardInterrupt as error:
        if by_same_command:
            error.add_note("the same command continues")
        raise


def ending(exit_code: int) -> str:
    if exit_code < 0:
        return f"it was ended by {signal.Signals(-exit_code).name}"
    return f"it exited with code {exit_code}"
