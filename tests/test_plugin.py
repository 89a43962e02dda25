"""The examples of `docs/add_a_variant.md`: a plug-in, installed and run, and a recurrence."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest

from tests.conftest import ROOT
from zoo.conformance import parametrize, run

PLUGIN = ROOT / "docs" / "examples" / "plugin"
RECURRENCE = PLUGIN.parent / "running_mean.py"
FILES = ("attention_free.py", "pyproject.toml")
PAGE = (ROOT / "docs" / "add_a_variant.md").read_text("utf-8")
COMMANDS = re.findall(r"^    harness (.*)$", PAGE, re.MULTILINE)

# In one process, since the imports take seconds; a command that fails ends it.
RUN = """
import shlex, sys
import pytest, zoo
from harness.cli import main
print(zoo.create('aft-simple', dim=8, heads=2, max_len=9))
*commands, tests = sys.argv[1:]
for command in commands:
    print("$", command)
    try:
        main(shlex.split(command))
    except SystemExit as end:
        if end.code:
            raise
print("$ pytest")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "padding", tests]))
"""


@pytest.mark.slow
def test_the_plug_in_is_created_listed_checked_and_run_by_its_name(shared_data, tmp_path_factory):
    # From a copy: a build writes into the folder of its source.
    source, installed, folder = map(tmp_path_factory.mktemp, ("source", "site", "work"))
    for name in FILES:
        (source / name).write_bytes((PLUGIN / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    pip += ["--no-index", "--disable-pip-version-check", "--target", str(installed), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    # Under another name: the installed module must not be what is checked.
    (folder / "loose.py").write_bytes((PLUGIN / "attention_free.py").read_bytes())
    loose = f"{COMMANDS[0].replace('attention_free:', 'loose:')} --only 'padding invariance'"
    run = f"{COMMANDS[2]} --budget smoke --precision fp32 --no-cost"
    # The recurrence has the checks that are not fast, in this process.
    check = f"{COMMANDS[1]} --fast --json"
    commands = ["list", "list aft-simple --json", loose, check, run, COMMANDS[3]]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1", "HARNESS_DATA": str(shared_data), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    # -P: without the current folder on the path, as for an installed command.
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, *commands, str(PLUGIN / "tests")],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    names = ("create", "list", "entry", "loose", "check", "run", "report", "tests")
    texts = re.split(r"^\$ .*\n", done.stdout, flags=re.MULTILINE)
    printed, folder = dict(zip(names, texts, strict=True)), folder / "runs"
    assert printed["create"].startswith("AttentionFree(")
    (row,) = [line for line in printed["list"].splitlines() if line.startswith("aft-simple")]
    assert row.split(maxsplit=1)[1].startswith("AFT-simple: ")
    entry = json.loads(printed["entry"])
    assert (entry["cross"], entry["linear"], entry["causal"]) == (True, True, False)
    assert entry["paper"] == "Zhai et al., 2021, arXiv 2105.14103"
    results = json.loads(printed["check"])["rows"]
    assert len(results) > 15 and all(result["passed"] for result in results)
    assert "AttentionFree: padding invariance" in printed["loose"]
    assert " passed" in printed["tests"]
    rows = (folder / "runs.md").read_text("utf-8").splitlines()
    names = {row.split("|")[1].strip() for row in rows if row.startswith("|")}
    assert {"aft-simple", "softmax", "none"} <= names
    installed, *others = (
        json.loads(path.read_text())["environment"]["versions"]
        for name in ("aft-simple", "softmax", "none")
        for path in folder.glob(f"listops-{name}-*.json")
    )
    assert installed["attention-free"] == "0.1.0"
    assert not any("attention-free" in versions for versions in others)


def test_the_page_shows_the_files_of_its_examples_and_the_commands_that_are_tested_here():
    shown = re.findall(r"^```\w+\n(.*?)^```", PAGE, re.M | re.DOTALL)
    for path in (PLUGIN / FILES[0], PLUGIN / FILES[1], RECURRENCE):
        assert path.read_text("utf-8") in shown
    text = RECURRENCE.read_text("utf-8")
    assert len(text[text.index("class ") :].splitlines()) <= 30
    assert COMMANDS == [
        "check attention_free:AttentionFree", "check aft-simple",
        "run --task listops --attention aft-simple,softmax,none", "report",
    ]  # fmt: skip


sys.path.append(str(RECURRENCE.parent))


@pytest.mark.slow
@parametrize(import_module("running_mean").RunningMean)
def test_the_recurrence_passes_every_check(configuration, check, no_type_checks):
    result = run(check, configuration)
    assert result.passed, result.detail
