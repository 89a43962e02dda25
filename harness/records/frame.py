"""Records as pandas data frames: a row a run, a row a measurement of cost.

Every table, figure and page starts from these. Columns are the fields of the record, with a dot for
each level, `model.dim`; see `docs/records.md`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.records.baselines import name_of_task
from harness.records.cost import CostRecord
from harness.records.record import Record
from harness.records.spec import Frozen
from harness.records.store import BaselineStore, CostStore, Store
from harness.records.suites import label_of

if TYPE_CHECKING:
    import pandas as pd

Cells = dict[str, Any]

OF_ALL = ("model", "train")
"""Owners of fields that are not a variant's."""

OF_METRIC = {"unit", "better", "digits", "chance", "scale", "exponential"}
"""Fields of a metric that are columns of the same name."""

OF_COSTS = {"attention", "level", "length", "batch", "batching", "dim", "heads"}
"""Fields of a cost's specification that are columns of the same name."""


def frame(folder: Path | str) -> "pd.DataFrame":
    """The runs of a store, a row each; files that are no record are left out.

    Raises:
        UserError: the folder cannot be listed.
    """
    return of_records(Store(Path(folder)).read()[0])


def costs(folder: Path | str) -> "pd.DataFrame":
    """The measurements of `harness cost` in a store, a row each.

    Raises:
        UserError: the folder cannot be listed.
    """
    return of_costs(CostStore.within(Path(folder)).read()[0])


def baselines(folder: Path | str) -> "pd.DataFrame":
    """The baselines of the tasks in a store, a row each.

    Columns: `data` and `task` as those of a run; `version` of the set of baselines, `complete`;
    `name`, `score`, as that of a run.

    Raises:
        UserError: the folder cannot be listed.
    """
    import pandas as pd

    rows = [
        {
            "data": name_of_task(found.spec),
            "task": found.spec.key,
            "version": found.version,
            "complete": not found.left,
            "name": name,
            "score": score,
        }
        for found in BaselineStore.within(Path(folder)).read()[0]
        for name, score in found.scores.items()
    ]
    return pd.DataFrame(rows, columns=["data", "task", "version", "complete", "name", "score"])


def of_records(records: Iterable[Record]) -> "pd.DataFrame":
    """A row for each run.

    Columns: `attention`, `row` (with the options of variants that differ from the recipe),
    `recipe`, `suite` and `question` (of a recipe `SUITE@VERSION/QUESTION`, else empty), `task` (its
    key), `data` (its key and digests: the name of the file of its baselines), `task.name`,
    `task.OPTION`, `model.FIELD`, `train.FIELD`, `VARIANT.OPTION`, `seed`, `device`, `role`
    (`trial`, `final`, or empty without tuning), `status`, `reason`; `metric` (its name), `unit`,
    `better` (`higher` or `lower`), `digits`, `chance`, `scale`, `exponential`; `score` (on test)
    with `low` and `high` (its 95 % interval over test examples), `dev` (in the same unit, but for
    control), `sample` (the answers on test, from which rows are compared), `best_step`, `loss` and
    `losses.NAME` (the last of training), `train_seconds`, `seconds`; `time_ratio`,
    `inference_ratio`, `memory_ratio` (to softmax), `step_seconds`, `peak_bytes`, `parameters`,
    `flops`, `state_bytes`, `backend`; `machine`, `threads`, `memory_gib`, `system`, `commit`,
    `versions.PACKAGE`, `started`, `baseline` (whether the model has no attention), `known_failures`
    (checks that its variants are known to fail), `id`.
    """
    import pandas as pd

    return pd.DataFrame([_run(record) for record in records])


def of_costs(records: Iterable[CostRecord]) -> "pd.DataFrame":
    """A row for each measurement.

    Columns: `attention`, `row` (with the options that differ from their defaults), `level`, `pass`,
    `length`, `batch`, `batching`, `dim`, `heads`, `depth` (of a model), `causal`, `precision`,
    `device`, `machine`, `threads`, `status`, `reason`, `linear` (claimed); `seconds`, `seconds.q1`,
    `seconds.q3`, `ratio`, `ratio.q1`, `ratio.q3` (to the fastest exact softmax), `memory` (bytes of
    `memory_batch` samples, state included), `memory_ratio` (to SDPA), `state_bytes`, `flops`,
    `parameters`, `over_limit`, `backend`, `reference`, `started`, `commit`, `id`.
    """
    import pandas as pd

    return pd.DataFrame([_cost(record) for record in records])


def _run(record: Record) -> Cells:
    spec, final, cost = record.spec, record.final, record.cost
    point = record.curve[-1] if record.curve else None
    suite, _, question = spec.budget.partition("/")
    cells: Cells = {
        "attention": spec.attention,
        "row": _row(record),
        "recipe": spec.budget,
        "suite": suite if question else "",
        "question": question,
        "task": spec.task.key,
        "data": name_of_task(spec.task),
        "task.name": spec.task.name,
        **_dotted("task", spec.task.options),
        "task.block": spec.task.block,
        **_dotted("model", dict(spec.model)),
        **_dotted("train", dict(spec.train)),
        **{f"{v}.{o}": value for v, own in record.options.items() for o, value in own.items()},
        "seed": spec.seed,
        "device": spec.device,
        "role": spec.tuning.role if spec.tuning else "",
        "status": record.status,
        "reason": record.reason,
        "metric": record.metric.name,
        **dict(record.metric.model_dump(include=OF_METRIC)),
        "parameters": record.parameters,
        "flops": record.flops,
    }
    if final:
        cells |= {
            "score": final.score,
            **_interval(record),
            "dev": final.dev,
            "sample": final.sample,
            "best_step": final.best_step,
            "train_seconds": final.train_seconds,
            "seconds": final.seconds,
        }
    if point:
        cells |= {"loss": point.loss, **_dotted("losses", point.losses)}
    if cost:
        cells |= {
            "time_ratio": cost.over_softmax.median if cost.over_softmax else None,
            "inference_ratio": (
                cost.inference_over_softmax.median if cost.inference_over_softmax else None
            ),
            "memory_ratio": cost.memory_ratio,
            "step_seconds": cost.own.seconds_per_1k_steps.median / 1000,
            "peak_bytes": cost.own.peak_bytes,
            "state_bytes": cost.own.state_bytes,
            "backend": cost.own.backend,
        }
    environment = record.environment
    return cells | {
        "machine": environment.device,
        "threads": environment.threads,
        "memory_gib": environment.memory_gib,
        "system": environment.system,
        "commit": environment.commit,
        **_dotted("versions", environment.versions),
        "started": record.started,
        "baseline": record.is_baseline,
        "known_failures": len(record.expected_failures),
        "id": spec.id,
    }


def _interval(record: Record) -> Cells:
    """The ends of the interval of one run; none where its answers are not known."""
    from harness.records.interval import interval_of
    from harness.records.sample import Sample

    sample = Sample.of([record.final.sample]) if record.final and record.final.sample else None
    interval = interval_of(sample, record.metric) if sample else None
    return {"low": interval.low, "high": interval.high} if interval else {}


def _row(record: Record | CostRecord) -> str:
    """The variant, with the options that differ from recipe or default: `primal[rank=8]`."""
    fields = record.spec.overrides.items()
    options = {path: value for path, value in fields if path.partition(".")[0] not in OF_ALL}
    return label_of(record.spec.attention, options)


def _cost(record: CostRecord) -> Cells:
    spec, measured = record.spec, record.measured
    cells: Cells = {
        "row": _row(record),
        **spec.model_dump(include=OF_COSTS),
        "pass": spec.operation,
        "causal": spec.causal,
        "depth": spec.model.depth if spec.model else None,
        **{f"{v}.{o}": value for v, own in record.options.items() for o, value in own.items()},
        "precision": spec.precision,
        "device": spec.device,
        "machine": spec.machine,
        "threads": spec.threads,
        "status": record.status,
        "reason": record.reason,
        "linear": record.claims_linear,
        "started": record.started,
        "commit": record.environment.commit,
        "id": spec.id,
    }
    if measured:
        ratio = measured.over_softmax
        cells |= {
            "seconds": measured.seconds.median,
            "seconds.q1": measured.seconds.q1,
            "seconds.q3": measured.seconds.q3,
            "ratio": ratio.median if ratio else None,
            "ratio.q1": ratio.q1 if ratio else None,
            "ratio.q3": ratio.q3 if ratio else None,
            "memory": measured.memory,
            "memory_batch": measured.memory_batch or spec.batch,
            "memory_ratio": measured.memory_over_softmax,
            "state_bytes": measured.state_bytes,
            "flops": measured.flops,
            "parameters": measured.parameters,
            "over_limit": measured.over_limit,
            "backend": measured.backend,
            "reference": measured.reference,
        }
    return cells


def _dotted(prefix: str, fields: Mapping[str, Any]) -> Cells:
    cells: Cells = {}
    for name, value in fields.items():
        path = f"{prefix}.{name}"
        cells |= _dotted(path, dict(value)) if isinstance(value, Frozen) else {path: value}
    return cells
