"""The published pages are made from the published records, and are up to date."""

import csv
import io
from pathlib import Path

import pytest

from harness.cli.tables import is_of_suite, suite_tables
from harness.records.baselines import with_baselines
from harness.records.store import BaselineStore, CostStore, SpectrumStore, Store
from reports.pages import cost_files, digest, embed, spectrum_files
from reports.pages.cost import training_crossovers
from reports.pages.leaderboard import leaderboard
from reports.pages.suite import files as suite_files
from reports.pairs import joined, of_boards
from reports.tables import as_csv, boards
from reports.text import frame_csv
from tasks import BASELINES_VERSION

ROOT = Path(__file__).parent.parent.parent
COMMAND = "run: harness report --store results --readme README.md"


@pytest.fixture(scope="module")
def records():
    stored, broken = Store(ROOT / "results").read()
    assert stored, "results/ holds no records"
    found, damaged = BaselineStore.within(ROOT / "results").read()
    assert not broken and not damaged
    return with_baselines(stored, found, BASELINES_VERSION)


def test_the_readme_shows_the_summary_of_the_records(records):
    page = (ROOT / "README.md").read_text("utf-8")
    assert embed(page, records) == page, COMMAND


def test_the_models_of_the_readme_have_the_crossovers_of_the_records():
    costs, broken = CostStore.within(ROOT / "results").read()
    assert not broken
    crossovers = training_crossovers(costs)
    page = (ROOT / "README.md").read_text("utf-8")
    if crossovers is None:
        assert "faster from" not in page, COMMAND
        return
    assert crossovers.caption in page, COMMAND
    section = page.partition("<!-- models -->")[2].partition("<!-- /models -->")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    shown = {line[0]: tuple(line[-2:]) for line in lines if line[0] in crossovers.texts}
    assert shown == crossovers.texts, COMMAND


def test_the_page_of_costs_is_that_of_the_records():
    files = cost_files(CostStore.within(ROOT / "results").read()[0])
    assert (ROOT / "results" / "cost.md").exists() == ("cost.md" in files), COMMAND
    for name, content in files.items():
        if name.endswith((".md", ".csv")):
            assert (ROOT / "results" / name).read_bytes() == content, COMMAND


def test_the_page_of_spectra_is_that_of_the_records():
    spectra, broken = SpectrumStore.within(ROOT / "results").read()
    assert spectra and not broken
    for name, content in spectrum_files(spectra).items():
        if name.endswith((".md", ".csv")):
            assert (ROOT / "results" / name).read_bytes() == content, name


def test_the_leaderboard_is_that_of_the_records(records):
    page = (ROOT / "results" / "leaderboard.md").read_text("utf-8")
    assert page == leaderboard(records, []), COMMAND


def test_the_csv_is_that_of_the_records(records):
    made = as_csv(boards(records))
    written = (ROOT / "results" / "leaderboard.csv").read_text("utf-8")
    assert list(csv.reader(io.StringIO(written))) == list(csv.reader(io.StringIO(made))), COMMAND


def test_the_pairs_and_the_pages_of_suites_are_those_of_the_records(records):
    costs = CostStore.within(ROOT / "results").read()[0]
    found = suite_tables(records, costs, ROOT / "results", ())
    on_boards = of_boards(boards([one for one in records if not is_of_suite(one)]))
    made = {"pairs.csv": frame_csv(joined([*(of.pairs for of in found), on_boards]))}
    for of in found:
        made |= suite_files(of, latex=False)
        svg = ROOT / "results" / f"{of.suite.name}.svg"
        table = (ROOT / "results" / f"{of.suite.name}.csv").read_bytes()
        assert digest(f"{of.suite.name}.csv", table).encode() in svg.read_bytes(), COMMAND
    for name, content in made.items():
        if name.endswith((".md", ".csv")):
            assert (ROOT / "results" / name).read_bytes() == content, COMMAND
