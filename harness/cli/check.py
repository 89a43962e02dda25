"""`harness check`: run the conformance checks of a variant."""

import json
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.arguments import settings_of
from zoo.registry import UserError

if TYPE_CHECKING:
    from zoo.conformance import Check, Configuration, Result


def check(
    name: Annotated[str, typer.Argument(help="A registered variant, or MODULE:CLASS.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME.OPTION=VALUE; NAME is the variant; repeatable."),
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Leave out long inputs, large batches, the compiler.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Names of checks, separated by commas; repeatable.", metavar="CHECK"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per check.")
    ] = False,
) -> None:
    """Run every check that a variant's traits require; exit 1 if one fails."""
    from zoo.conformance import checks_for, configurations, locate

    if ":" in name:
        # The class may be in the current folder, which an installed command does not search.
        sys.path.insert(0, "")
    owner = name.rpartition(":")[2]
    settings = settings_of(set_)
    if others := settings.keys() - {owner}:
        raise UserError(f"--set {min(others)}: only {owner!r} is checked; set its options")
    names = _names(only or [])
    pairs = [
        (configuration, check)
        for configuration in configurations(owner, locate(name), settings.get(owner, {}))
        for check in checks_for(configuration, fast=fast, only=names)
    ]
    if not pairs:
        where = f"{name}{' with --fast' * fast}"
        raise UserError(f"--only {', '.join(names)}: does not apply to {where}; give another check")
    start = perf_counter()
    failed = list(_failures(pairs, as_json))
    if not as_json:
        outcome = f"{len(failed)} of {len(pairs)} checks fail" if failed else "all checks pass"
        total = f"{perf_counter() - start:.1f} s{' with --fast' * fast}"
        typer.echo(f"{outcome}, in {total}{': ' * bool(failed)}{'; '.join(failed)}")
    raise typer.Exit(1 if failed else 0)


def _failures(pairs: Sequence[tuple["Configuration", "Check"]], as_json: bool) -> Iterator[str]:
    """The form and name of each check that fails; print a line for each check when it ends."""
    from zoo.conformance import run

    for count, (configuration, check) in enumerate(pairs, 1):
        before = perf_counter()
        result = run(check, configuration)
        seconds = perf_counter() - before
        progress = f"{count:{len(str(len(pairs)))}} of {len(pairs)} {seconds:5.1f} s"
        typer.echo(_json(result, seconds) if as_json else f"{progress}  {line(result)}")
        if not result.passed:
            yield f"{result.variant}: {result.check}"


def _names(texts: list[str]) -> list[str]:
    """The names in the values of `--only`: each is a name, which may contain a comma, or a list.

    Raises:
        UserError: there is no check of that name.
    """
    from zoo.conformance import CHECKS, require_check

    whole = {check.name for check in CHECKS}
    parts = [[text] if text in whole else text.split(",") for text in texts]
    names = [name.strip() for names in parts for name in names]
    for name in names:
        require_check(name, "--only: ")
    return names


def line(result: "Result") -> str:
    """A check in one line: verdict, configuration, name, detail, and the declared failure."""
    verdict = "ok  " if result.passed else "FAIL"
    reason = result.expected_failure
    note = f" [expected failure: {reason}]" if reason else ""
    if reason and not result.passed:
        note = f" [passes, but is declared in expected_failures: {reason}; remove it there]"
    return f"{verdict} {result.variant}: {result.check}: {result.detail}{note}"


def _json(result: "Result", seconds: float) -> str:
    fields = {"variant": result.variant, "check": result.check, "passed": result.passed}
    fields["seconds"] = round(seconds, 3)
    texts = {"detail": result.detail, "expected_failure": result.expected_failure}
    return json.dumps({**fields, **texts})
