"""The certificate of a variant: the results of all of its checks, on one machine."""

from typing import Literal

from harness.records.fields import Frozen, Time
from harness.records.record import Environment


class CheckResult(Frozen):
    """The result of one check of a form, as `NAME, causal`; `passed` where it is as declared."""

    form: str
    group: str
    check: str
    passed: bool
    detail: str
    expected_failure: str


class Certificate(Frozen):
    """The results of all checks of a variant; `code`: see `harness.provenance.certified_digest`."""

    schema_version: Literal[1] = 1
    variant: str
    code: str
    taken: Time
    environment: Environment
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Return whether every check has the declared outcome."""
        return all(result.passed for result in self.results)
