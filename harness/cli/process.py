"""A command as a process: signals, warnings, messages of one line, exit codes."""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from harness.interrupts import EXIT_INTERRUPTED, EXIT_TERMINATED, Interrupts, Terminated

SIGNAL_MESSAGES = {
    EXIT_INTERRUPTED: "harness: interrupted",
    EXIT_TERMINATED: "harness: terminated",
}
"""What is printed if a signal ended the command, by exit code."""


def script(command: Callable[..., None]) -> NoReturn:
    """Run `command` as a program of its own, whose options are its parameters; then exit."""

    def run() -> object:
        import typer

        from harness.cli.commands import Command

        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cls=Command)(command)
        return app(standalone_mode=False)

    execute(run)


def execute(command: Callable[[], object]) -> NoReturn:
    """Run `command` and exit with the code that it returns.

    Bad input is one line on stderr and exit code 2. An interrupt is exit code 130, SIGTERM 143.
    If a plug-in or a library tries to end the process, the exit code is 1.
    """
    # Otherwise the profiler that measures allocations writes messages to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with Interrupts(), warnings.catch_warnings():
        warnings.showwarning = _show_once()
        try:
            code, message = _outcome(command)
        except Terminated:
            code, message = EXIT_TERMINATED, ""
        except KeyboardInterrupt:
            code, message = EXIT_INTERRUPTED, ""
    message = message or SIGNAL_MESSAGES.get(code, "")
    if message:
        _print_error(message)
    sys.exit(code)


def _outcome(command: Callable[[], object]) -> tuple[int, str]:
    """The exit code of `command`, and what to print on stderr."""
    import typer

    from zoo.registry import UserError, in_one_line

    # Depending on its version, Typer uses the package click or its own copy.
    usage_error: Any = typer.BadParameter.__base__
    try:
        code = command()
        _flush_output()
        return (code if isinstance(code, int) else 0), ""
    except UserError as error:
        return 2, f"harness: {error}"
    except usage_error as error:
        text = error.format_message()
        if text.startswith("Usage:"):
            return 2, text
        return 2, f"harness: {' '.join(text.split())} See: harness COMMAND --help"
    except typer.Abort:
        # Typer's form of an interrupt.
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        return 1, ""
    except OSError as error:
        return 1, f"harness: {in_one_line(error)}"
    except (KeyboardInterrupt, Exception):
        raise
    except BaseException as error:
        # No command raises it: a plug-in that calls `sys.exit(0)` has not succeeded.
        return 1, f"harness: a plug-in or library ended the command ({in_one_line(error)})"
    finally:
        with suppress(OSError):
            _flush_output()


def _flush_output() -> None:
    """Flush stdout; if that fails, redirect it, so that the flush at exit does not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _show_once() -> Callable[..., None]:
    """A function that prints each warning once, as one line without its source location."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object) -> None:
        line = f"harness: warning: {' '.join(str(message).split())}"
        if line not in shown:
            shown.add(line)
            _print_error(line)

    return show


def _print_error(line: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
