"""The page of certificates: which checks each variant passes."""

from collections.abc import Iterable

from harness.records.certificate import Certificate, CheckResult
from reports.markdown import escape, rendered

PASSED, NOT_CLAIMED, FAILED = "✓", "–", "✗"

FIGURES = {
    "token mixing": "Whether an output depends on other tokens, and how far away",
    "identities": "Settings at which a variant equals another one",
    "linear FLOPs": "Growth of the FLOPs of variants that claim a linear cost",
    "constant-size state": "State of recurrent variants",
}
"""Checks whose figures are on the page: they are the same on every machine."""


def certificates_page(certificates: Iterable[Certificate]) -> str:
    """The page as Markdown."""
    results = {certificate.variant: certificate.results for certificate in certificates}
    every = [result for of_variant in results.values() for result in of_variant]
    groups = dict.fromkeys(result.group for result in every)
    failures = list(dict.fromkeys(_failure(result) for result in every if result.expected_failure))

    def text(name: str, group: str) -> str:
        of_group = [result for result in results[name] if result.group == group]
        if not all(result.passed for result in of_group):
            return FAILED
        known_failures = (_failure(result) for result in of_group if result.expected_failure)
        numbers = ", ".join(str(failures.index(f) + 1) for f in dict.fromkeys(known_failures))
        return numbers or (PASSED if of_group else NOT_CLAIMED)

    figures = [
        (title, [[result.form, escape(result.detail)] for result in every if result.check == check])
        for check, title in FIGURES.items()
    ]
    rows = [[name, *(text(name, group) for group in groups)] for name in results]
    return rendered(
        "certificates.md.j2", head=["attention", *groups], rows=rows, failures=failures,
        figures=figures,
    )  # fmt: skip


def _failure(result: CheckResult) -> tuple[str, str, str]:
    return result.form.removesuffix(", causal"), result.check, result.expected_failure
