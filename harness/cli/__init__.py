"""The command line: `main` is the entry point; each subcommand is a module of this package."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from harness.interrupts import Interrupts, Terminated


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 on success, 1 where a run or a check failed, 2 on bad input.

    `argv` are the arguments, by default the process's.
    """
    try:
        with Interrupts():
            # Imported here, so that an interrupt during the imports is one line on stderr as well.
            from harness.cli import commands, process

            process.execute(lambda: commands.execute(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as error:
        code, what = (143, "terminated") if isinstance(error, Terminated) else (130, "interrupted")
        sys.stderr.write(f"harness: {what}\n")
        sys.exit(code)
