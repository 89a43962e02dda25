"""The command line: `main` is the entry point, each command is a module of this package."""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import NoReturn

from harness.cli.progress import Lines, clear_line
from harness.interrupts import Interrupts, Terminated


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 on success, 1 if a run or a check failed, 2 on bad input."""

    def command() -> int:
        # Imported here: an interrupt during the imports is one line on stderr, too.
        from harness.cli.commands import app
        from harness.cli.process import invoke

        return invoke(app, "harness", sys.argv[1:] if argv is None else argv)

    execute(command)


def execute(command: Callable[[], int]) -> NoReturn:
    """Run `command` and exit with the code that it returns, or with one line on stderr.

    Bad input has exit code 2, an interrupt 130, SIGTERM 143; a plug-in or a library that tries to
    end the process has 1.
    """
    # Otherwise the profiler that measures allocations writes messages to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    # A notebook names a backend that may not be installed here.
    os.environ["MPLBACKEND"] = "agg"
    try:
        with Interrupts(), warnings.catch_warnings(), _lines():
            warnings.showwarning = _show_once()
            code, message = _outcome(command)
    except KeyboardInterrupt as error:
        code, what = (143, "terminated") if isinstance(error, Terminated) else (130, "interrupted")
        notes = dict.fromkeys(getattr(error, "__notes__", ()))
        message = "; ".join([f"harness: {what}", *notes])
    if message:
        _print_error(message)
    sys.exit(code)


def _outcome(command: Callable[[], int]) -> tuple[int, str]:
    from zoo.registry import UserError, in_one_line, printable

    if sys.stdout is None:
        return 2, "harness: standard output is closed; redirect it, for example to /dev/null"
    try:
        code = command()
        sys.stdout.flush()
        return code, ""
    except UserError as error:
        return 2, f"harness: {printable(str(error))}"
    except BrokenPipeError:
        return 1, ""
    except OSError as error:
        if error.filename is not None:
            path = printable(os.fsdecode(error.filename))
            return 2, f"harness: {path} cannot be used ({error.strerror}); give another path"
        reason = _output_error("\n") or printable(in_one_line(error))
        return 1, f"harness: {reason}"
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # A plug-in that calls `sys.exit(0)` has not succeeded.
        text = printable(in_one_line(error))
        return 1, f"harness: a plug-in or library ended the command ({text})"
    finally:
        _output_error()


def _output_error(text: str = "") -> str:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Otherwise the flush at exit fails as well.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"standard output cannot be written ({error.strerror})"
    return ""


@contextmanager
def _lines() -> Iterator[None]:
    logger, handler = logging.getLogger("harness"), Lines()
    level, is_terminal = logger.level, sys.stdout is not None and sys.stdout.isatty()
    logger.setLevel(logging.DEBUG if is_terminal else logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _show_once() -> Callable[..., None]:
    print_once = cache(_print_error)

    def show(message: Warning | str, *_: object) -> None:
        from zoo.registry import printable

        print_once(f"harness: warning: {printable(' '.join(str(message).split()))}")

    return show


def _print_error(line: str) -> None:
    if sys.stderr is None:  # closed
        return
    with suppress(OSError):
        sys.stderr.write(f"{clear_line(sys.stderr)}{line}\n")
        sys.stderr.flush()
