"""The command line as a process: exit codes, signals, output that cannot be written, the start."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import execute
from harness.interrupts import continued
from harness.records.store import Store
from harness.studies import names
from tests.conftest import ROOT
from tests.harness.conftest import DEADLINE
from tests.reports.conftest import make_record
from zoo.registry import UserError

# The process that runs the tests may ignore SIGINT, which its children would inherit.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from harness.cli import main; main()"
)
HEAVY = ("torch", "numpy", "matplotlib", "pandas", "seaborn", "rich", "requests")


@pytest.mark.parametrize(("error", "code", "message"), [
    (UserError("a\x1b[31m\nb"), 2, "harness: a\\x1b[31m\\nb"), (BrokenPipeError(), 1, ""),
    (KeyboardInterrupt(), 130, "harness: interrupted; the same command continues\n"),
    (signal.SIGTERM, 143, "harness: terminated; the same command continues\n"),
    (SystemExit(0), 1, "harness: a plug-in or library ended the command (SystemExit: 0)"),
    (OSError(28, "No space left on device"), 1, "harness: OSError: [Errno 28] No space left"),
    (PermissionError(13, "Permission denied", "/x\x1b"), 2, "harness: /x\\x1b cannot be used"),
])  # fmt: skip
def test_each_end_of_a_command_has_its_exit_code_and_at_most_one_line(capsys, error, code, message):
    def command():
        # An interrupt of two parts, one within the other, is continued once.
        with continued(), continued():
            if isinstance(error, signal.Signals):
                signal.raise_signal(error)
            raise error

    handlers = [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))]
    with pytest.raises(SystemExit) as end:
        execute(command)
    out, err = capsys.readouterr()
    assert (end.value.code, out.strip()) == (code, "")
    assert err.startswith(message) and err.count("\n") == bool(message)
    assert handlers == [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))]
    with pytest.raises(ZeroDivisionError):  # a defect keeps its traceback
        execute(lambda: 1 / 0)


@pytest.fixture
def start(data_home, tmp_path):
    # Returns the exit code, and what it wrote to stderr.
    def run(*argv: str, stdout: int | None = subprocess.PIPE, first: str = "") -> tuple[int, str]:
        paths = {"PYTHONPATH": str(ROOT), "HARNESS_DATA": str(data_home), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", first + START, *argv], cwd=tmp_path, env=os.environ | paths,
            text=True, stdout=stdout, stderr=subprocess.PIPE, timeout=DEADLINE,
        )  # fmt: skip
        return done.returncode, done.stderr

    return run


# What a signal raises in a callback is ignored, with a traceback on stderr.
INTERRUPT_AT_IMPORT = """
import os, sys
class Callback:
    def __del__(self):
        os.kill(os.getpid(), 2)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            sys.meta_path.remove(self)
            Callback()
sys.meta_path.insert(0, Finder())
"""


def test_an_interrupt_during_an_import_ends_the_command_in_one_line(start):
    code, err = start("list", first=INTERRUPT_AT_IMPORT)
    assert code == 130 and err.startswith("harness: interrupted") and err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "argv", [["--help"], pytest.param(["report", "--store", "."], marks=pytest.mark.slow)]
)
def test_a_full_disk_behind_stdout_is_one_line(start, argv, tmp_path):
    Store(tmp_path).write(make_record("softmax"))
    with Path("/dev/full").open("w") as full:
        found = start(*argv, stdout=full.fileno())
    line = "harness: standard output cannot be written (No space left on device)\n"
    assert found == (1, line) and (tmp_path / "runs.md").is_file() == ("report" in argv)


@pytest.mark.parametrize(("closed", "argv", "code", "message"), [
    (">&-", "list", 2, "harness: standard output is closed; redirect it"),
    ("2>&-", "list --budget none", 2, ""),
])  # fmt: skip
def test_a_closed_stream_gives_no_traceback(tmp_path, closed, argv, code, message):
    command = f"'{sys.executable}' -m harness.cli {argv} {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(message) and done.stderr.count("\n") == bool(message)


def test_the_help_the_list_and_a_rejected_command_import_nothing_heavy(tmp_path):
    commands = [["--help"], ["run", "--help"], ["study", "--help"], ["data", "fetsh"]]
    commands += [["list"], ["list", "primal"], ["status", "--store", str(tmp_path)]]
    heavy = [*HEAVY, *(f"harness.studies.{name}" for name in names())]
    code = (
        "import sys; from harness.cli import main\n"
        f"for argv in {commands}:\n"
        "    try: main(argv)\n"
        f"    except SystemExit as end: print(end.code, sorted({{*{heavy}}} & {{*sys.modules}}))\n"
        "import harness.cli.commands, reports.pages.suite, reports.unnamed\n"
        "print(0, sorted({'seaborn', 'matplotlib', 'scipy.stats'} & {*sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if re.match(r"\d \[", line)]
    # The list is a table of rich; the last command reads records. Figures alone import seaborn.
    lists = ["0 ['rich']"] * 2
    assert found == [
        "0 []", "0 []", "0 []", "2 []", *lists, "0 ['numpy', 'rich']", "0 []",
    ], done.stderr  # fmt: skip
