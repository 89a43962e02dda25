"""`harness check`: the conformance checks of a variant or a task, and of a published row."""

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from harness.arguments import settings_of
from harness.cli.process import Answer
from zoo.registry import UserError, printable


def check(
    name: Annotated[str, {"argument": True}], set_: list[str] | None = None, fast: bool = False,
    only: list[str] | None = None, store: Path | None = None, repeat: int = 0,
) -> Answer:  # fmt: skip
    """Check a variant or a task.

    A variant has the checks that its traits require. Exit 1 if one fails.

    Args:
        name: A registered variant or task, MODULE:CLASS, or the file of a published row.
        set_: NAME.OPTION=VALUE; NAME is the variant or the task; repeatable.
        fast: Leave out long inputs, large batches, the compiler; baselines of a task.
        only: Names of checks, separated by commas; repeatable.
        store: Write the certificate to this store.
        repeat: Train this many runs of a published row again, and compare their scores.
    """
    if name.endswith(".jsonl"):
        if store or fast or only or set_:
            raise UserError(f"{name} is the file of a row; leave all options but --repeat out")
        from harness.rows import check_row

        def show(finding: Any) -> None:
            text = f"{'ok  ' if finding.passed else 'FAIL'} {finding.check}: {finding.detail}"
            typer.echo(printable(text.removesuffix(": ")))

        row, found = check_row(Path(name), repeat, show)
        failed = [finding.check for finding in found if not finding.passed]
        text = f"row {row.label} of {row.suite.key}: {len(row.lines)} records, all checks pass"
        if failed:
            text = f"{', '.join(failed)}: {len(failed)} of {len(found)} checks fail"
        return Answer(text, {"rows": [finding._asdict() for finding in found]}, int(bool(failed)))
    if repeat:
        raise UserError(f"--repeat trains runs of a published row; {name} is none, leave it out")
    from harness.checks import examine

    start = perf_counter()
    rows, wrong, files = examine(name, settings_of(set_), fast=fast, only=only, store=store)
    outcome = f"{len(wrong)} of {len(rows)} checks fail" if wrong else "all checks pass"
    which = f": {'; '.join(wrong)}" if wrong else ""
    text = f"{outcome}, in {perf_counter() - start:.1f} s{' with --fast' * fast}{which}"
    return Answer(text, {"rows": rows}, int(bool(wrong)), files)
