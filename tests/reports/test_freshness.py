"""The generated files are made from the committed records, and are up to date."""

from pathlib import Path

import pytest

from harness.cli.pages import GENERATORS, is_current
from reports.text import digest

ROOT = Path(__file__).parents[2]
COMMAND = "run: python -m harness.cli.pages"


MAKERS = [
    pytest.param(make, marks=[pytest.mark.slow] * (make.__name__ == "_reports"))
    for make in GENERATORS[:-1]
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_generated_files_are_those_of_the_records(make, monkeypatch):
    """All but the cards of tasks, which need data: see `tests/harness/test_cards.py`."""
    # `is_current` does not compare figures.
    monkeypatch.setattr("reports.figures.style.images", lambda *_: {})
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    stale = [str(file) for file, content in make(ROOT).items() if not is_current(file, content)]
    assert not stale, COMMAND


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("name", ["laptop", "cost", "spectrum", "ksvd"])
def test_the_figure_was_drawn_from_the_csv(name, suffix):
    table = (ROOT / "results" / f"{name}.csv").read_bytes()
    figure = (ROOT / "results" / f"{name}{suffix}").read_bytes()
    assert digest(f"{name}.csv", table).encode() in figure, COMMAND
