"""The example plug-in, installed as its page says, and followed to its row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "docs" / "examples" / "plugin"
PAGE = ROOT / "docs" / "add_a_variant.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder into which the plug-in was installed, metadata and all."""
    # Built from a copy: a build leaves its traces in the folder that it builds.
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "site"
    source.mkdir()
    for name in ("pyproject.toml", "attention_free.py"):
        (source / name).write_bytes((PLUGIN / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    pip += ["--no-index", "--disable-pip-version-check", "--target", str(target), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    return target


@pytest.fixture
def harness(installed, tmp_path):
    """Runs the command where the plug-in is installed, in an empty folder."""

    def call(*argv: str) -> subprocess.CompletedProcess:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)]),
            "HARNESS_DATA": str(tmp_path / "data"),
            "OMP_NUM_THREADS": "1",
        }
        code = "from harness.cli import main; main()"
        # -P: like an installed command, without the folder at hand on the path.
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *argv],
            cwd=tmp_path, env=environment, capture_output=True, text=True,
        )  # fmt: skip

    return call


def test_the_plug_in_is_listed_with_its_claims(harness):
    done = harness("list")
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("aft-simple")]
    assert row.split() == ["aft-simple", "yes", "yes"]


def test_the_plug_in_is_proved_by_its_name(harness):
    done = harness("check", "aft-simple", "--json")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["check"] for one in results if not one["passed"]] == []
    assert done.returncode == 0
    assert len(results) > 15


def test_a_class_without_a_package_is_proved_from_the_folder_of_its_file(harness, tmp_path):
    (tmp_path / "loose.py").write_bytes((PLUGIN / "attention_free.py").read_bytes())
    done = harness("check", "loose:AttentionFree")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok   AttentionFree: padding invariance" in done.stdout


def test_a_checked_class_takes_its_own_options_alone(harness, tmp_path):
    (tmp_path / "loose.py").write_bytes((PLUGIN / "attention_free.py").read_bytes())
    done = harness("check", "loose:AttentionFree", "--set", "AttentionFree.rank=3")
    assert done.returncode == 2 and "unknown option of AttentionFree 'rank'" in done.stderr
    done = harness("check", "loose:AttentionFree", "--set", "softmax.backend=naive")
    assert done.returncode == 2 and "only 'AttentionFree' is checked" in done.stderr


def test_the_plug_in_gets_its_row_beside_softmax_and_none(harness, tmp_path):
    done = harness("run", "--attention", "aft-simple,softmax,none", "--budget", "smoke")
    assert done.returncode == 0, done.stderr
    assert harness("report").returncode == 0
    rows = (tmp_path / "runs" / "leaderboard.md").read_text("utf-8").splitlines()
    found = {row.split("|")[1].strip() for row in rows if row.startswith("|")}
    assert {"aft-simple", "softmax", "none"} <= found
    own, *others = (
        json.loads(path.read_text())["environment"]["versions"]
        for name in ("aft-simple", "softmax", "none")
        for path in (tmp_path / "runs").glob(f"listops-{name}-*.json")
    )
    assert own["attention-free"] == "0.1.0"
    assert not any("attention-free" in versions for versions in others)


def test_the_tests_of_the_plug_in_find_and_prove_it(installed, tmp_path):
    path = os.pathsep.join([str(installed), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "padding"]
    done = subprocess.run(
        [*command, str(PLUGIN / "tests")], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_page_shows_the_very_code_of_the_example():
    page, code = PAGE.read_text("utf-8"), (PLUGIN / "attention_free.py").read_text("utf-8")
    block = page.split("```python\n")[1].split("```")[0]
    for line in block.splitlines():
        if line.strip() and "def attend" not in line:
            assert line.strip() in code
    assert page.split("```toml\n")[1].split("```")[0] in (PLUGIN / "pyproject.toml").read_text()
