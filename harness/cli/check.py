"""`harness check`: run the conformance checks of a variant."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.arguments import settings_of
from zoo.registry import UserError

if TYPE_CHECKING:
    from zoo.conformance import Result


def check(
    name: Annotated[str, typer.Argument(help="A registered variant, or MODULE:CLASS.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME.OPTION=VALUE; NAME is the variant; repeatable."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per check.")
    ] = False,
) -> None:
    """Run every check that a variant's traits require; exit 1 if one fails."""
    from zoo.conformance import configurations, examine, locate

    if ":" in name:
        # The class may be in the current folder, which an installed command does not search.
        sys.path.insert(0, "")
    owner = name.rpartition(":")[2]
    settings = settings_of(set_)
    if others := settings.keys() - {owner}:
        raise UserError(f"--set {min(others)}: only {owner!r} is checked; set its options")
    count, failed = 0, []
    for configuration in configurations(owner, locate(name), settings.get(owner, {})):
        for result in examine(configuration):
            count += 1
            if not result.passed:
                failed.append(f"{result.variant}: {result.check}")
            typer.echo(_json(result) if as_json else line(result))
    if failed and not as_json:
        typer.echo(f"{len(failed)} of {count} checks fail: {'; '.join(failed)}")
    raise typer.Exit(1 if failed else 0)


def line(result: "Result") -> str:
    """A check in one line: verdict, configuration, name, detail, and the declared failure."""
    verdict = "ok  " if result.passed else "FAIL"
    reason = result.expected_failure
    note = f" [expected failure: {reason}]" if reason else ""
    if reason and not result.passed:
        note = f" [passes, but is declared in expected_failures: {reason}; remove it there]"
    return f"{verdict} {result.variant}: {result.check}: {result.detail}{note}"


def _json(result: "Result") -> str:
    fields = {"variant": result.variant, "check": result.check, "passed": result.passed}
    texts = {"detail": result.detail, "expected_failure": result.expected_failure}
    return json.dumps({**fields, **texts})
