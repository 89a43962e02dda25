"""The script for a GPU, run on the CPU at small sizes."""

import os
import shutil
import subprocess
import sys

import pytest

from harness.records.store import Store
from tests.conftest import ROOT

SCRIPT = ROOT / "benchmarks" / "on_gpu.sh"


def run(*arguments, **environment):
    variables = {**os.environ, "PYTHON": sys.executable, **environment}
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, env=variables, timeout=600
    )


def test_the_script_is_valid():
    assert os.access(SCRIPT, os.X_OK)
    done = subprocess.run(["bash", "-n", str(SCRIPT)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    done = subprocess.run(["shellcheck", str(SCRIPT)], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--dry-run",), ("OUT", "speed")])
def test_other_arguments_print_the_usage_and_exit_2(arguments, tmp_path):
    done = run(*(str(tmp_path / "out") if text == "OUT" else text for text in arguments))
    assert done.returncode == 2 and "--dry-run FOLDER" in done.stdout


def test_a_part_without_time_left_is_named_and_does_not_run(tmp_path):
    done = run("--dry-run", str(tmp_path), "cost", SECONDS_IN_ALL="0")
    assert done.returncode == 0 and "cost\tno time left" in done.stdout
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_a_part_writes_its_records_in_a_dry_run(tmp_path, shared_data):
    # The commands of the other parts have other tests; this one starts one process.
    done = run("--dry-run", str(tmp_path), "accuracy", HARNESS_DATA=str(shared_data))
    ended = [line.split("\t") for line in (tmp_path / "parts.tsv").read_text().splitlines()]
    assert [line[:2] for line in ended] == [["accuracy-listops-primal", "ok"]], done.stdout
    ((record,), _) = Store(tmp_path / "store").read()
    assert (record.status, record.spec.attention, record.spec.question.recipe) == (
        "ok",
        "primal",
        "smoke",
    )
