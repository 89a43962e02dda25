"""`harness check`: run the conformance checks of a variant."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.arguments import SetOption, settings_of
from zoo.registry import UserError

if TYPE_CHECKING:
    from zoo.conformance import Result


def check(
    name: Annotated[str, typer.Argument(help="A registered variant, or MODULE:CLASS.")],
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a check.")] = False,
) -> None:
    """Run every check that a variant's traits call for; exit 1 where one fails."""
    from zoo.conformance import examine, locate, subjects

    if ":" in name:
        # The class may be in the current folder, which an installed command does not search.
        sys.path.insert(0, "")
    owner = name.rpartition(":")[2]
    settings = settings_of(set_)
    if others := settings.keys() - {owner}:
        raise UserError(f"--set {min(others)}: only {owner!r} is checked; set its options")
    count, failed = 0, []
    for subject in subjects(owner, locate(name), settings.get(owner, {})):
        for result in examine(subject):
            count += 1
            if not result.passed:
                failed.append(f"{result.form}: {result.check}")
            typer.echo(_json(result) if as_json else line(result))
    if failed and not as_json:
        typer.echo(f"{len(failed)} of {count} checks fail: {'; '.join(failed)}")
    raise typer.Exit(1 if failed else 0)


def line(result: "Result") -> str:
    """A check in one line: verdict, form, name, the deciding figure, a declared failure."""
    verdict = "ok  " if result.passed else "FAIL"
    note = f" [expected failure: {result.gap}]" if result.gap else ""
    if result.gap and not result.passed:
        note = f" [passes, but is declared in expected_failures: {result.gap}; remove it there]"
    return f"{verdict} {result.form}: {result.check}: {result.finding.figure}{note}"


def _json(result: "Result") -> str:
    fields = {"form": result.form, "check": result.check, "passed": result.passed}
    figures = {"figure": result.finding.figure, "expected_failure": result.gap}
    return json.dumps({**fields, **figures})
