"""The certificate of a variant: the results of all of its checks, on one machine."""

from pathlib import Path
from typing import Literal

from harness.records.fields import Frozen, Time
from harness.records.files import read_text, write_atomic
from harness.records.record import Environment
from zoo.registry import UserError

FOLDER = "certificates"
"""The folder of certificates in a store."""


class CheckResult(Frozen):
    """The result of one check.

    Attributes:
        form: the variant, with `, causal` for its causal form.
        group: of the check.
        check: its name.
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
        schema_version: of this class.
        variant: its name.
        code: SHA-256 of its sources and of the checks, see `harness.provenance.certified_digest`.
        taken: when the checks began.
        environment: of the checks.
        results: of every check of every form.
    """

    schema_version: Literal[1] = 1
    variant: str
    code: str
    taken: Time
    environment: Environment
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every check has the declared outcome."""
        return all(result.passed for result in self.results)


def write_certificate(store: Path, certificate: Certificate) -> Path:
    """Write a certificate into a store, in place of an earlier one of the variant."""
    text = certificate.model_dump_json(indent=1) + "\n"
    return write_atomic(store / FOLDER / f"{certificate.variant}.json", text.encode())


def read_certificates(store: Path) -> dict[str, Certificate]:
    """The certificates of a store by variant, in order.

    Raises:
        UserError: a file is not a certificate.
    """
    found = {}
    for path in sorted((store / FOLDER).glob("*.json")):
        try:
            one = Certificate.model_validate_json(read_text(path), strict=True)
            if path.stem != one.variant:
                raise ValueError(f"it is of {one.variant}")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} is not a certificate; delete it, and run: harness check {path.stem} "
                f"--store {store}"
            ) from error
        found[one.variant] = one
    return found
