"""Records as pandas data frames: a row a run, a row a measurement; see `docs/records.md`."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from harness.records.cost import CostRecord, CostSpec, Pass, step_of
from harness.records.fields import Frozen, Quartiles
from harness.records.interval import Sample, interval_of
from harness.records.record import Point, Record, origin_of
from harness.records.results import TaskBaselines
from harness.records.spec import by_option, field_at, label_of
from harness.records.store import BaselineStore, CostStore, Store, require_folder
from harness.records.versions import Origin, are_outdated, major, outdated
from zoo.registry import checked, uncollected

Row = dict[str, Any]

# The measured columns of a cost, see `harness.records.cost.Measured`.
MEASURED = (
    "seconds", "seconds.q1", "seconds.q3", "samples", "ratio", "ratio.q1", "ratio.q3", "no_ratio",
    "reference", "memory", "memory_batch", "memory_ratio", "peak_bytes", "state_bytes", "flops",
    "analytic_flops", "required_bytes", "parameters", "over_limit", "limit_bytes_per_second",
    "limit_flops_per_second", "softmax_parameters", "backend",
)  # fmt: skip
TEXTS = ("no_ratio", "reference", "backend", "task")  # Columns of a cost that are never missing

# Columns of a run by the path of a field of its record.
OF_RUNS = {
    "attention": "spec.attention", "row": "spec.row", "task": "spec.question.task.key",
    "question": "spec.question.name", "question.id": "spec.question.id",
    "suite": "spec.question.suite", "declared": "spec.question.declared",
    "title": "spec.question.title", "recipe": "spec.question.recipe",
    "task.name": "spec.question.task.name", "seed": "spec.seed",
    "device": "spec.device", "role": "spec.role", "match": "spec.question.match",
    "status": "status", "reason": "reason", "metric": "metric.name",
    "unit": "metric.unit", "better": "metric.better",
    "digits": "metric.digits", "chance": "metric.chance", "scale": "metric.scale",
    "exponential": "metric.exponential", "dev_metric": "selection.title",
    "dev_better": "selection.better", "dev_digits": "selection.digits",
    "backend": "backend", "machine": "environment.device",
    "threads": "environment.threads", "memory_gib": "environment.memory_gib",
    "system": "environment.system", "commit": "environment.commit", "started": "started",
    "baseline": "is_baseline", "version": "version", "id": "spec.id",
}  # fmt: skip

_fields = attrgetter(*OF_RUNS.values())
TEXTS_OF_RUNS = ("role", "match", "reference", "inference_reference")  # Never missing

# The same for numbers, which may be missing.
OUTCOME = {
    "score": "final.score", "dev": "final.dev", "best_on_test": "final.best_on_test",
    "test_examples": "final.test_examples", "best_step": "final.best_step",
    "train_seconds": "final.train_seconds", "seconds": "final.seconds",
    "processor_seconds": "processor.seconds", "processor.data": "processor.data",
    "processor.training": "processor.training", "processor.evaluation": "processor.evaluation",
    "state_bytes": "state_bytes", "parameters": "parameters", "flops": "flops",
}  # fmt: skip

_numbers = attrgetter(*OUTCOME.values())

# Columns of a run by the path of a field of its cost, by pass.
OF_STEPS: Mapping[Pass, Mapping[str, str]] = {
    "train": {
        "step_seconds": "measured.seconds", "time_ratio": "measured.ratio",
        "reference": "measured.reference", "peak_bytes": "measured.peak_bytes",
        "memory_ratio": "measured.memory_ratio",
        "softmax_parameters": "measured.softmax_parameters",
    },
    "forward": {
        "tokens_per_second": "tokens_per_second", "inference_ratio": "measured.ratio",
        "inference_reference": "measured.reference",
    },
}  # fmt: skip
TIMES = ("step_seconds", "time_ratio", "tokens_per_second", "inference_ratio")  # With quartiles

# Columns of a cost by the path of a field of its record.
OF_COSTS = {
    "attention": "spec.attention", "level": "spec.level", "pass": "spec.operation",
    "length": "spec.length", "batch": "spec.batch", "batching": "spec.batching", "dim": "spec.dim",
    "heads": "spec.heads", "depth": "spec.model.depth", "causal": "spec.causal",
    "precision": "spec.precision", "device": "spec.device", "machine": "spec.machine",
    "threads": "spec.threads", "options": "options", "status": "status", "reason": "reason",
    "linear": "claims_linear", "computed_by": "computed_by", "started": "started",
    "commit": "environment.commit", "version": "version", "shape": "spec.shape",
    "task": "spec.task.key", "id": "spec.id", "row": "spec.row",
}  # fmt: skip


def frame(*folders: Path | str) -> pd.DataFrame:
    # Of a run in several stores the last one counts.
    stores = [require_folder(Path(folder)) for folder in folders]
    every = chain.from_iterable(Store(store).each(curves=False) for store in stores)
    measured = (cost for store in stores for cost in CostStore.within(store).read()[0])
    # Record by record, which takes a third of the memory.
    found = of_records(
        (record for record in every if isinstance(record, Record)),
        {cost.spec.id: cost for cost in measured}.values(),
    )
    return found if found.empty else found.drop_duplicates("id", keep="last", ignore_index=True)


@checked
def costs(folder: Path | str) -> pd.DataFrame:
    return of_costs(CostStore.within(require_folder(Path(folder))).read()[0])


@checked
def baselines(folder: Path | str) -> pd.DataFrame:
    return of_baselines(BaselineStore.within(require_folder(Path(folder))).read()[0])


def of_baselines(found: Iterable[TaskBaselines]) -> pd.DataFrame:
    rows = [
        (record.spec.file_name, record.spec.key, record.version, not record.left, name, score)
        for record in found
        for name, score in record.scores.items()
    ]
    return pd.DataFrame(rows, columns=["data", "task", "version", "complete", "name", "score"])


def of_records(records: Iterable[Record], costs: Iterable[CostRecord] = ()) -> pd.DataFrame:
    # A run has the costs of its training step and evaluation on its machine, threads and code.
    measured = defaultdict[tuple[str, ...], dict[Pass, CostRecord]](dict)
    for cost in costs:
        measured[_key(cost)][cost.spec.operation] = cost
    rows, origins, shared = list[Row](), list[Origin](), dict[str, Row]()
    with uncollected():
        for record in records:
            origins.append(origin_of(record))
            rows.append(_run(record, origins[-1].data, shared))
            key = _key(record) if measured else ()
            rows[-1] |= _of_step(measured[key]) if key in measured else NO_STEPS
        found = pd.DataFrame(rows)
    if found.empty:
        return found
    found["outdated"] = outdated(origins)
    found[[*TEXTS_OF_RUNS]] = found[[*TEXTS_OF_RUNS]].fillna("").astype(str)
    of_steps = {name for names in OF_STEPS.values() for name in names} - {*TEXTS_OF_RUNS}
    times = {f"{name}{end}" for name in TIMES for end in (".q1", ".q3")}
    numbers = [*OUTCOME, "low", "high", "last_step", "loss", *sorted(of_steps | times)]
    # Assigned at once: pandas warns about fragmented frames.
    return found.assign(**{name: pd.to_numeric(found[name]) for name in numbers}).copy()


def _key(record: Record | CostRecord) -> tuple[str, ...]:
    # Shared by a run and the costs of its steps.
    spec, environment = record.spec, record.environment
    threads = spec.threads if isinstance(spec, CostSpec) else environment.threads
    code = sorted(f"{name} {major(record.versions.get(name, ''))}" for name in spec.options)
    return step_of(spec), environment.device, str(threads), *code


def _of_step(of_step: Mapping[Pass, CostRecord]) -> Row:
    row: Row = {}
    for operation, columns in OF_STEPS.items():
        for name, path in columns.items():
            value = field_at(of_step.get(operation), path)
            row |= _quartiles(name, value) if name in TIMES else {name: value}
    return row


def best_trials_first(trials: pd.DataFrame) -> pd.DataFrame:
    # First those that solved the question; then by dev, distance from the recipe, and text.
    is_early = trials["dev"].notna() & (trials["last_step"] < trials["train.steps"])
    order = best_first(trials["dev"], trials["dev_better"])
    ordered = trials.assign(ended=trials["last_step"].where(is_early), order=order)
    ordered = ordered.sort_values(["ended", "order", "distance", "point"])
    return ordered.drop(columns=["ended", "order"])


def is_newest(runs: pd.DataFrame) -> pd.Series:
    version = runs["task"].str.extract(r"@([0-9]+)", expand=False).fillna("0").astype(float)
    return version == version.groupby(runs["task.name"]).transform("max")


def best_first(scores: pd.Series, better: pd.Series) -> pd.Series:
    return scores.astype(float) * better.map({"higher": -1, "lower": 1}).astype(float)


def of_curves(records: Iterable[Record]) -> pd.DataFrame:
    rows = [
        (run.spec.id, run.environment.device, run.started, *dict(point).values())
        for run in records
        for point in run.curve
    ]
    names = ("id", "machine", "started", *Point.model_fields)
    return pd.DataFrame(rows, columns=[*names]).astype({"dev": float})


def of_costs(records: Iterable[CostRecord]) -> pd.DataFrame:
    found = pd.DataFrame([_cost(record) for record in records if not record.spec.superseded])
    if found.empty:
        return found
    code = zip(found["version"], found["started"], strict=True)
    found["outdated"] = found["version"].map(are_outdated(code))
    found[[*TEXTS]] = found[[*TEXTS]].astype(object).fillna("")
    return found.astype(dict.fromkeys(set(MEASURED) - {*TEXTS}, float)).copy()


def _run(record: Record, data: str, shared: dict[str, Row]) -> Row:
    spec, final = record.spec, record.final
    values = json.dumps(spec.values)
    question = spec.question
    if (of := f"{question.id} {values}") not in shared:
        shared[of] = {
            **dotted("task", question.task.options),
            **dotted("model", dict(spec.model)),
            **dotted("train", dict(spec.train)),
            "asked": json.dumps(question.model_dump(mode="json"), sort_keys=True),
            "grid": json.dumps(question.grid) if question.grid else "",
            "point": json.dumps({p: v for p, v in spec.values.items() if p in question.grid}),
            "distance": spec.distance, "values": values,
        }  # fmt: skip
    sample = Sample.of([final.sample]) if final and final.sample else None
    interval = interval_of(sample, record.metric) if sample else None
    point = record.curve[-1] if record.curve else None
    probes = final.probes if final else {}
    is_whole = record.final and record.processor
    return {
        **dict(zip(OF_RUNS, _fields(record), strict=True)),
        **(dict(zip(OUTCOME, _numbers(record), strict=True)) if is_whole else
           {name: field_at(record, path) for name, path in OUTCOME.items()}),
        "data": data,
        **shared[of],
        **by_option(record.options),
        "options": json.dumps(spec.options, sort_keys=True),
        "overrides": json.dumps(spec.overrides, sort_keys=True),
        "sample": field_at(final, "sample"),
        "low": field_at(interval, "low"), "high": field_at(interval, "high"),
        "last_step": field_at(point, "step"), "loss": field_at(point, "loss"),
        "evaluations": [(at.step, at.dev) for at in record.curve if at.dev is not None],
        "groups": next((at.groups for at in reversed(record.curve) if at.dev is not None), {}),
        "probes": {name: probe.sample for name, probe in probes.items()},
        **dotted("probe", {name: probe.score for name, probe in probes.items()}),
        **dotted("losses", point.losses if point else {}),
        **dotted("versions", record.environment.versions),
        "known_failures": len(record.expected_failures),
        "expected_failures": dict(record.expected_failures),
    }  # fmt: skip


def _quartiles(name: str, values: Quartiles | None) -> Row:
    return {
        f"{name}{end}": getattr(values, field, None)
        for end, field in (("", "median"), (".q1", "q1"), (".q3", "q3"))
    }


NO_STEPS = _of_step({})


def _cost(record: CostRecord) -> Row:
    spec, measured = record.spec, record.measured
    row = {name: field_at(record, path) for name, path in OF_COSTS.items()} | {
        "label": label_of(spec.attention, by_option(spec.options)),
        "model": spec.model.model_dump(exclude={"kind", "dim", "heads"}) if spec.model else {},
        **by_option(record.options),
        **{name: getattr(measured, name, None) for name in MEASURED},
    }
    if measured:
        row |= {
            **_quartiles("seconds", measured.seconds),
            **_quartiles("ratio", measured.ratio),
            "memory": measured.memory_bytes,
            "limit_bytes_per_second": measured.limits.bytes_per_second,
            "limit_flops_per_second": measured.limits.flops_per_second,
        }
    return row


def dotted(prefix: str, fields: Mapping[str, Any]) -> Row:
    # As `model.dim`, or `train.augment.mixup` for fields of a field.
    columns: Row = {}
    for name, value in fields.items():
        path, nested = f"{prefix}.{name}", isinstance(value, Frozen | Mapping)
        columns |= dotted(path, dict(value)) if nested else {path: value}
    return columns
