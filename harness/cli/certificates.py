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
    "linear FLOPs": "Growth of the FLOPs of variants that claim a linear cost",
    "constant-size state": "State of recurrent variants",
}
"""Checks whose figures are on the page: they are the same on every machine."""

HEAD = f"""\
# Certificates

One row a variant (`fla-*` need CUDA and are left out), one column a group of checks.
{PASSED}: every check of the group that the variant's traits call for passed, in each of its forms.
{NOT_CLAIMED}: the traits call for none. A number refers to a known check failure.
`harness check NAME` prints the figures behind a row; `python -m harness.cli.certificates` writes
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
    for name, variant in variants.items():
        if variant.unchecked:
            typer.echo(f"{name} is left out: {variant.unchecked}")
            continue
        forms = configurations(name, variant)
        results[name] = [one for form in forms for one in examine(form)]
        failed = [one for one in results[name] if not one.passed]
        typer.echo("\n".join([name, *map(line, failed)]))
    if not all(one.passed for of in results.values() for one in of):
        raise typer.Exit(1)
    typer.echo(write_atomic(out, page(results).encode()))


def page(results: Mapping[str, Sequence[Result]]) -> str:
    """The page as Markdown, from the results of every form of each variant, which all passed."""
    every = [(name, one) for name, of in results.items() for one in of]
    declared = [(n, one.check, one.expected_failure) for n, one in every if one.expected_failure]
    failures = list(dict.fromkeys(declared))
    groups: dict[str, set[str]] = {}
    for check in CHECKS:
        groups.setdefault(check.group, set()).add(check.name)

    def cell(name: str, checks: set[str]) -> str:
        if not any(one.check in checks for one in results[name]):
            return NOT_CLAIMED
        known = ((i, check) for i, (of, check, _) in enumerate(failures, 1) if of == name)
        return ", ".join(str(i) for i, check in known if check in checks) or PASSED

    rows = [[name, *(cell(name, checks) for checks in groups.values())] for name in results]
    parts = [HEAD, table(["attention", *groups], rows), "\n## Known check failures\n\n"]
    parts += [f"{i}. {escape(': '.join(failure))}\n" for i, failure in enumerate(failures, 1)]
    for check, title in FIGURES.items():
        found = [one for of in results.values() for one in of if one.check == check]
        figures = [[one.variant, escape(one.detail)] for one in found]
        parts += [f"\n## {title}\n\n", table(["attention", "figure"], figures)]
    return "".join(parts)


if __name__ == "__main__":
    script(main)
