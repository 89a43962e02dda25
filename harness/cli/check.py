"""`harness check`: run the conformance checks of a variant or a task."""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.arguments import settings_of
from harness.cli.process import Answer
from zoo.registry import UserError, printable, unknown

if TYPE_CHECKING:
    from zoo.conformance import Configuration, Result

Pair = tuple[Any, Any]
"""A form of a variant, or a task, and one of its checks."""

Row = dict[str, Any]
"""The result of a check."""


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
    if ":" in name:
        # The class may be in the current folder, which an installed command does not search.
        sys.path.insert(0, "")
    kind, conformance = _conformance(name)
    if options.store and kind == "task":
        raise UserError(f"{name} is a task, which has no certificate; leave --store out")
    settings, names = settings_of(options.set_), _names(options.only or [], conformance)
    if others := settings.keys() - {owner}:
        raise UserError(f"--set {min(others)}: only {owner!r} is checked; set its options")
    pairs = _pairs(conformance, name, settings.get(owner, {}), fast, names)
    faster = " with --fast" * fast
    if not pairs:
        raise UserError(
            f"--only {', '.join(names)}: does not apply to {name}{faster}; give another check"
        )
    start = perf_counter()
    rows = _rows(pairs, kind, conformance)
    failed = _failed(rows, kind)
    if options.store:
        typer.echo(_certify(owner, pairs[0][0], rows, options.store))
    outcome = f"{len(failed)} of {len(rows)} checks fail" if failed else "all checks pass"
    which = f": {'; '.join(failed)}" if failed else ""
    text = f"{outcome}, in {perf_counter() - start:.1f} s{faster}{which}"
    return Answer({"rows": rows} if options.as_json else text, int(bool(failed)))


def _check_row(options: CheckOptions) -> Answer:
    """Verify the file of a published row; exit 1 if it is not as a new one would be."""
    from harness import rows
    from harness.cli.pack import needs_seeds
    from harness.stores import rules_of, stores_of

    path = Path(options.name)
    if options.store or options.fast or options.only or options.set_:
        raise UserError(f"{path} is the file of a row; leave all options but --repeat out")
    try:
        row = rows.of_file(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give another file") from error
    seeds = needs_seeds(row.suite, row.runs, rules_of(*stores_of(None)))
    found: list[rows.Finding] = []
    for finding in chain(rows.verify(row, seeds), rows.repeat(row, options.repeat)):
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


def require_passed(name: str, settings: Mapping[str, Any], store: Path) -> None:
    """Run every check of a registered variant, unless the store has its certificate.

    A certificate is of the default options; it is written where all checks pass.

    Raises:
        UserError: one fails that is not declared.
    """
    from harness.provenance import certified_digest
    from harness.records.certificate import Certificate
    from harness.records.store import CertificateStore
    from zoo import conformance

    pairs = _pairs(conformance, name, settings)
    code, checks = certified_digest(pairs[0][0].variant), [(f.label, c.name) for f, c in pairs]
    found = CertificateStore.within(store).read_one(name)
    certified = isinstance(found, Certificate) and found.passed and found.covers(code, checks)
    if certified and not settings:
        typer.echo(f"{name}: its certificate is already present")
        return
    rows = _rows(pairs, "variant", conformance)
    if failed := _failed(rows, "variant"):
        raise UserError(
            f"{'; '.join(failed)}: {len(failed)} of {len(rows)} checks fail; correct {name}, or "
            "declare them in expected_failures"
        )
    if code and not settings:
        typer.echo(_certify(name, pairs[0][0], rows, store))


def _conformance(name: str) -> tuple[str, Any]:
    """The kind of what `name` is, a variant or a task, and the module of its checks."""
    from zoo import conformance
    from zoo.variants import variants

    if name not in variants.names():
        from tasks import conformance as of_tasks
        from tasks.registry import tasks

        if of_tasks.locate(name):
            return "task", of_tasks
        if not {":", "+"} & {*name}:
            known = [*variants.names(), *tasks.names()]
            raise UserError(unknown("attention variant or task", name, known))
    return "variant", conformance


def _pairs(
    conformance: Any,
    name: str,
    settings: Mapping[str, Any],
    fast: bool = False,
    only: Sequence[str] = (),
) -> list[Pair]:
    """Every form of a variant with each of its checks; or a task."""
    label, located = name.rpartition(":")[2], conformance.locate(name)
    return [
        (form, check)
        for form in conformance.configurations(label, located, settings)
        for check in conformance.checks_for(form, fast=fast, only=only)
    ]


def _failed(rows: Sequence[Row], kind: str) -> list[str]:
    return [f"{row[kind]}: {row['check']}" for row in rows if not row["passed"]]


def _rows(pairs: Sequence[Pair], kind: str, conformance: Any) -> list[Row]:
    """The result of each check; a line is printed for each when it ends."""
    rows = []
    for count, (form, check) in enumerate(pairs, 1):
        before = perf_counter()
        with _without_logs():
            result = conformance.run(check, form)
        seconds = perf_counter() - before
        progress = f"{count:{len(str(len(pairs)))}} of {len(pairs)} {seconds:5.1f} s"
        typer.echo(f"{progress}  {line(form.label, result)}")
        rows.append(
            {
                kind: form.label, "group": check.group, "check": result.check,
                "passed": result.passed, "seconds": round(seconds, 3), "detail": result.detail,
                "expected_failure": result.expected_failure,
            }
        )  # fmt: skip
    return rows


@contextmanager
def _without_logs() -> Iterator[None]:
    """Without the tracebacks that PyTorch's compiler logs: the result of a check has the error."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _certify(name: str, form: "Configuration", rows: Sequence[Row], store: Path) -> Path:
    """Write the certificate of the results in `rows`; its path."""
    from harness.environment import describe
    from harness.provenance import certified_digest
    from harness.records.certificate import Certificate, CheckResult
    from harness.records.fields import now
    from harness.records.store import CertificateStore

    names = CheckResult.model_fields.keys() - {"form"}
    results = (CheckResult(form=row["variant"], **{n: row[n] for n in names}) for row in rows)
    certificate = Certificate(
        variant=name, code=certified_digest(form.variant), taken=now(),
        environment=describe("cpu"), results=tuple(results),
    )  # fmt: skip
    certificates = CertificateStore.within(store)
    certificates.remove_partial_files()
    return certificates.write(certificate)


def _names(texts: list[str], conformance: Any) -> list[str]:
    """The names in the values of `--only`: each is a name, which may contain a comma, or a list."""
    whole = {check.name for check in conformance.CHECKS}
    listed = [[text] if text in whole else text.split(",") for text in texts]
    names = [name.strip() for names in listed for name in names]
    for name in names:
        conformance.require_check(name, "--only: ")
    return names


def line(label: str, result: "Result") -> str:
    """A check in one line: verdict, configuration, name, detail, and the declared failure."""
    verdict = "ok  " if result.passed else "FAIL"
    reason = result.expected_failure
    note = f" [expected failure: {reason}]" if reason else ""
    if reason and not result.passed:
        note = f" [passes, but is declared in expected_failures: {reason}; remove it there]"
    return f"{verdict} {label}: {result.check}: {result.detail}{note}"
