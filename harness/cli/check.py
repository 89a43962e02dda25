"""`harness check`: run the conformance checks of a variant."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.arguments import JsonOption, path, settings_of
from harness.cli.process import Answer
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
    store: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="PATH", help="Write the certificate to this store."),
    ] = None,
    as_json: JsonOption = False,
) -> Answer:
    """Run every check that a variant's traits require; exit 1 if one fails."""
    if store and (fast or only or set_):
        raise UserError("a certificate has every check; leave --fast, --only and --set out")
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
    rows = list(_rows(pairs))
    failed = _failed(rows)
    code = 1 if failed else 0
    if store:
        typer.echo(_certify(owner, pairs[0][0], rows, store))
    if as_json:
        return Answer({"rows": rows}, code)
    outcome = f"{len(failed)} of {len(rows)} checks fail" if failed else "all checks pass"
    total = f"{perf_counter() - start:.1f} s{' with --fast' * fast}"
    return Answer(f"{outcome}, in {total}{': ' * bool(failed)}{'; '.join(failed)}", code)


def require_passed(name: str, settings: Mapping[str, Any]) -> None:
    """Run every check of a registered variant.

    Raises:
        UserError: one fails that is not declared.
    """
    from zoo.conformance import checks_for, configurations, locate

    found = configurations(name, locate(name), settings)
    rows = list(_rows([(one, check) for one in found for check in checks_for(one)]))
    if failed := _failed(rows):
        raise UserError(
            f"{'; '.join(failed)}: {len(failed)} of {len(rows)} checks fail; correct {name}, or "
            "declare them in expected_failures"
        )


def _failed(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [f"{row['variant']}: {row['check']}" for row in rows if not row["passed"]]


def _rows(pairs: Sequence[tuple["Configuration", "Check"]]) -> Iterator[dict[str, Any]]:
    """The result of each check; a line is printed for each when it ends."""
    from zoo.conformance import run

    for count, (configuration, check) in enumerate(pairs, 1):
        before = perf_counter()
        result = run(check, configuration)
        seconds = perf_counter() - before
        progress = f"{count:{len(str(len(pairs)))}} of {len(pairs)} {seconds:5.1f} s"
        typer.echo(f"{progress}  {line(result)}")
        yield {
            "variant": result.variant,
            "group": check.group,
            "check": result.check,
            "passed": result.passed,
            "seconds": round(seconds, 3),
            "detail": result.detail,
            "expected_failure": result.expected_failure,
        }


def _certify(
    name: str, configuration: "Configuration", rows: Sequence[dict[str, Any]], store: Path
) -> Path:
    """Write the certificate of the results in `rows`; its path."""
    from datetime import UTC, datetime

    from harness.environment import describe
    from harness.provenance import source_digest
    from harness.records.certificate import Certificate, CheckResult, write_certificate

    results = tuple(
        CheckResult(
            form=row["variant"], **{k: row[k] for k in CheckResult.model_fields if k in row}
        )
        for row in rows
    )
    certificate = Certificate(
        variant=name,
        code=source_digest(configuration.variant),
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=describe("cpu"),
        results=results,
    )
    return write_certificate(store, certificate)


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
