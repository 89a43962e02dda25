"""`python -m harness.pages` writes every generated file."""

import sys

from harness.cli.process import add_command, execute, group, invoke
from harness.pages import main

if __name__ == "__main__":
    app = group()
    add_command(app, main)
    execute(lambda: invoke(app, "python -m harness.pages", sys.argv[1:]))
