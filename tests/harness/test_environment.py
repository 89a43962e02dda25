"""The environment of a run, and the memory allocator of the process."""

import subprocess
from pathlib import Path

import pytest
import torch

from harness import environment
from harness.records.record import Environment
from tests.conftest import one_line


def test_threads_are_those_in_use_and_at_most_those_of_the_machine():
    before = environment.describe("cpu").threads
    with environment.use_threads(1):
        assert environment.describe("cpu").threads == torch.get_num_threads() == 1
        with environment.use_threads(10**6):
            assert environment.describe("cpu").threads == 1
    assert environment.describe("cpu").threads == before


OTHER = {"device": "an abacus", "threads": 99, "memory_gib": 0.5, "system": "Plan9"}


@pytest.mark.parametrize("name", sorted(Environment.model_fields.keys() - {"commit"}))
def test_each_difference_of_two_environments_is_named(name):
    here = environment.describe("cpu")
    other = {**OTHER, "versions": here.versions | {"torch": "1.0", "a package more": "7"}}[name]
    difference = f"{name.replace('_', ' ')} {other} (here {getattr(here, name)})"
    if name == "versions":
        difference = f"torch 1.0 (here {torch.__version__})"
    with one_line(f"it was started with {difference}; go there"):
        environment.merge_commits(here.model_copy(update={name: other}), here, "it", "go there")


def test_auto_is_a_precision_of_the_device():
    assert [environment.pick_precision("auto", on) for on in ("cpu", "cuda")] == ["fp32", "bf16"]


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("changed", "mark"), [
    (None, ""), ("README.md", ""), ("zoo/contract.py", "+"), ("zoo/x.py", "+"),
])  # fmt: skip
def test_a_commit_is_marked_where_code_was_changed(tmp_path, monkeypatch, changed, mark):
    for name in ("harness/environment.py", "zoo/contract.py", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    git(tmp_path, *who, "commit", "-q", "-m", "all")
    monkeypatch.setattr("harness.environment.__file__", str(tmp_path / "harness/environment.py"))
    if changed:
        (tmp_path / changed).write_text("changed")
    head = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert environment._of_process.__wrapped__("cpu").commit == head + mark
