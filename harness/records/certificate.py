"""The certificate of a variant: the results of all of its checks, on one machine."""

from collections.abc import Iterable
from typing import Literal

from harness.records.fields import Frozen, Time
from harness.records.record import Environment


class CheckResult(Frozen):
    """The result of one check.

    Attributes:
        form: the variant, with `, causal` for its causal form.
        passed: whether the outcome is as declared: a pass, or a failure that is expected.
        detail: the measured value that decided.
        expected_failure: the declared reason; empty where none is declared.
    """

    form: str
    group: str
    check: str
    passed: bool
    detail: str
    expected_failure: str


class Certificate(Frozen):
    """The results of every check of a variant.

    Attributes:
        code: SHA-256 of its sources and of the checks, see `harness.provenance.certified_digest`.
    """

    schema_version: Literal[1] = 1
    variant: str
    code: str
    taken: Time
    environment: Environment
    results: tuple[CheckResult, ...]

    def covers(self, code: str, checks: Iterable[tuple[str, str]]) -> bool:
        """Return whether it is of that known source, and of these forms and checks in order."""
        present = [(result.form, result.check) for result in self.results]
        return self.code == code != "" and present == [*checks]

    @property
    def passed(self) -> bool:
        """Return whether every check has the declared outcome."""
        return all(result.passed for result in self.results)
