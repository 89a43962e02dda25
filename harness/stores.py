"""The content of stores, as frames, and the published records."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from zoo.registry import UserError

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.cost import CostRecord
    from harness.records.record import Record
    from harness.records.store import Broken

T = TypeVar("T")

# The published records: in a checkout a link to their folder, in a package their lines.
PUBLISHED = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Content:
    stores: "Sequence[Path]"
    records: "Sequence[Record]"
    broken: "Sequence[Broken]"
    measured: "Sequence[CostRecord]"
    is_published: bool  # Whether no row is of a user

    @cached_property
    def runs(self) -> "pd.DataFrame":
        from harness.records.frame import of_records

        return of_records(self.records, self.measured)

    @cached_property
    def costs(self) -> "pd.DataFrame":
        from harness.records.frame import of_costs

        return of_costs(self.measured)

    @cached_property
    def rules(self) -> "pd.DataFrame":
        return rules_of(*self.stores)


def content(*stores: Path, curves: bool = False, published: bool | None = None) -> Content:
    # By default the records are published if the store is the one of this package.
    from harness.records.store import CostStore, Store

    runs: dict[str, Record] = {}
    costs: dict[str, CostRecord] = {}
    broken: list[Broken] = []
    # Later stores override earlier ones. Costs are of the machines of the last store with any.
    for store in reversed(stores):
        records, others = with_warnings(Store(store).read(curves=curves))
        measured, _ = with_warnings(CostStore.within(store).read())
        machines = {cost.spec.machine for cost in costs.values() or measured}
        runs, broken = {run.spec.id: run for run in records} | runs, [*others, *broken]
        costs = {c.spec.id: c for c in measured if c.spec.machine in machines} | costs
    if published is None:
        published = [store.resolve() for store in stores] == [PUBLISHED.resolve()]
    return Content(stores, [*runs.values()], broken, [*costs.values()], published)


def results_of(suite: str, *stores: Path, curves: bool = False) -> Content:
    found = content(*stores, curves=curves)
    if not found.records:
        raise UserError(
            f"{', '.join(map(str, stores))} has no run; make some with: harness run --suite {suite}"
        )
    return found


def rules_of(*stores: Path) -> "pd.DataFrame":
    from harness.records.frame import of_baselines
    from harness.records.store import BaselineStore
    from tasks import BASELINES_VERSION

    found = (with_warnings(BaselineStore.within(store).read())[0] for store in stores)
    rules = of_baselines(chain.from_iterable(found))
    return rules[rules["complete"].astype(bool) & (rules["version"] == BASELINES_VERSION)]


def with_warnings(content: "tuple[list[T], list[Broken]]") -> "tuple[list[T], list[Broken]]":
    for bad in content[1]:
        remedy = "" if "move it away" in bad.reason else "; move it away"
        text = f"{bad.path} is not a record and is left out: {bad.reason}{remedy}"
        warnings.warn(text, stacklevel=2)
    return content


def stores_of(store: Path | None) -> list[Path]:
    from harness.records.store import require_folder

    found = [PUBLISHED] if PUBLISHED.is_dir() else []
    found += [require_folder(store)] if store else []
    if not found:
        raise UserError(
            f"there are no records in {PUBLISHED}; make records with: harness run --suite "
            "laptop, and give --store"
        )
    return found
