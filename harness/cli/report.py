"""The commands that prove what variants claim, and that write pages: variants, tasks, results."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.runs import StoreOption, records_of
from zoo.registry import UserError


def check(
    name: Annotated[str, typer.Argument(help="A variant, a plug-in's too, or MODULE:CLASS.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="NAME.OPTION=VALUE; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a check.")] = False,
) -> None:
    """Run every check that a variant's claims call for; exit 1 where one does not hold."""
    from harness import tables
    from harness.cli import arguments
    from zoo.conformance import examine, locate, subjects

    # A class in the folder at hand: an installed command does not look there by itself.
    sys.path.insert(0, "")
    owner = name.rpartition(":")[2]
    settings = arguments.settings(set_ or [])
    if strangers := settings.keys() - {owner}:
        raise UserError(f"--set {strangers.pop()}: only {owner!r} is checked; set its options")
    count, failed = 0, []
    for subject in subjects(owner, locate(name), settings.get(owner, {})):
        for result in examine(subject):
            count += 1
            if not result.passed:
                failed.append(f"{result.form}: {result.check}")
            typer.echo(tables.as_json(result) if as_json else tables.as_line(result))
    if failed and not as_json:
        typer.echo(f"{len(failed)} of {count} checks fail: {'; '.join(failed)}")
    raise typer.Exit(1 if failed else 0)


def certify(
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/certificates.md"),
) -> None:
    """Run every check on every variant, and write the page; exit 1 where one does not hold."""
    from harness import tables
    from harness.certificate import Examined, page
    from harness.records.files import require_page, write_atomic
    from zoo.conformance import examine, subjects
    from zoo.variants import variants

    require_page(out)
    examined, held = [], True
    for name, variant in variants.items():
        if variant.unchecked:
            typer.echo(f"{name} is left out: {variant.unchecked}")
            continue
        for subject in subjects(name, variant):
            examined.append(Examined(subject, list(examine(subject))))
            bad = [result for result in examined[-1].results if not result.passed]
            held &= not bad
            typer.echo("\n".join([subject.form, *map(tables.as_line, bad)]))
    if held:
        try:
            typer.echo(write_atomic(out, page(examined).encode()))
        except OSError as error:
            raise UserError(f"no page written: {error}; give another --out") from error
    raise typer.Exit(0 if held else 1)


def cards(
    out: Annotated[
        Path, typer.Option(help="The page to write; its pictures go to a folder beside it.")
    ] = Path("docs/tasks.md"),
    generate: Annotated[
        bool, typer.Option("--generate/--no-generate", help="Generate data that are not there.")
    ] = True,
) -> None:
    """Write the page of the tasks: what each asks, its data, its floors, and examples."""
    from harness.cards import page, pictures
    from harness.facts import gather, settings
    from harness.records.files import require_page, require_writable, write_all, write_atomic
    from tasks.registry import tasks

    if not out.suffix:
        raise UserError(
            f"--out {str(out)!r} has no suffix, without which the folder of its pictures would "
            "bear its name; give one such as docs/tasks.md"
        )
    require_page(out)
    beside = out.with_suffix("")
    if beside.exists():
        require_writable(beside, str(beside), "give another --out")
    found = []
    for name, _ in tasks.items():
        try:
            of_task = settings(name)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            continue
        found.append([gather(task, generate) for task in of_task])
        for facts in found[-1]:
            typer.echo(f"{facts.task.key}: {facts.missing or 'read'}")
    try:
        for path in write_all(beside, pictures(found)):
            typer.echo(path)
        typer.echo(write_atomic(out, page(found, out.stem).encode()))
    except OSError as error:
        raise UserError(f"no page written: {error}; give another --out") from error


def report(
    store: StoreOption = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pages; by default the store itself.")
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(help="A page to renew between its <!-- leaderboard --> marks.")
    ] = None,
) -> None:
    """Write leaderboard.md, leaderboard.csv and the figures from the records of a store."""
    from harness.records.files import require_writable, write_all, write_atomic
    from reports.pages import embed, files

    if not store.is_dir():
        raise UserError(f"store {str(store)!r} is not a folder; make records with: harness run")
    folder = store if out is None else out
    records, broken = records_of(store)
    try:
        renewed = embed(readme.read_text("utf-8"), records) if readme else ""
    except OSError as error:
        raise UserError(f"--readme {readme} cannot be read ({error.strerror}); mend it") from error
    except ValueError as error:
        raise UserError(f"--readme {readme} cannot be renewed: {error}") from error
    require_writable(folder, str(folder), "give another --out")
    try:
        for path in write_all(folder, files(records, broken)):
            typer.echo(path)
    except OSError as error:
        raise UserError(f"no report written: {error}; give another --out") from error
    try:
        if readme:
            typer.echo(write_atomic(readme, renewed.encode()))
    except OSError as error:
        raise UserError(
            f"--readme {readme} cannot be written ({error.strerror}); mend it"
        ) from error
