"""The page of certificates: how many checks each variant passes, and which it does not."""

from collections.abc import Iterable

from harness.records.results import Certificate, CheckResult
from reports.markdown import escape, rendered
from reports.text import NOTHING


def certificates_page(certificates: Iterable[Certificate]) -> str:
    rows = []
    for certificate in certificates:
        results = certificate.results
        known = [result for result in results if result.passed and result.expected_failure]
        failed = [result for result in results if not result.passed]
        passed = len(results) - len(known) - len(failed)
        rows.append([certificate.variant, str(passed), _names(known), _names(failed)])
    return rendered("certificates.md.j2", rows=rows)


def _names(results: list[CheckResult]) -> str:
    return escape("; ".join(dict.fromkeys(result.check for result in results))) or NOTHING
