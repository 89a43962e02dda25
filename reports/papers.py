"""Numbers that papers published, measured by others: read from CSV, never joined into ours."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

AVERAGE = "average"
"""What the files call a paper's own mean over its tasks."""


class Number(NamedTuple):
    """One published number.

    Attributes:
        task: key of our task that repeats the paper's, `listops@1`; where we have none, the data
            set's name; `average` for the paper's mean.
        attention: our name of the variant.
        value: as printed, so that no digit is added or lost.
        unit: `%`, `s/1K steps` or `GB`.
        source: who measured it.
        table: of the source.
    """

    task: str
    attention: str
    value: str
    unit: str
    source: str
    table: str

    @property
    def place(self) -> str:
        """Source and table, for a note."""
        return f"{self.source}, {self.table}"


@cache
def numbers() -> tuple[Number, ...]:
    """Every published number that ships with the reports, in order of file and line."""
    found: list[Number] = []
    for file in sorted((files("reports") / "published").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".csv"):
            lines = file.read_text(encoding="utf-8").splitlines()
            found += [Number(**line) for line in csv.DictReader(lines)]
    return tuple(found)


def published(task_key: str, attention: str) -> Mapping[str, Number]:
    """What was published for a variant on a task, by unit.

    The key is that of the published task and no other: other options, another version and shuffled
    blocks make another task, and have no numbers.
    """
    return _index().get((task_key, attention), {})


@cache
def _index() -> Mapping[tuple[str, str], Mapping[str, Number]]:
    index: dict[tuple[str, str], dict[str, Number]] = {}
    for number in numbers():
        if number.task != AVERAGE:
            index.setdefault((number.task, number.attention), {})[number.unit] = number
    return index
