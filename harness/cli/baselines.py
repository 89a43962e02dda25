"""The baselines of the tasks of records: fitting those that a store lacks."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.records.record import Record


def fit(records: "Sequence[Record]", folder: Path) -> bool:
    """Fit the baselines of each task of finished records that the store in `folder` lacks.

    Those that cannot be fitted are warnings.

    Returns:
        Whether the store now has all of them.
    """
    from harness.baselines import fit
    from harness.cli.progress import Output, fitting
    from harness.plan import recorded_data
    from harness.records import frame
    from harness.records.baselines import name_of_task
    from harness.records.store import BaselineStore
    from harness.runner import reason_of
    from reports.questions import newest

    store, complete = BaselineStore.within(folder), True
    shown = {*newest(frame.of_records(records)).get("id", ())}
    finished = [run.spec.task for run in records if run.final and run.spec.id in shown]
    specs = {name_of_task(spec): spec for spec in finished}
    for spec in specs.values():
        try:
            with fitting(Output(), f"baselines of {spec.key}") as on_step:
                fit(spec, recorded_data, store, on_step)
        except Exception as error:
            # Of a plug-in or a library: the records are complete without them.
            complete = False
            warnings.warn(f"no baselines of {spec.key}: {reason_of(error)}", stacklevel=2)
    return complete
