"""The committed certificates."""

from functools import cache
from pathlib import Path

from harness.records.certificate import Certificate, read_certificates
from reports.pages.certificates import FIGURES

ROOT = Path(__file__).parents[1]


@cache
def committed() -> dict[str, Certificate]:
    """The certificates of this repository by variant."""
    return read_certificates(ROOT / "results")


@cache
def committed_figures() -> dict[tuple[str, str], str]:
    """The figures of the page, by check and form of a variant."""
    results = (result for one in committed().values() for result in one.results)
    return {(one.check, one.form): one.detail for one in results if one.check in FIGURES}
