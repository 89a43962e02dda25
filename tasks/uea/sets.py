"""The ten sets of the UEA archive in Table 1 of Chen et al. (2023), each a task.

Sizes are the archive's (Bagnall et al., 2018, arXiv 1811.00075). `max_len` is the length of
the longest series of TRAIN; train has four fifths of TRAIN. `sets.csv` has a row for each set.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import make_dataclass
from importlib import resources
from typing import Any

from tasks.data.files import Source, digests_of
from tasks.registry import tasks
from tasks.uea.series import SeriesTask

OPTIONS = ("max_len", "train", "dev", "test")


def make_task(row: Mapping[str, str]) -> type[SeriesTask]:
    """The task of a set; each of its two files may be compressed by xz."""
    archive = row["archive"]
    source = Source(
        title=f"{archive} of the UEA multivariate time series archive: {row['channels']} channels, "
        f"{row['classes']} classes",
        origin=f"https://www.timeseriesclassification.com/description.php?Dataset={archive}",
        terms="no single licence; cite Bagnall et al., arXiv 1811.00075",
        give=f"the folder of {archive}",
        pattern=rf"(?:uea_)?{re.escape(archive)}_(?:TRAIN|TEST)\.ts(?:\.xz)?",
        examples={"train": int(row["train"]) + int(row["dev"]), "test": int(row["test"])},
        **digests_of(archive),
    )
    attributes = {
        "__doc__": row["description"],
        "__module__": __name__,
        "name": row["name"],
        "version": 1,
        "classes": int(row["classes"]),
        "channels": int(row["channels"]),
        "source": source,
    }
    options = [(option, int, int(row[option])) for option in OPTIONS]
    made: Any = make_dataclass(
        archive.replace("-", ""), options, bases=(SeriesTask,), namespace=attributes,
        frozen=True, kw_only=True,
    )  # fmt: skip
    return made


_TABLE = resources.files("tasks.uea").joinpath("sets.csv").read_text("utf-8")
for _row in csv.DictReader(_TABLE.splitlines()):
    tasks.register(_row["name"])(make_task(_row))
