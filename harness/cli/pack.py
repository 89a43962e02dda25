"""`harness pack`: publish the records of a store as JSON lines."""

from dataclasses import dataclass
from pathlib import Path

from harness.arguments import registered
from harness.cli.files import write_pages
from harness.cli.process import Answer
from zoo.registry import UserError


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """The options of `harness pack`.

    Attributes:
        suite: NAME or FILE.toml; by default every record of the store, of any kind.
        attention: The row, as tables name it: primal[rank=8], or MODULE:CLASS; with --suite.
        store: Folder of records.
        out: Folder of published records.
        as_json: Print one JSON document.
    """

    suite: str = ""
    attention: str = ""
    store: Path = Path("runs")
    out: Path = Path("results")
    as_json: bool = False


def pack(options: PackOptions) -> Answer:
    """Write a row of a suite to one file, SUITE/ROW.jsonl, which a pull request publishes.

    It has the runs of every question, rate and seed, the costs, and the certificates. Without
    --suite every record of the store is written; files in --out are merged.
    """
    from harness import rows
    from harness.records.published import every_line, merged
    from harness.records.store import require_folder
    from harness.records.suites import find

    store = require_folder(options.store)
    if bool(options.suite) != bool(options.attention):
        raise UserError("--suite and --attention name a row together; give both, or none of them")
    if options.suite:
        (label,) = registered([options.attention])
        row = rows.of_store(suite := find(options.suite), label, store)
        if missing := [*rows.missing_runs(row)]:
            more = f" and {len(missing) - 1} more" * (len(missing) > 1)
            raise UserError(
                f"row {row.label!r} of {suite.key} is not complete, it lacks {missing[0]}{more}; "
                f"make them with: harness run --suite {options.suite} --store {store}"
            )
        lines = row.lines
    else:
        lines = [*every_line(store)]
    written = write_pages(merged(lines, options.out))
    if options.out.resolve() == store.resolve():
        for line in lines:
            line.source.unlink(missing_ok=True)
    text = f"{len(lines)} records; check a row with: harness check FILE.jsonl"
    return Answer(
        {"files": [*map(str, written)], "records": len(lines)} if options.as_json else text
    )
