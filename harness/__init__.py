"""Runs comparisons of attention variants, and reads their records as data frames."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load"]


def load(store: Path | str = "runs") -> "pd.DataFrame":
    """The runs of a store, a row each; for its columns see `harness.records.frame.of_records`.

    Raises:
        UserError: the folder cannot be listed.
    """
    from harness.records.frame import frame

    return frame(store)
