"""The generated files are made from the committed records, and are up to date."""

from pathlib import Path

import pytest

from harness.cli.pages import GENERATORS, is_current
from harness.records.store import SpectrumStore
from reports.pages import digest, spectrum_files

ROOT = Path(__file__).parents[2]
COMMAND = "run: python -m harness.cli.pages"


@pytest.mark.parametrize("make", GENERATORS[:-1], ids=lambda make: make.__name__)
def test_generated_files_are_those_of_the_records(make):
    """All but the cards of tasks, which need data: see `tests/harness/test_cards.py`."""
    stale = [str(file) for file, content in make(ROOT).items() if not is_current(file, content)]
    assert not stale, COMMAND


def test_the_page_of_spectra_is_that_of_the_records():
    spectra, broken = SpectrumStore.within(ROOT / "results").read()
    assert spectra and not broken
    for name, content in spectrum_files(spectra).items():
        if name.endswith((".md", ".csv")):
            assert (ROOT / "results" / name).read_bytes() == content, name


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("name", ["laptop", "cost"])
def test_the_figure_was_drawn_from_the_csv(name, suffix):
    table = (ROOT / "results" / f"{name}.csv").read_bytes()
    figure = (ROOT / "results" / f"{name}{suffix}").read_bytes()
    assert digest(f"{name}.csv", table).encode() in figure, COMMAND
