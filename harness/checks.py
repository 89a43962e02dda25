"""Conformance checks of variants and tasks by name, and certificates of variants."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.environment import describe, version_of
from harness.questions import composed
from harness.records.fields import now
from harness.records.results import Certificate, CheckResult
from harness.records.spec import label_of
from harness.records.store import CertificateStore
from tasks import conformance as of_tasks
from tasks.registry import tasks
from zoo import conformance as of_variants
from zoo.registry import UserError, unknown
from zoo.variants import variants

LOG = logging.getLogger(__name__)
Row = dict[str, Any]
CONFORMANCE: Mapping[str, Any] = {"variant": of_variants, "task": of_tasks}  # Modules of checks


class Checks(NamedTuple):
    kind: str
    pairs: list[tuple[Any, Any]]


def examine(
    name: str, settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}), *,
    fast: bool = False, only: Sequence[str] | None = None, store: Path | None = None,
) -> tuple[list[Row], list[str], list[Path]]:  # fmt: skip
    # Certifies a variant to `store`. Returns the results, the failures, and the certificate.
    owner = name.rpartition(":")[2]
    if only is not None and not only:
        raise UserError(f"only={only!r} names no check; name one, or leave it out to run all")
    if store and (fast or only or settings):
        raise UserError("a certificate has every check; leave --fast, --only and --set out")
    if store and kind_of(name) == "task":
        raise UserError(f"{name} is a task, which has no certificate; leave --store out")
    if others := settings.keys() - {owner}:
        raise UserError(f"--set {min(others)}: only {owner!r} is checked; set its options")
    checks = checks_of(name, settings.get(owner, {}), fast=fast, only=only or ())
    rows = results_of(checks)
    certificates = [certify(owner, checks, rows, store)] if store else []
    return rows, failed(rows, checks.kind), certificates


def kind_of(name: str) -> str:
    if ":" in name:
        # An installed command does not search the current folder.
        sys.path.insert(0, "")
    if name in variants.names():
        return "variant"
    if of_tasks.locate(name):
        return "task"
    if not {":", "+"} & {*name}:
        known = [*variants.names(), *tasks.names()]
        raise UserError(unknown("attention variant or task", name, known))
    return "variant"


def checks_of(
    name: str, options: Mapping[str, Any], *, fast: bool = False, only: Sequence[str] = ()
) -> Checks:
    # `only` has names, which may contain a comma, or names separated by commas.
    kind = kind_of(name)
    conformance = CONFORMANCE[kind]
    whole = {check.name for check in conformance.CHECKS}
    listed = [[text] if text in whole else text.split(",") for text in only]
    only = [check.strip() for names in listed for check in names]
    for check in only:
        conformance.require_check(check, "--only: ")
    label, located = name.rpartition(":")[2], conformance.locate(name)
    pairs = [
        (form, check)
        for form in conformance.configurations(label, located, options)
        for check in conformance.checks_for(form, fast=fast, only=only)
    ]
    if not pairs:
        faster = " with --fast" * fast
        raise UserError(
            f"--only {', '.join(only)}: does not apply to {name}{faster}; give another check"
        )
    return Checks(kind, pairs)


def results_of(
    checks: Checks, made: Sequence[Row] = (), keep: Callable[[list[Row]], Any] = len
) -> list[Row]:
    # `made` has the results of the first checks; `keep` gets all results after each check.
    rows = [*made]
    for count, (form, check) in enumerate(checks.pairs[len(rows) :], len(rows) + 1):
        before, disabled = perf_counter(), logging.root.manager.disable
        # PyTorch's compiler logs tracebacks; the result has the error.
        logging.disable(logging.ERROR)
        try:
            result = CONFORMANCE[checks.kind].run(check, form)
        finally:
            logging.disable(disabled)
        seconds, total = perf_counter() - before, len(checks.pairs)
        verdict, reason = "ok  " if result.passed else "FAIL", result.expected_failure
        note = f" [expected failure: {reason}]" if reason else ""
        if reason and not result.passed:
            note = f" [passes, but is declared in expected_failures: {reason}; remove it there]"
        progress = f"{count:{len(str(total))}} of {total} {seconds:5.1f} s"
        LOG.info(f"{progress}  {verdict} {form.label}: {result.check}: {result.detail}{note}")
        rows.append({
            checks.kind: form.label, "group": check.group, "check": result.check,
            "passed": result.passed, "seconds": round(seconds, 3), "detail": result.detail,
            "expected_failure": result.expected_failure,
        })  # fmt: skip
        keep(rows)
    return rows


def failed(rows: Sequence[Row], kind: str) -> list[str]:
    return [f"{row[kind]}: {row['check']}" for row in rows if not row["passed"]]


def certify(name: str, checks: Checks, rows: Sequence[Row], store: Path) -> Path:
    names = CheckResult.model_fields.keys() - {"form"}
    results = (CheckResult(form=row["variant"], **{n: row[n] for n in names}) for row in rows)
    certificate = Certificate(
        variant=name, version=version_of(checks.pairs[0][0].variant), taken=now(),
        checks=of_variants.CHECKS_VERSION, environment=describe("cpu"), results=tuple(results),
        partial=len(rows) < len(checks.pairs),
    )  # fmt: skip
    certificates = CertificateStore.within(store)
    certificates.remove_partial_files()
    return certificates.write(certificate)


def is_certified(name: str, certificate: Certificate | None) -> bool:
    variant = variants.find(name)
    forms, expected = of_variants.configurations(name, variant), version_of(variant)
    pairs = [(form.label, check.name) for form in forms for check in of_variants.checks_for(form)]
    present = [(found.form, found.check) for found in certificate.results] if certificate else []
    if certificate is None or certificate.checks != of_variants.CHECKS_VERSION:
        return False
    return certificate.version == expected != "" and present == pairs


def require_passed(name: str, options: Mapping[str, Any], store: Path) -> None:
    # Results are kept after each check: an interrupted command goes on behind the last that passed.
    checks, version = checks_of(name, options), version_of(variants.find(name))
    label = label_of(name, composed({}, name, {name: options})[1]["overrides"])
    before = _passed(checks, version, CertificateStore.within(store).read_one(label))
    if len(before) == len(checks.pairs):
        LOG.info("%s: its certificate is already present", label)
        return

    def keep(rows: list[Row]) -> None:
        if version and not failed(rows, "variant"):
            certify(label, checks, rows, store)

    rows = results_of(checks, before, keep)
    if wrong := failed(rows, "variant"):
        raise UserError(
            f"{'; '.join(wrong)}: {len(wrong)} of {len(rows)} checks fail; correct {name}, declare "
            "them in expected_failures, or give --no-checks, which marks the row"
        )
    keep(rows)


def _passed(checks: Checks, version: str, found: Any) -> list[Row]:
    is_current = isinstance(found, Certificate) and found.checks == of_variants.CHECKS_VERSION
    if not is_current or found.version != version:
        return []
    due = [(form.label, check.name) for form, check in checks.pairs]
    made = [(result.form, result.check) for result in found.results if result.passed]
    if len(made) < len(found.results) or made != due[: len(made)]:
        return []
    return [{"variant": of.form, **of.model_dump(exclude={"form"})} for of in found.results]
