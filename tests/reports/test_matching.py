"""Boards of matched models, and marks of models of other sizes."""

import pytest

from harness.records.record import Record
from reports.pages.leaderboard import leaderboard
from reports.tables import boards
from reports.tables.values import UNEQUAL
from tests.reports.conftest import make_record


def with_parameters(record: Record, parameters: int, match: str | None = None) -> Record:
    """The record with another number of parameters; that of softmax stays."""
    tree = record.model_dump()
    tree["cost"]["own"]["parameters"] = parameters
    if match:
        tree["spec"]["match"] = match
    return Record.model_validate(tree)


@pytest.mark.parametrize(
    ("part", "match", "marked"),
    [(1.0, None, False), (1.09, None, False), (1.11, None, True), (0.89, None, True),
     (1.5, "parameters", False)],
)  # fmt: skip
def test_a_row_with_a_tenth_more_or_fewer_parameters_is_marked(part, match, marked):
    softmax = make_record()
    count = round(part * softmax.cost.softmax.parameters)
    page = leaderboard([softmax, with_parameters(make_record("linformer"), count, match)], [])
    assert (f"{count:,}{UNEQUAL}" in page) == marked


def test_matched_rows_of_other_widths_share_a_board_which_unmatched_rows_do_not():
    softmax = with_parameters(make_record(), 1000, "parameters")
    width = {"model": {"feed_forward": 96}, "overrides": {"model.feed_forward": 96}}
    other = with_parameters(make_record("primal", accuracy=0.3, **width), 1000, "parameters")
    (board,) = boards([softmax, other])
    labels = ["softmax [feed_forward=128]", "primal [feed_forward=96]"]
    assert [row.label for row in board.rows] == labels
    assert "budget paper, parameters matched" in board.title
    assert len(boards([softmax, make_record("linear")])) == 2
