"""The record of a study: its options, its environment, and its rows as a table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.records.fields import Frozen, Time
from harness.records.record import Environment
from zoo.registry import Value

if TYPE_CHECKING:
    import pandas as pd

Cell = Value | None
Row = Mapping[str, Cell]


class StudySpec(Frozen):
    """The identity of a result: the subject, which names the file, and the options."""

    study: str
    subject: str
    options: dict[str, Value]

    @property
    def file_name(self) -> str:
        return f"{self.study}-{re.sub(r'[/*()]', '-', self.subject)}"


class StudyRecord(Frozen):
    """The result of a study: the values of each column, or one value that all rows share.

    Records made from an older table have no environment.
    """

    schema_version: Literal[1] = 1
    spec: StudySpec
    started: Time
    environment: Environment | None
    table: dict[str, Cell | tuple[Cell, ...]] = Field(min_length=1)

    def _check(self) -> None:
        if len({len(values) for values in self.table.values() if isinstance(values, tuple)}) != 1:
            raise ValueError("its columns have no length, or several")


def table_of(rows: Sequence[Row]) -> dict[str, Any]:
    columns = {name: tuple(row[name] for row in rows) for name in rows[0]}
    same = {name for name, values in columns.items() if len({*values}) == 1}
    varied = len(same) < len(columns)
    return {n: v[0] if varied and n in same else v for n, v in columns.items()}


def frame_of(records: Iterable[StudyRecord]) -> "pd.DataFrame":
    import pandas as pd

    frames = [pd.DataFrame(dict(record.table)) for record in records]
    # Otherwise a column without a number would turn the others into objects.
    frames = [of.astype(dict.fromkeys(of.columns[of.isna().all()], float)) for of in frames]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
