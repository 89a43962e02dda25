"""The ten sets of the UEA archive in Table 1 of Chen et al. (2023), each a task.

Sizes are those of the archive (Bagnall et al., 2018, arXiv 1811.00075). `max_len` is the length of
the longest series of TRAIN; train has four fifths of TRAIN. `sets.csv` has a row for each set;
`digests.csv` one for each array that is cached and each published file whose content is known.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import make_dataclass
from importlib import resources
from typing import Any

from tasks.data.files import File, Source
from tasks.registry import tasks
from tasks.uea.series import SeriesTask

OPTIONS = ("max_len", "train", "dev", "test")


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a CSV file of this package."""
    text = resources.files("tasks.uea").joinpath(table).read_text("utf-8")
    return [*csv.DictReader(text.splitlines())]


def source_of(row: Mapping[str, str]) -> Source:
    """What a set is made from: its two files, which may be compressed by xz."""
    archive = row["archive"]
    digests = [entry for entry in rows_of("digests.csv") if entry["archive"] == archive]
    return Source(
        title=f"{archive} of the UEA multivariate time series archive: {row['channels']} channels, "
        f"{row['classes']} classes",
        origin=f"https://www.timeseriesclassification.com/description.php?Dataset={archive}",
        terms="no single licence; cite Bagnall et al., arXiv 1811.00075",
        give=f"the folder of {archive}",
        pattern=rf"(?:uea_)?{re.escape(archive)}_(?:TRAIN|TEST)\.ts(?:\.xz)?",
        examples={"train": int(row["train"]) + int(row["dev"]), "test": int(row["test"])},
        arrays={entry["item"]: entry["sha256"] for entry in digests if not entry["size"]},
        files=tuple(
            File(entry["item"], int(entry["size"]), f"sha256:{entry['sha256']}", entry["url"])
            for entry in digests
            if entry["size"]
        ),
    )


def make_task(row: Mapping[str, str]) -> type[SeriesTask]:
    """The task of a set."""
    attributes = {
        "__doc__": row["description"],
        "__module__": __name__,
        "name": row["name"],
        "version": 1,
        "classes": int(row["classes"]),
        "channels": int(row["channels"]),
        "source": source_of(row),
    }
    options = [(option, int, int(row[option])) for option in OPTIONS]
    made: Any = make_dataclass(
        row["archive"].replace("-", ""), options, bases=(SeriesTask,), namespace=attributes,
        frozen=True, kw_only=True,
    )  # fmt: skip
    return made


for _row in rows_of("sets.csv"):
    tasks.register(_row["name"])(make_task(_row))
