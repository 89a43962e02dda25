"""The example plug-in: installed and run by the commands of `docs/add_a_variant.md`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "docs" / "examples" / "plugin"
FILES = ("attention_free.py", "pyproject.toml")
PAGE = (ROOT / "docs" / "add_a_variant.md").read_text("utf-8")
COMMANDS = re.findall(r"^    harness (.*)$", PAGE, re.MULTILINE)

# In one process, since the imports take seconds; a command that fails ends it.
RUN = """
import sys
from harness.cli import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        if end.code:
            raise
"""
PADDING = """
import zoo.conformance
checks = zoo.conformance.CHECKS
zoo.conformance.CHECKS = tuple(check for check in checks if check.group == "padding")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder into which the plug-in was installed, with its metadata."""
    # From a copy: a build writes into the folder of its source.
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "site"
    source.mkdir()
    for name in FILES:
        (source / name).write_bytes((PLUGIN / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    pip += ["--no-index", "--disable-pip-version-check", "--target", str(target), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    return target


@pytest.fixture
def python(installed, tmp_path):
    """Runs Python where the plug-in is installed, in an empty folder."""

    def call(*arguments: str) -> subprocess.CompletedProcess:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HARNESS_DATA": str(tmp_path / "data"),
            "OMP_NUM_THREADS": "1",
        }
        # -P: without the current folder on the path, as for an installed command.
        return subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True,
        )  # fmt: skip

    return call


@pytest.fixture
def harness(python):
    """Runs commands, given as one text each, after some code."""
    return lambda *commands, first="": python("-c", first + RUN, *commands)


@pytest.mark.parametrize(("language", "name"), [("python", FILES[0]), ("toml", FILES[1])])
def test_the_page_shows_the_files_of_the_example(language, name):
    first = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert first[1] == (PLUGIN / name).read_text("utf-8")


def test_the_page_has_the_commands_that_are_tested_here():
    assert COMMANDS == [
        "check attention_free:AttentionFree",
        "check aft-simple",
        "run --task listops --attention aft-simple,softmax,none",
        "report",
    ]


@pytest.mark.slow
def test_the_plug_in_is_created_by_its_name_and_listed_with_its_traits(harness):
    creation = "import zoo; print(zoo.create('aft-simple', dim=8, heads=2, max_len=9))"
    done = harness("list", "list aft-simple --json", first=creation)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("AttentionFree(")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("aft-simple")]
    assert row.split(maxsplit=1)[1] == (
        "AFT-simple: the weights of the values do not depend on the query"
    )
    entry = json.loads(done.stdout[done.stdout.index("\n{") :])
    assert (entry["cross"], entry["linear"], entry["causal"]) == (True, True, False)
    assert entry["paper"] == "Zhai et al., 2021, arXiv 2105.14103"


@pytest.mark.slow
def test_the_plug_in_passes_the_checks_by_its_name(harness):
    done = harness(f"{COMMANDS[1]} --json")
    results = json.loads(done.stdout)["rows"]
    assert [result["check"] for result in results if not result["passed"]] == []
    assert done.returncode == 0
    assert len(results) > 15


@pytest.mark.slow
def test_a_class_without_a_package_is_checked_in_the_folder_of_its_file(harness, tmp_path):
    # Under another name: the installed module must not be what is checked.
    (tmp_path / "loose.py").write_bytes((PLUGIN / "attention_free.py").read_bytes())
    done = harness(COMMANDS[0].replace("attention_free:", "loose:"), first=PADDING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AttentionFree: padding invariance" in done.stdout


@pytest.mark.slow
def test_the_plug_in_gets_its_row_next_to_softmax_and_none(harness, tmp_path):
    done = harness(f"{COMMANDS[2]} --budget smoke --precision fp32", COMMANDS[3])
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "runs" / "leaderboard.md").read_text("utf-8").splitlines()
    names = {row.split("|")[1].strip() for row in rows if row.startswith("|")}
    assert {"aft-simple", "softmax", "none"} <= names
    own, *others = (
        json.loads(path.read_text())["environment"]["versions"]
        for name in ("aft-simple", "softmax", "none")
        for path in (tmp_path / "runs").glob(f"listops-{name}-*.json")
    )
    assert own["attention-free"] == "0.1.0"
    assert not any("attention-free" in versions for versions in others)


@pytest.mark.slow
def test_the_tests_of_the_plug_in_pass(python):
    options = ("-q", "-p", "no:cacheprovider", "-k", "padding")
    done = python("-m", "pytest", *options, str(PLUGIN / "tests"))
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
