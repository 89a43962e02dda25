"""The published pages are made from the published records, and are up to date."""

import csv
import io
from pathlib import Path

import pytest

from harness.records.store import Store
from reports.pages import digest, embed
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards

ROOT = Path(__file__).parent.parent.parent
COMMAND = "run: harness report --store results --readme README.md"


@pytest.fixture(scope="module")
def records():
    stored, broken = Store(ROOT / "results").read()
    assert stored, "results/ holds no records"
    assert not broken
    return stored


def test_the_readme_shows_the_summary_of_the_records(records):
    page = (ROOT / "README.md").read_text("utf-8")
    assert embed(page, records) == page, COMMAND


def test_the_leaderboard_is_that_of_the_records(records):
    page = (ROOT / "results" / "leaderboard.md").read_text("utf-8")
    assert page == leaderboard(records, []), COMMAND


def test_the_csv_is_that_of_the_records(records):
    made = as_csv(boards(records))
    written = (ROOT / "results" / "leaderboard.csv").read_text("utf-8")
    assert list(csv.reader(io.StringIO(written))) == list(csv.reader(io.StringIO(made))), COMMAND


@pytest.mark.parametrize("name", ["accuracy_time.png", "accuracy_time.svg"])
def test_the_figure_was_drawn_from_the_csv(name):
    table = (ROOT / "results" / "leaderboard.csv").read_bytes()
    assert digest("leaderboard.csv", table).encode() in (ROOT / "results" / name).read_bytes(), (
        COMMAND
    )
