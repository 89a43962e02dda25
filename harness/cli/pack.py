"""`harness pack`: publish the records of a store as JSON lines."""

from pathlib import Path

from harness.cli.process import Answer


def pack(
    suite: str = "", attention: str = "", store: Path = Path("runs"), out: Path = Path("results"),
) -> Answer:  # fmt: skip
    """Write a row of a suite to one file, SUITE/ROW.jsonl, which a pull request publishes.

    It has the runs of every question, rate and seed, the costs, and the certificates. Without
    --suite every record of the store is written; files in --out are merged.

    Args:
        suite: NAME or FILE.toml; by default every record of the store, of any kind.
        attention: The row, as tables name it: primal[rank=8], or MODULE:CLASS; with --suite.
        store: Folder of records.
        out: Folder of published records.
    """
    from harness import api

    files, count = api.pack(store, out, suite=suite, row=attention)
    text = f"{count} records; check a row with: harness check FILE.jsonl"
    return Answer(text, {"files": files, "records": count}, files=files)
