"""`harness check`: run the conformance checks of a variant or a task."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from harness.arguments import settings_of
from harness.cli.process import Answer
from zoo.registry import UserError, printable

if TYPE_CHECKING:
    from zoo.conformance import Result


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options of `harness check`.

    Attributes:
        name: A registered variant or task, MODULE:CLASS, or the file of a published row.
        set_: NAME.OPTION=VALUE; NAME is the variant or the task; repeatable.
        fast: Leave out long inputs, large batches, the compiler; baselines of a task.
        only: Names of checks, separated by commas; repeatable.
        store: Write the certificate to this store.
        repeat: Train this many runs of a published row again, and compare their scores.
        as_json: Print one JSON document; progress goes to stderr.
    """

    name: Annotated[str, {"argument": True}]
    set_: list[str] | None = None
    fast: bool = False
    only: list[str] | None = None
    store: Path | None = None
    repeat: int = 0
    as_json: bool = False


def check(options: CheckOptions) -> Answer:
    """Run every check of a variant that its traits require, or of a task; exit 1 if one fails."""
    name, fast, owner = options.name, options.fast, options.name.rpartition(":")[2]
    if name.endswith(".jsonl"):
        return _check_row(options)
    if options.repeat:
        raise UserError(f"--repeat trains runs of a published row; {name} is none, leave it out")
    if options.store and (fast or options.only or options.set_):
        raise UserError("a certificate has every check; leave --fast, --only and --set out")
    from harness.checks import certify, checks_of, failed, kind_of, results_of

    kind = kind_of(name)
    if options.store and kind == "task":
        raise UserError(f"{name} is a task, which has no certificate; leave --store out")
    settings = settings_of(options.set_)
    if others := settings.keys() - {owner}:
        raise UserError(f"--set {min(others)}: only {owner!r} is checked; set its options")
    names = _names(options.only or [], kind)
    checks = checks_of(name, settings.get(owner, {}), fast=fast, only=names)
    start = perf_counter()
    rows = results_of(checks, show)
    wrong = failed(rows, kind)
    if options.store:
        typer.echo(certify(owner, checks, rows, options.store))
    outcome = f"{len(wrong)} of {len(rows)} checks fail" if wrong else "all checks pass"
    which = f": {'; '.join(wrong)}" if wrong else ""
    seconds, faster = perf_counter() - start, " with --fast" * fast
    text = f"{outcome}, in {seconds:.1f} s{faster}{which}"
    return Answer({"rows": rows} if options.as_json else text, int(bool(wrong)))


def show(total: int, count: int, seconds: float, label: str, result: "Result") -> None:
    """Print the result of a check."""
    progress = f"{count:{len(str(total))}} of {total} {seconds:5.1f} s"
    typer.echo(f"{progress}  {line(label, result)}")


def _check_row(options: CheckOptions) -> Answer:
    """Verify the file of a published row; exit 1 if it is not as a new one would be."""
    from harness import rows

    path = Path(options.name)
    if options.store or options.fast or options.only or options.set_:
        raise UserError(f"{path} is the file of a row; leave all options but --repeat out")
    try:
        row = rows.of_file(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give another file") from error
    found: list[rows.Finding] = []
    for finding in chain(rows.verify(row), rows.repeat(row, options.repeat)):
        text = f"{'ok  ' if finding.passed else 'FAIL'} {finding.check}: {finding.detail}"
        typer.echo(printable(text.removesuffix(": ")))
        found.append(finding)
    failed = [finding.check for finding in found if not finding.passed]
    text = (
        f"{', '.join(failed)}: {len(failed)} of {len(found)} checks fail"
        if failed
        else (f"row {row.label} of {row.suite.key}: {len(row.lines)} records, all checks pass")
    )
    content = {"rows": [finding._asdict() for finding in found]}
    return Answer(content if options.as_json else text, int(bool(failed)))


def _names(texts: list[str], kind: str) -> list[str]:
    """The names in the values of `--only`: each is a name, which may contain a comma, or a list."""
    from harness.checks import conformance_of

    whole = {check.name for check in conformance_of(kind).CHECKS}
    listed = [[text] if text in whole else text.split(",") for text in texts]
    return [name.strip() for names in listed for name in names]


def line(label: str, result: "Result") -> str:
    """A check in one line: verdict, configuration, name, detail, and the declared failure."""
    verdict = "ok  " if result.passed else "FAIL"
    reason = result.expected_failure
    note = f" [expected failure: {reason}]" if reason else ""
    if reason and not result.passed:
        note = f" [passes, but is declared in expected_failures: {reason}; remove it there]"
    return f"{verdict} {label}: {result.check}: {result.detail}{note}"
