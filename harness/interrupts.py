"""Ctrl-C and SIGTERM, which during training wait until the state is consistent."""

import signal
import threading
from types import FrameType
from typing import Any

EXIT_INTERRUPTED, EXIT_TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes of a process that a signal ended, as a shell reports them."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived.

    Code that lets an interrupt pass lets this pass as well, for example `zoo.conformance.run`.
    """


class Interrupts:
    """As a context: SIGINT raises KeyboardInterrupt, SIGTERM raises Terminated.

    While `deferred` is true, the first signal is only noted in `pending`; the second one raises.
    Outside the main thread, and for signals that the process ignores, nothing changes.
    """

    def __init__(self) -> None:
        """Handle nothing yet."""
        self.deferred = False
        self.pending: BaseException | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        """Install the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the former handlers."""
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    def raise_pending(self) -> None:
        """Raise what was deferred, if anything was."""
        if self.pending:
            raise self.pending

    def _handle(self, number: int, frame: FrameType | None) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else Terminated()
        if not self.deferred or self.pending:
            raise error
        self.pending = error
