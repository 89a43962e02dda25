"""Results of earlier code or data: what is shown of them, and what is said about it.

A frame has the columns `outdated` and `implementation` of `harness.records.frame`.
"""

from collections.abc import Sequence

import pandas as pd

MOST_COMMITS = 8
"""The most commits that a sentence names."""


def newest(runs: pd.DataFrame, keys: Sequence[str], column: str) -> pd.Series:
    """Return whether each run has the value of `column` that is shown of its group.

    A group is what is equal in `keys`. It is shown as its last run that is not outdated has it, or
    as its last run, where all are outdated.
    """
    ordered = runs.sort_values(["outdated", "started"], ascending=[True, False], kind="stable")
    shown = ordered.groupby([ordered[key] for key in keys])[column].transform("first")
    return runs[column] == shown.reindex(runs.index)


def counted(reasons: pd.Series) -> str:
    """A sentence on the runs that are left out, by reason; empty where none is."""
    counts = reasons[reasons != ""].value_counts(sort=False)
    texts = [f"{count} {reason}" for reason, count in counts.items()]
    return f"Left out of the runs: {', '.join(texts)}." if texts else ""


def sentence(found: pd.DataFrame, what: str = "runs") -> str:
    """A sentence on the outdated part of a frame, with rows and commits; empty where none is."""
    old = found[found["outdated"].eq(True)] if "outdated" in found else found[:0]
    if old.empty:
        return ""
    every = sorted({name for text in old["commit"] for name in (text or "unknown").split(", ")})
    more = f" and {len(every) - MOST_COMMITS} more" * (len(every) > MOST_COMMITS)
    rows = sorted({*old["row"]}) if {*old["row"]} < {*found["row"]} else []
    named = f" Variants: {', '.join(rows)}." if rows else ""
    return (
        f"{len(old):,} of {len(found):,} {what} are outdated: code or data have changed since."
        f"{named} Commits: {', '.join(every[:MOST_COMMITS])}{more}."
    )
