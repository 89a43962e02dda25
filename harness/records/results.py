"""Records other than runs and costs: certificates, baselines, shallow models and studies."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.records.fields import Count, Fraction, Frozen, Seconds, Time
from harness.records.record import Environment
from harness.records.spec import TaskSpec
from tasks.metrics import Metric
from zoo.registry import Value

if TYPE_CHECKING:
    import pandas as pd

Cell = Value | None
Row = Mapping[str, Cell]


class CheckResult(Frozen):
    """The result of one check of a form, as `NAME, causal`; `passed` if it is as declared."""

    form: str
    group: str
    check: str
    passed: bool
    detail: str
    expected_failure: str


class Certificate(Frozen):
    """The results of all checks of a variant, with the versions of the variant and the checks.

    `variant` has its options in brackets; `partial` is one whose checks were interrupted.
    """

    schema_version: Literal[2] = 2
    variant: str
    version: str
    checks: Count
    taken: Time
    environment: Environment
    results: tuple[CheckResult, ...]
    partial: bool = False

    @property
    def passed(self) -> bool:
        return not self.partial and all(result.passed for result in self.results)


class TaskBaselines(Frozen):
    """The baselines of a task on its data; `left` names the steps that remain to be fitted.

    `version` is `tasks.BASELINES_VERSION`, the set of baselines of the code.
    """

    schema_version: Literal[2] = 2
    spec: TaskSpec
    version: Count
    metric: Metric
    scores: Mapping[str, float]
    left: tuple[str, ...] = ()
    started: Time
    environment: Environment


class ShallowModel(Frozen):
    name: str
    dev: Fraction
    test: Fraction
    seconds: Seconds


class ShallowStudy(Frozen):
    schema_version: Literal[1] = 1
    task: str
    sizes: Mapping[str, Count]
    digests: Mapping[str, str]
    models: tuple[ShallowModel, ...]
    started: Time
    environment: Environment

    @property
    def name(self) -> str:
        return self.task.partition("@")[0]


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

    def model_post_init(self, _: Any) -> None:
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
