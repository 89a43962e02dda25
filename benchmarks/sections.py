"""The function that measures each section, and the records of its claims."""

import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from benchmarks import calls, costs
from benchmarks.claims import Result, Setup, of_section
from harness.environment import describe
from harness.records.claim import ClaimRecord, is_met, write
from harness.records.fields import Device, now

SECTIONS: dict[str, Callable[[Setup], Iterator[Result]]] = {
    "layer": partial(costs.of_layers, batching="8"),
    "step": costs.of_steps,
    "memory": partial(costs.of_layers, batching="4"),
    "recurrences": partial(costs.of_layers, batching="4", causal=True),
    "training_step": calls.of_loops,
    "loading": calls.of_loading,
    "pathfinder": calls.of_pathfinder,
    "library_twins": partial(costs.of_layers, batching="2"),
    "leaderboard_statistics": calls.of_statistics,
    "workers": calls.of_workers,
}
"""Sections in the order of the table of claims: most informative first."""


def measure(section: str, kind: Device, out: Path, *, tiny: bool) -> list[ClaimRecord]:
    """Measure the claims that a section makes for a kind of device, and write their records."""
    claims, records, start = of_section(section, kind), [], time.perf_counter()
    for result in SECTIONS[section](Setup(claims, kind, out, tiny)) if claims else ():
        seconds, start = time.perf_counter() - start, time.perf_counter()
        for claim in (claim for claim in claims if fnmatch(claim.name, result.name)):
            records.append(ClaimRecord(
                name=claim.name, what=claim.what, bound=claim.bound, limit=claim.limit,
                setting=result.setting, ratio=result.ratio, met=is_met(result.ratio, claim.bound),
                reason=result.reason, figures={**result.figures}, taken=now(),
                seconds=round(seconds, 3), environment=describe(kind),
            ))  # fmt: skip
            write(records[-1], out, kind)
    return records
