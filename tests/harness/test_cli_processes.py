"""The command line as a process of its own: interrupts, kills, and the start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import budgets
from harness.cli import main

ROOT = Path(__file__).parents[2]
STEPS = 400
RECIPE = {"steps": STEPS, "evaluations": 20}
# An interrupt may be ignored where the tests themselves run: it must not be in there.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    f"from harness import budgets; budgets._tables()['smoke']['train'].update({RECIPE})\n"
    "from harness.cli import main; main()"
)
LONG = ["run", "-a", "softmax", "--budget", "smoke", "--precision", "fp32"]
for tree in ["min_len=2", "max_len=24", "train=64", "dev=16", "test=18"]:
    LONG += ["--set", f"listops.{tree}"]


@pytest.fixture
def start(data_home, tmp_path):
    """Starts the command in a process; whatever is left of it is ended with the test."""
    started = []

    def run(*argv: str) -> subprocess.Popen:
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "HARNESS_DATA": str(data_home),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", START, *argv], cwd=tmp_path, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen, text: str) -> None:
    """Read what the process says until it says `text`."""
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"it ended before {text!r}: {process.stderr.read()}")


@pytest.fixture(autouse=True)
def longer(monkeypatch):
    """The recipe of the processes, here too."""
    for name, value in RECIPE.items():
        monkeypatch.setitem(budgets._tables()["smoke"]["train"], name, value)


def finish(store, capsys) -> None:
    """Run the same command here, to its end."""
    with pytest.raises(SystemExit) as ended:
        main([*LONG, "--store", str(store.folder)])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"step {STEPS}/{STEPS}" in out
    assert f"step 20/{STEPS}" not in out


def left(store) -> list[str]:
    return sorted(path.suffix for path in store.folder.iterdir())


def test_an_interrupted_process_leaves_a_record_and_exit_code_130(start, store, capsys):
    process = start(*LONG, "--store", str(store.folder))
    wait_for(process, f"step 60/{STEPS}")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "harness: interrupted"
    assert left(store) == [".checkpoint", ".json"]
    ((record,), broken) = store.read()
    assert (record.status, broken) == ("interrupted", [])
    assert record.reason.startswith("interrupted at step ")
    assert 60 <= record.curve[-1].step < STEPS
    finish(store, capsys)
    assert left(store) == [".json"]
    assert store.find(record.spec).status == "ok"
    steps = [point.step for point in store.find(record.spec).curve]
    assert steps == sorted(set(steps))


def test_a_killed_process_leaves_a_readable_store_that_a_rerun_completes(start, store, capsys):
    process = start(*LONG, "--store", str(store.folder))
    wait_for(process, f"step 60/{STEPS}")
    process.kill()
    process.wait(timeout=30)
    assert store.read() == ([], [])
    finish(store, capsys)
    ((record,), broken) = store.read()
    assert (record.status, broken) == ("ok", [])
    assert record.curve[-1].step == STEPS


def test_bad_input_to_a_process_is_one_line_without_a_traceback(start, store):
    process = start("run", "-a", "sofmax", "--store", str(store.folder))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err == "harness: unknown attention variant 'sofmax'; did you mean 'softmax'?\n"
    assert not store.folder.exists()


HEAVY = ("torch", "numpy", "pydantic", "matplotlib", "pandas", "rich")


def test_the_help_imports_nothing_heavy():
    code = (
        "import sys; from harness.cli import main\n"
        "try: main(['--help'])\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")
    assert "Usage: " in done.stdout
