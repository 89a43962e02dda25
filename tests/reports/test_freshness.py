"""The generated files are made from the committed records, and are up to date."""

import json
from difflib import unified_diff
from functools import cache
from pathlib import Path

import pytest

from harness.cli.generated import GENERATORS, _reports, _screen
from harness.cli.pages import is_current, pages_of, remedy
from harness.recipes import declared
from harness.records.suites import find
from reports.text import digest
from tests.conftest import ROOT
from zoo.registry import UserError

COMMAND = "run: python -m harness.cli.pages"


@cache
def files(make) -> dict[Path, bytes]:
    """The files that a generator makes, the figures without content: they are not compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "reports.figures.style.images",
            lambda name, *_: dict.fromkeys((f"{name}.png", f"{name}.svg"), b""),
        )
        # As where the package is installed: the records of the checkout are not its own.
        patch.setattr("harness.stores.PUBLISHED", ROOT / "nowhere")
        patch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
        return make(ROOT)


def changes(file: Path, content: bytes) -> str:
    old, new = file.read_text("utf-8").splitlines(), content.decode("utf-8").splitlines()
    lines = unified_diff(old, new, str(file), "from the records", n=0, lineterm="")
    return "\n".join([*lines][:20])


def require_current(*makes) -> None:
    stale = {file: content for make in makes for file, content in files(make).items()
             if not is_current(file, content)}  # fmt: skip
    assert not stale, f"{COMMAND}\n" + "\n".join(map(changes, stale, stale.values()))


@pytest.mark.parametrize(
    "make", [make for make in GENERATORS if make is not _reports], ids=lambda make: make.__name__
)
def test_generated_files_are_those_of_the_records(make):
    require_current(make)


@pytest.mark.slow
def test_pages_of_results_are_those_of_the_records_and_no_other_is_there():
    require_current(_reports)
    made = {file for make in GENERATORS for file in files(make)}
    assert not [remedy(file) for file in pages_of(ROOT) if file not in made]


def test_a_file_without_records_names_the_command_that_makes_them():
    for name, command in {
        "chen2023-cost.csv": "harness run --suite chen2023-cost --store",
        "laptop-answers.csv": "harness run --suite laptop --store",
        "ksvd.md": "harness study ksvd --store", "forgotten.csv": "delete it",
    }.items():  # fmt: skip
        assert command in remedy(ROOT / "results" / name)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("name", ["laptop", "cost", "spectrum", "ksvd"])
def test_the_figure_was_drawn_from_the_csv(name, suffix):
    table = (ROOT / "results" / f"{name}.csv").read_bytes()
    figure = (ROOT / "results" / f"{name}{suffix}").read_bytes()
    assert digest(f"{name}.csv", table).encode() in figure, COMMAND


@pytest.mark.parametrize("field", ["title", "declared"])
def test_a_screen_of_other_questions_is_not_shown_under_the_names_of_these(tmp_path, field):
    file = tmp_path / "results" / "screens" / "first.json"
    file.parent.mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- screen -->\n<!-- /screen -->\n")
    screen = json.loads((ROOT / file.relative_to(tmp_path)).read_text("utf-8"))
    suite = find(screen["rows"][0]["suite"])
    shown = screen["rows"][0]["questions"]
    for found, name in zip(shown, suite.first, strict=True):
        found |= {"title": suite.question(name).title, "declared": declared(suite)[name]}
    file.write_text(json.dumps(screen))
    assert _screen(tmp_path)
    shown[-1][field] = "another"
    file.write_text(json.dumps(screen))
    with pytest.raises(UserError, match=f"has other questions than {suite.name}@"):
        _screen(tmp_path)
