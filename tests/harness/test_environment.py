"""Environments, versions of code, and whether records are outdated."""

import subprocess
import sys

import pytest
import torch

from harness import environment
from harness.environment import covered, version_of
from harness.records import versions
from harness.records.record import Environment
from harness.records.versions import LOOP, TRAINING, Origin, built_in, file_digest, line_of_run
from tests.conftest import one_line
from zoo.variants import variants
from zoo.variants.linear import Linear


def test_threads_are_those_in_use_and_at_most_those_of_the_machine():
    before = environment.describe("cpu").threads
    with environment.use_threads(1):
        assert environment.describe("cpu").threads == torch.get_num_threads() == 1
        with environment.use_threads(10**6):
            assert environment.describe("cpu").threads == 1
    assert environment.describe("cpu").threads == before
    assert [environment.pick_precision("auto", on) for on in ("cpu", "cuda")] == ["fp32", "bf16"]


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


def test_a_commit_is_marked_where_code_was_changed(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", *words]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    for name in ("harness/environment.py", "zoo/contract.py", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    head = git("rev-parse", "--short=12", "HEAD")
    monkeypatch.setattr("harness.environment.__file__", str(tmp_path / "harness/environment.py"))
    for changed, mark in (("README.md", ""), ("zoo/x.py", "+")):
        (tmp_path / changed).write_text("changed")
        assert environment._of_process.__wrapped__("cpu").commit == head + mark


def test_every_variant_of_this_package_states_its_version_and_the_list_has_it():
    now = {name: vars(variant)["version"] for name, variant in variants.built_in()}
    assert {**built_in()} == now | {LOOP: TRAINING}
    assert versions.versions_in(versions.line_of(built_in())) == built_in()
    assert line_of_run({"b": "1.2", "a": "sha256:0"}, "3.4") == "a sha256:0, b 1, training loop 3"


@pytest.mark.parametrize(("line", "now", "current"), [
    ("a 1, training loop 1", {"a": "1.7", LOOP: "1.0"}, True),
    ("a 1, training loop 1", {"a": "2.0", LOOP: "1.0"}, False),
    ("a 1, training loop 1", {"a": "10.0", LOOP: "1.0"}, False),
    ("a 1.0, b 2.1", {"a": "1.0", "b": "2.2"}, False), ("a 1.0, b 2.1", {"a": "1.0"}, True),
    ("a sha256:12", {"a": "sha256:12"}, True), ("a sha256:12", {"a": "sha256:123"}, False),
    ("a sha256:12", {"a": "1.0"}, False), ("a ", {"a": ""}, False), ("", {}, False),
])  # fmt: skip
def test_a_line_of_versions_is_compared_by_the_parts_that_it_has(line, now, current):
    assert versions.is_current(line, now) == current


def test_a_plug_in_has_the_version_of_its_class_body_or_the_digest_of_its_file(
    tmp_path, monkeypatch
):
    path = tmp_path / "plugged.py"
    path.write_text("from zoo.variants.linear import Linear\n\nclass Mine(Linear):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plugged", raising=False)
    from plugged import Mine

    before = version_of(Mine)
    assert before == f"sha256:{file_digest(str(path))}" == versions.major(before)
    monkeypatch.setattr(variants, "find", {"mine": Mine, "linear": Linear}.__getitem__)
    (line,) = covered(["linear", "mine"])
    assert line.startswith(f"mine: runs are of the SHA-256 of {path} alone; ")
    path.write_text(path.read_text() + "\n")
    assert version_of(Mine) != before
    Mine.version = "2.1"
    assert version_of(Mine) == "2.1" and covered(["mine"]) == []


def test_a_plug_in_is_not_imported_and_its_last_record_has_its_version_now():
    lines = [("mine 1.0, softmax 1.0", "2026-01-01"), ("mine 1.1, softmax 1.0", "2026-01-02")]
    for ordered in (lines, lines[::-1]):
        assert versions.are_outdated(ordered) == {lines[0][0]: True, lines[1][0]: False}


def test_a_run_is_outdated_by_another_file_or_by_a_later_run_of_other_data(tmp_path):
    now, path = line_of_run({"linear": built_in()["linear"]}, TRAINING), tmp_path / "my.csv"
    path.write_text("text,label\n")
    name, gone = str(path), str(tmp_path / "no")
    runs = [
        ("listops@1", "new", {}, 2), ("listops@1", "old", {}, 1),
        ("table@1", "a", {name: file_digest(name)}, 1), ("table@1", "b", {name: "0" * 64}, 2),
        ("table@1", "c", {gone: "0" * 64}, 3),
    ]  # fmt: skip
    origins = [Origin(now, task, data, files, f"2026-01-0{day}") for task, data, files, day in runs]
    assert versions.outdated(origins) == [False, True, False, True, False]
    older = [origin._replace(version="linear 0, training loop 1") for origin in origins]
    assert versions.outdated(older) == [True] * 5
