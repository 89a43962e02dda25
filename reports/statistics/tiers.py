"""Rank groups of rows that the data separate: a compact letter display."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def tiers(separable: NDArray[np.bool_]) -> list[str]:
    """The groups of each row as letters: two rows share one if and only if they are not separable.

    A row between two others may share a group with either. The groups are the maximal sets of rows
    without a separable pair, found by insertion and absorption (Piepho, "An algorithm for a
    letter-based representation of all-pairwise comparisons", 2004), in order of their first rows.

    Args:
        separable: of each pair of rows, (r, r); the most accurate row first.
    """
    sets = [frozenset(range(len(separable)))] if len(separable) else []
    for first, second in np.argwhere(np.triu(separable)).tolist():
        split = [part for part in sets if {first, second} <= part]
        sets = [part for part in sets if part not in split]
        sets = _absorb([*sets, *(part - {row} for part in split for row in (second, first))])
    ordered = sorted(sets, key=sorted)
    return [
        "".join(chr(ord("A") + place) for place, rows in enumerate(ordered) if row in rows)
        for row in range(len(separable))
    ]


def _absorb(sets: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """The sets that are part of no other one, each once."""
    return [one for one in dict.fromkeys(sets) if not any(one < other for other in sets)]
