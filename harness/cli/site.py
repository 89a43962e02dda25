"""`harness site`: write the page of a suite as one file."""

from pathlib import Path

from harness.cli.process import Answer


def site(out: Path, suite: str = "laptop", store: Path | None = None) -> Answer:
    """Write the site, one index.html.

    It has the matrix of a suite, the advisor, charts and a card for each variant.

    It needs no other file and no network.

    Args:
        out: Folder of index.html.
        suite: NAME, NAME@VERSION or a TOML file.
        store: Folder of records; by default the published.
    """
    from reports.store import write_site

    files = write_site(suite, store, out)
    return Answer(document={"files": files}, files=files)
