"""Numbers that papers published, measured by others: read from CSV, never combined with records."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Number(NamedTuple):
    """One published number as printed, with this project's names of task and variant.

    For a task that this project does not have, `task` is the name of the data set, or `average` for
    the mean over the paper's tasks.
    """

    task: str
    attention: str
    value: str
    unit: str  # %, s/1K steps, GB or normalised return
    source: str
    table: str

    @property
    def reference(self) -> str:
        """Source and table."""
        return f"{self.source}, {self.table}"


def published(task_key: str, attention: str) -> Mapping[str, Number]:
    """What was published for a variant on a task, by unit.

    Only the key of the published task has numbers: other options, another version or shuffled
    blocks make another task.
    """
    return _numbers().get((task_key, attention), {})


def published_on(task_key: str, unit: str) -> list[Number]:
    """What was published on a task in a unit, for any variant."""
    return [
        numbers[unit]
        for (task, _), numbers in _numbers().items()
        if task == task_key and unit in numbers
    ]


@cache
def _numbers() -> Mapping[tuple[str, str], Mapping[str, Number]]:
    index: dict[tuple[str, str], dict[str, Number]] = {}
    for file in sorted((files("reports") / "published").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".csv"):
            for line in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
                number = Number(**line)
                index.setdefault((number.task, number.attention), {})[number.unit] = number
    return index
