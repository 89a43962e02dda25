"""Writes docs/certificates.md, the results of all checks: `python -m harness.cli.certificates`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.arguments import path
from harness.cli.check import line
from harness.cli.process import script
from harness.records.files import require_page, write_atomic
from reports.markdown import escape, table
from zoo.conformance import CHECKS, Result, configurations, examine
from zoo.variants import variants

PASSED, NOT_CLAIMED = "✓", "–"

FIGURES = {
    "token mixing": "Whether an output depends on other tokens, and how far away",
    "identities": "Settings at which a variant equals another one",
    "linear FLOPs": "Growth of the FLOPs of variants that claim a linear cost",
    "constant-size state": "State of recurrent variants",
}
"""Checks whose figures are on the page: they are the same on every machine."""

HEAD = f"""\
# Certificates

One row per variant (`fla-*` need CUDA and are left out), one column per group of checks.
{PASSED}: every check of the group that the variant's traits require passed, in every configuration.
{NOT_CLAIMED}: the traits require none. A number refers to a known check failure.
`harness check NAME` prints the details of a row; `python -m harness.cli.certificates` writes
this page.

"""


def main(
    out: Annotated[Path, typer.Option(parser=path, help="The page to write.")] = Path(
        "docs/certificates.md"
    ),
) -> None:
    """Run every check on every variant and write the page; exit 1 where one fails."""
    require_page(out)
    results: dict[str, list[Result]] = {}
    for name, variant in variants.built_in():
        if variant.unchecked:
            typer.echo(f"{name} is left out: {variant.unchecked}")
            continue
        results[name] = [
            result for form in configurations(name, variant) for result in examine(form)
        ]
        failed = [result for result in results[name] if not result.passed]
        typer.echo("\n".join([name, *map(line, failed)]))
    if not all(result.passed for own in results.values() for result in own):
        raise typer.Exit(1)
    typer.echo(write_atomic(out, page(results).encode()))


def page(results: Mapping[str, Sequence[Result]]) -> str:
    """The page as Markdown, from the results of every configuration of each variant, all passed."""
    failures = dict.fromkeys(
        (name, result.check, result.expected_failure)
        for name, own in results.items()
        for result in own
        if result.expected_failure
    )
    groups: dict[str, set[str]] = {}
    for check in CHECKS:
        groups.setdefault(check.group, set()).add(check.name)

    def cell(name: str, checks: set[str]) -> str:
        if not any(result.check in checks for result in results[name]):
            return NOT_CLAIMED
        numbers = [
            str(i)
            for i, (variant, check, _) in enumerate(failures, 1)
            if variant == name and check in checks
        ]
        return ", ".join(numbers) or PASSED

    rows = [[name, *(cell(name, checks) for checks in groups.values())] for name in results]
    parts = [HEAD, table(["attention", *groups], rows), "\n## Known check failures\n\n"]
    parts += [f"{i}. {escape(': '.join(failure))}\n" for i, failure in enumerate(failures, 1)]
    for check, title in FIGURES.items():
        figures = [
            [result.variant, escape(result.detail)]
            for own in results.values()
            for result in own
            if result.check == check
        ]
        parts += [f"\n## {title}\n\n", table(["attention", "figure"], figures)]
    return "".join(parts)


if __name__ == "__main__":
    script("certificates", main)
