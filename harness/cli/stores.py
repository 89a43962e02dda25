"""The content of stores, as frames, and the files that are made from them."""

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from zoo.registry import UserError, printable

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.record import Record
    from harness.records.store import Broken

T = TypeVar("T")

PUBLISHED = Path(__file__).parents[2] / "results"
"""The published records, in a checkout; an installed package has their table alone."""


@dataclass(frozen=True)
class Content:
    """The records of stores, as frames; see `harness.records.frame`.

    Attributes:
        records: the runs, and `runs` as a frame.
        broken: the files that are no records.
        costs: the measurements of `harness cost`.
        rules: the complete baselines of this version of the tasks.
    """

    records: "Sequence[Record]"
    broken: "Sequence[Broken]"
    runs: "pd.DataFrame"
    costs: "pd.DataFrame"
    rules: "pd.DataFrame"


def content(*stores: Path, curves: bool = False) -> Content:
    """The content of stores; of a run that several have, the record of the last one.

    Costs are of the machines of the last store that has any.
    """
    from harness.records import frame
    from harness.records.store import CostStore

    runs, broken = zip(*(read(store, curves=curves) for store in stores), strict=True)
    records = [*{record.spec.id: record for record in chain(*runs)}.values()]
    costs = [with_warnings(CostStore.within(store).read())[0] for store in stores]
    last = next(filter(None, reversed(costs)), [])
    machines = {record.spec.machine for record in last}
    measured = {record.spec.id: record for record in chain(*costs)
                if record.spec.machine in machines}  # fmt: skip
    return Content(
        records, [*chain(*broken)], frame.of_records(records), frame.of_costs([*measured.values()]),
        rules_of(*stores),
    )  # fmt: skip


def results_of(suite: str, *stores: Path, curves: bool = False) -> Content:
    """As `content`; raise `UserError` if the stores have no run."""
    found = content(*stores, curves=curves)
    if not found.records:
        raise UserError(
            f"{', '.join(map(str, stores))} has no run; make some with: harness run --suite {suite}"
        )
    return found


def read(store: Path, *, curves: bool = True) -> "tuple[list[Record], list[Broken]]":
    """Every record of a store; without `curves` with the last point of its curve alone."""
    from harness.records.store import Store

    how = () if curves else (lambda record: record.without_curve,)
    return with_warnings(Store(store).read(*how))


def rules_of(*stores: Path) -> "pd.DataFrame":
    """The complete baselines of this version of the tasks in stores."""
    from harness.records.frame import of_baselines
    from harness.records.store import BaselineStore
    from tasks import BASELINES_VERSION

    found = (with_warnings(BaselineStore.within(store).read())[0] for store in stores)
    rules = of_baselines(chain.from_iterable(found))
    return rules[rules["complete"].astype(bool) & (rules["version"] == BASELINES_VERSION)]


def with_warnings(content: "tuple[list[T], list[Broken]]") -> "tuple[list[T], list[Broken]]":
    """The content of a store, with a warning for each file that is not a record."""
    for bad in content[1]:
        warnings.warn(f"{bad.path} is not a record and is left out: {bad.reason}", stacklevel=2)
    return content


def matrix_of(name: str, folders: Sequence[Path]) -> "pd.DataFrame":
    """The matrix of a suite as the CSV file of its page, from stores, or the published records.

    Raises:
        UserError: there is no such suite, or a store is not a folder or has no run.
    """
    from harness.cli.catalogue import described
    from harness.records.store import require_folder
    from harness.records.suites import find
    from reports.pages.suite import tables

    suite, folders = find(name), [*map(require_folder, folders)] or stores_of(None)
    found = results_of(name, *folders)
    return tables(suite, found.runs, found.rules, found.costs, described()).joined


def require_records(found: Content, store: Path) -> None:
    """Raise `UserError` if a store has nothing that a page shows."""
    if not found.records and not found.broken and found.costs.empty:
        remedy = f"harness run --attention primal --store {shlex.quote(str(store))}"
        raise UserError(f"store {str(store)!r} has no record to report; make some with: {remedy}")


def stores_of(store: Path | None) -> list[Path]:
    """The folders of the published records, and of a user's.

    Raises:
        UserError: the user's is not a folder, or there is none of them.
    """
    from harness.records.store import require_folder

    found = [PUBLISHED] if PUBLISHED.is_dir() else []
    found += [require_folder(store)] if store else []
    if not found:
        raise UserError(
            f"there are no records in {PUBLISHED}; make records with: harness run --suite "
            "laptop, and give --store"
        )
    return found


def within(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    """The files by their path in `folder`."""
    return {folder / name: content for name, content in files.items()}


def write_pages(files: Mapping[Path, bytes]) -> list[Path]:
    """Write all files, or none of them; print and return their paths.

    Raises:
        UserError: one cannot be written.
    """
    from harness.records.files import remove_partial, write_all

    for folder in {file.parent for file in files}:
        remove_partial(folder)
    try:
        write_all(files)
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be written ({error.strerror}); no page is changed; free "
            "space, or give another folder"
        ) from error
    for file in files:
        typer.echo(printable(str(file)))
    return [*files]
