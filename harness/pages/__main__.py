"""`python -m harness.pages` writes every generated file."""

import sys

from harness.cli import execute
from harness.cli.options import add_command, group
from harness.cli.process import invoke
from harness.pages import main

if __name__ == "__main__":
    app = group()
    add_command(app, main)
    execute(lambda: invoke(app, "python -m harness.pages", sys.argv[1:]))
