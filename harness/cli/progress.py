"""The log of a command: lines, and at a terminal one line that is updated below them.

A record with an attribute `bar` is a part of that line, by the name that the attribute has; an
empty message removes it. In a file or a pipe such a record is a line like others, from INFO on.
"""

import logging
import shutil
import sys
from contextlib import suppress
from typing import Any

CLEAR = "\r\x1b[K"  # Return to the first column, and delete the line


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        from zoo.registry import printable

        stream = sys.stderr if record.levelno >= logging.ERROR else sys.stdout
        lines = [*map(printable, record.getMessage().split("\n"))]
        # Output that cannot be written fails the command at its end, not the run.
        with suppress(OSError, UnicodeError):
            if (name := getattr(record, "bar", "")) and sys.stdout.isatty():
                self.parts[name] = lines[0]
            elif record.levelno >= logging.INFO:
                sys.stdout.write(CLEAR * bool(self.parts))
                stream.write("".join(f"{line}\n" for line in lines))
                stream.flush()
            self._draw()
            sys.stdout.flush()

    def _draw(self) -> None:
        if self.parts:
            self.parts = {name: part for name, part in sorted(self.parts.items()) if part}
            text = " | ".join(self.parts.values())
            sys.stdout.write(CLEAR + text[: shutil.get_terminal_size().columns - 1])


def clear_line(stream: Any) -> str:
    """The characters before a line that another part of the program prints."""
    return CLEAR * stream.isatty()
