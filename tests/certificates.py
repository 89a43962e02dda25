"""The figures of the committed page of certificates."""

from functools import cache
from pathlib import Path

from harness.cli.certificates import FIGURES

PAGE = Path(__file__).parents[1] / "docs" / "certificates.md"


@cache
def committed_figures() -> dict[tuple[str, str], str]:
    """Details on the page, by check and form of a variant; none has characters to escape."""
    figures = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title, *lines = section.splitlines()
        for check in (check for check, heading in FIGURES.items() if heading == title):
            rows = [line.strip("|").split(" | ") for line in lines if line.startswith("|")]
            figures |= {(check, form.strip()): text.strip() for form, text in rows[2:]}
    return figures
