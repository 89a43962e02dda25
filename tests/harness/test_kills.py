"""Processes that share a store, killed at random moments."""

import pytest

from tests.harness.kills import MODES, Outcome, Size, kill_at_random


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["process", "shared"])
def test_every_cell_ends_once_however_often_processes_are_killed(tmp_path, data_home, mode):
    left = kill_at_random(tmp_path, MODES[mode], 4, seed=0, size=Size(2, 30))
    expected = Outcome(
        kills=4, grids=left.grids, cells=4 * left.grids, lost=0, repeated=0, unreadable=0,
        leftovers=0,
    )  # fmt: skip
    assert left == expected
