"""Writes every generated file of this repository from its records: `python -m harness.cli.pages`.

`--check` only names files that are out of date or cannot be made here, and exits 1 if there are
any; `--fit` fits missing baselines first.
"""

import sys
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from harness import baselines, runs, stores, studies
from harness.checks import is_certified
from harness.cli import execute
from harness.cli.generated import GENERATORS
from harness.cli.process import add_command, group, invoke
from harness.records.files import write_pages
from harness.records.results import Certificate
from harness.records.store import BaselineStore, CertificateStore, ShallowStore
from harness.records.suites import names
from zoo.registry import UserError, first_line
from zoo.variants import variants

NOT_COMPARED = (".parquet", ".png", ".svg")  # They depend on libraries; their tables are compared
PAGES = (".md", ".csv", ".png", ".svg")  # Suffixes of files that are made from records


def main(check: bool = False, fit: bool = False, root: Path = Path()) -> None:
    """Write every generated file, or name those that are out of date; exit 1 if there are any.

    Args:
        check: Name what is out of date.
        fit: First fit what findings and published runs lack; this may take hours.
        root: A checkout of the repository.
    """
    if fit:
        _fit(root / "results")
    certificates, written = CertificateStore.within(root / "results").by_variant(), set[Path]()
    # Without baselines no page says what runs must beat.
    fitted = BaselineStore.within(root / "results")
    tasks = (run.spec.task for run in stores.content(root / "results").records if run.final)
    lines = [*_stale_certificates(certificates)]
    lines += (f"not checked: no baselines of {key}: python -m harness.cli.pages --fit"
              for key in sorted({of.key for of in tasks if fitted.find(of) is None}))  # fmt: skip
    complete = True
    for make in GENERATORS:
        try:
            files = make(root)
        except (ImportError, UserError) as error:
            if not check:
                raise
            lines.append(f"not checked: {make.__name__.strip('_')}: {first_line(error)}")
            complete = False
            continue
        written |= {*files}
        if check:
            old = (file for file, content in files.items() if not is_current(file, content))
            lines += [f"out of date: {file}: python -m harness.cli.pages" for file in old]
        else:
            typer.echo("".join(f"{file}\n" for file in write_pages(_changed(files))), nl=False)
    others = [file for file in pages_of(root) if file not in written] if complete else []
    lines += [f"out of date: {file}: {remedy(file)}" for file in others]
    for line in lines:
        typer.echo(line)
    raise typer.Exit(1 if lines else 0)


def _fit(results: Path) -> None:
    runs.fit_baselines(stores.content(results).records, results)
    shallow = ShallowStore.within(results)
    for name in baselines.STUDY_SETTINGS:
        if name not in shallow.entries():
            typer.echo(shallow.write(baselines.shallow_study(name)))


def _changed(files: Mapping[Path, bytes]) -> dict[Path, bytes]:
    new = {file: files[file] for file in files if _differs(file, files[file])}
    # Figures name the digest of their table, which stays if only last digits differ.
    kept = {file.with_suffix("") for file in files.keys() - new.keys()
            if file.suffix == ".csv" and file.read_bytes() != files[file]}  # fmt: skip
    return {
        file: new[file]
        for file in new
        if file.suffix not in NOT_COMPARED or file.with_suffix("") not in kept
    }


def pages_of(root: Path) -> list[Path]:
    return sorted(file for file in (root / "results").rglob("*") if file.suffix in PAGES)


def remedy(file: Path) -> str:
    name = file.stem.removesuffix("-answers")
    commands = dict.fromkeys(names(), "run --suite") | dict.fromkeys(studies.names(), "study")
    if name not in commands:
        return "no record is in it; delete it"
    return f"its records are missing: harness {commands[name]} {name} --store {file.parent}"


def is_current(file: Path, content: bytes) -> bool:
    return file.suffix in NOT_COMPARED or not _differs(file, content)


def _differs(file: Path, content: bytes) -> bool:
    if not file.is_file():
        return True
    found = file.read_bytes()
    if found == content or file.suffix != ".csv":
        return found != content
    # Last digits depend on libraries.
    missing: Any = {"keep_default_na": False, "na_values": [""]}
    tables = [pd.read_csv(BytesIO(text), **missing) for text in (found, content)]
    try:
        pd.testing.assert_frame_equal(*tables, rtol=1e-9, atol=0)
    except AssertionError:
        return True
    return False


def _stale_certificates(found: Mapping[str, Certificate]) -> Iterator[str]:
    for name, variant in variants.built_in():
        if variant.unchecked:
            continue
        try:
            if not is_certified(name, found.get(name)):
                remedy = f"harness check {name} --store results"
                yield f"out of date: the certificate of {name}: {remedy}"
        except UserError as error:
            yield f"not checked: the certificate of {name}: {error}"


if __name__ == "__main__":
    app = group()
    add_command(app, main)
    execute(lambda: invoke(app, "python -m harness.cli.pages", sys.argv[1:]))
