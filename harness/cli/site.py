"""`harness site`: write the page of a suite as one file."""

from dataclasses import dataclass
from pathlib import Path

from harness import stores
from harness.catalogue import described
from harness.cli.files import write_pages


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """The options of `harness site`.

    Attributes:
        out: Folder of index.html.
        suite: NAME, NAME@VERSION or a TOML file.
        store: Folder of records; by default the published.
    """

    out: Path
    suite: str = "laptop"
    store: Path | None = None


def site(options: SiteOptions) -> None:
    """Write index.html: the matrix of a suite, the advisor, charts and a card for each variant.

    It needs no other file and no network.
    """
    from harness.records.files import require_writable
    from harness.records.store import ShallowStore, require_folder
    from harness.records.suites import find
    from reports.pages import suite
    from reports.site import NAME
    from reports.site import site as page

    chosen, folder = find(options.suite), options.store or stores.stores_of(None)[0]
    require_folder(folder)
    require_writable(options.out, str(options.out), "give another --out")
    found = stores.results_of(chosen.name, folder, curves=True)
    studies = ShallowStore.within(folder).read_whole()
    tables = suite.tables(chosen, found.runs, found.rules, found.costs, described())
    html = page(tables, found.costs, described(), records=found.records, studies=studies)
    write_pages({options.out / NAME: html})
