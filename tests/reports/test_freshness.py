"""What the project publishes is made from its records, and is up to date."""

import csv
import io
from pathlib import Path

import pytest

from harness.records.store import Store
from reports import tidy
from reports.leaderboard import MARKS, digest, embed, markdown
from reports.rows import boards

ROOT = Path(__file__).parent.parent.parent
RENEW = "run: harness report --store results --readme README.md"


@pytest.fixture(scope="module")
def records():
    found, broken = Store(ROOT / "results").read()
    assert found, "results/ holds no records"
    assert not broken
    return found


def test_the_readme_shows_the_leaderboard_of_the_records(records):
    page = (ROOT / "README.md").read_text("utf-8")
    assert embed(page, records) == page, RENEW


def test_the_leaderboard_is_that_of_the_records(records):
    assert (ROOT / "results" / "leaderboard.md").read_text("utf-8") == markdown(records, []), RENEW


def test_the_table_of_figures_is_that_of_the_records(records):
    made = tidy.table(boards(records)).to_csv(index=False, lineterminator="\n")
    kept = (ROOT / "results" / "leaderboard.csv").read_text("utf-8")
    assert list(csv.reader(io.StringIO(kept))) == list(csv.reader(io.StringIO(made))), RENEW


@pytest.mark.parametrize("name", ["accuracy_time.png", "accuracy_time.svg"])
def test_the_pictures_were_drawn_from_the_table_of_figures(name):
    figures = (ROOT / "results" / "leaderboard.csv").read_bytes()
    assert digest(figures).encode() in (ROOT / "results" / name).read_bytes(), RENEW


def test_a_page_is_renewed_between_its_marks_only(record):
    page = f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n"
    renewed = embed(page, [record()])
    assert renewed.startswith("before\n") and renewed.endswith("after\n")
    assert "old" not in renewed and record().spec.task.key in renewed
    assert embed(renewed, [record()]) == renewed


def test_a_page_without_marks_is_refused(record):
    with pytest.raises(ValueError, match="lacks the lines"):
        embed("no marks here", [record()])
