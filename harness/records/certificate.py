"""The certificate of a variant: the results of all its checks, on one machine."""

from typing import Literal

from harness.records.fields import Count, Frozen, Time
from harness.records.record import Environment


class CheckResult(Frozen):
    """The result of one check of a form, as `NAME, causal`; `passed` if it is as declared."""

    form: str
    group: str
    check: str
    passed: bool
    detail: str
    expected_failure: str


class Certificate(Frozen):
    """The results of all checks of a variant, with the versions of the variant and the checks."""

    schema_version: Literal[2] = 2
    variant: str
    version: str
    checks: Count
    taken: Time
    environment: Environment
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)
