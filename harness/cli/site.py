"""`harness site`: write the page of a suite as one file."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli import arguments
from harness.cli.report import write_pages
from zoo.registry import UserError


def site(
    out: Annotated[Path, typer.Option(parser=arguments.path, help="Folder of index.html.")],
    suite: Annotated[str, typer.Option(help="NAME, NAME@VERSION or a TOML file.")] = "laptop",
    store: Annotated[
        Path | None,
        typer.Option(parser=arguments.path, help="Folder of records; by default the published."),
    ] = None,
) -> None:
    """Write index.html: the matrix of a suite, the advisor, charts and a card for each variant.

    It needs no other file and no network.
    """
    from harness.cli.catalogue import described
    from harness.cli.suite_results import causal_questions, read_results, stores_of
    from harness.records.files import require_writable
    from harness.records.shallow import read_studies
    from harness.records.suites import find
    from reports.site import NAME, Content
    from reports.site import site as page

    chosen, folder = find(suite), store or stores_of(None)[0]
    if not folder.is_dir():
        raise UserError(f"store {str(folder)!r} is not a folder; make records with: harness run")
    results = read_results(chosen, [folder])
    require_writable(out, str(out), "give another --out")
    content = Content(
        suite=chosen, runs=results.runs, costs=results.costs, baselines=results.baselines,
        records=results.records, variants=described()["variants"],
        studies=read_studies(folder / "shallow"), causal=causal_questions(chosen),
    )  # fmt: skip
    write_pages({out / NAME: page(content)})
