"""The function that measures each section; its docstring is the text of the page."""

from collections.abc import Callable
from pathlib import Path

from benchmarks import costs, inputs, leaderboard_statistics, processes, steps
from benchmarks.claims import ClaimRecord, Kind
from benchmarks.runner import Runner

SECTIONS: dict[str, Callable[[Runner], None]] = {
    "layer": costs.measure_primal,
    "step": steps.measure_step,
    "memory": costs.measure_memory,
    "recurrences": costs.measure_recurrences,
    "training_step": steps.measure_loops,
    "loading": inputs.measure_loading,
    "pathfinder": inputs.measure_pathfinder,
    "library_twins": costs.measure_twins,
    "leaderboard_statistics": leaderboard_statistics.measure_statistics,
    "workers": processes.measure_workers,
}
"""Sections in the order of the table of claims: most informative first."""


def measure(name: str, device: Kind, out: Path, *, tiny: bool) -> list[ClaimRecord]:
    """Measure the claims that a section makes for the device, and write their records."""
    runner = Runner(name, device, out, tiny=tiny)
    if runner.claims:
        SECTIONS[name](runner)
    return runner.records
