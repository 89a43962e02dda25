"""Groups records of costs into sweeps: one variant a row, one length a column."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.cost import CostRecord, CostSpec, Measured
from reports.scaling import Crossover, Exponent, crossover, exponent
from reports.tables.boards import differences, machine
from reports.tables.values import MIB, NOTHING, number
from reports.text import csv_text, plain

REASON = 80
"""The most characters of a reason in a table."""

OUTDATED = "no time ratio: measured before the fastest softmax was the reference; give --rerun"
"""What is said of a row whose ratios are to SDPA softmax."""

NAMES = {
    "forward": "evaluation", "train": "training", "prefill": "prefill", "decode": "decoding",
}  # fmt: skip

SPEC = (
    "attention", "level", "operation", "length", "batch", "batching", "dim", "heads", "causal",
    "precision", "device", "machine", "threads",
)  # fmt: skip
VALUES = (
    "samples", "no_ratio", "peak_bytes", "flops", "analytic_flops", "backend", "required_bytes",
    "parameters", "state_bytes", "reference", "memory_batch",
)  # fmt: skip
HEADINGS: tuple[str, ...] = (
    *SPEC, "options", "status", "reason", "seconds_q1", "seconds_median", "seconds_q3", "ratio_q1",
    "ratio_median", "ratio_q3", *VALUES, "memory_bytes", "memory_ratio", "flops_per_second",
    "bytes_per_second", "over_limit", "limit_flops_per_second", "limit_bytes_per_second",
    "commit",
)  # fmt: skip


@dataclass(frozen=True)
class CostRow:
    """The cells of one variant with one set of options.

    Attributes:
        label: the variant, and options that distinguish it from other rows of the name.
        cells: by length, in order.
    """

    label: str
    cells: Mapping[int, CostRecord]

    @property
    def name(self) -> str:
        """The variant, or `A+B`."""
        return next(iter(self.cells.values())).spec.attention

    @property
    def measured(self) -> dict[int, Measured]:
        """What was measured, by length."""
        return {length: one.measured for length, one in self.cells.items() if one.measured}

    @property
    def claim(self) -> str:
        """The growth that the variants claim."""
        return "O(N)" if next(iter(self.cells.values())).claims_linear else "O(N²) or N log N"

    @property
    def failures(self) -> list[str]:
        """Why cells have no value, or no ratio: a line for each, but for skipped ones."""
        reasons = [
            (length, f"{one.status.replace('_', ' ')}: {one.reason}")
            for length, one in self.cells.items()
            if one.status not in ("ok", "skipped")
        ]
        reasons += [(n, f"no ratio: {one.no_ratio}") for n, one in self.measured.items()
                    if one.no_ratio]  # fmt: skip
        return [f"{self.label} at {length:,} tokens: {reason}" for length, reason in reasons]

    @property
    def remarks(self) -> list[str]:
        """The `failures`, and what is said of ratios that are outdated."""
        outdated = any(one.ratio and not one.over_softmax for one in self.measured.values())
        return [*self.failures, *([f"{self.label}: {OUTDATED}"] if outdated else [])]

    def per_sample(self, value: Callable[[Measured], float]) -> dict[int, float]:
        """A cost of one sample, by length."""
        return {
            length: value(cell) / self.cells[length].spec.batch
            for length, cell in self.measured.items()
        }

    @property
    def time_exponent(self) -> Exponent | None:
        """Exponent of the time of one sample."""
        return exponent(self.per_sample(lambda cell: cell.seconds.median))

    @property
    def memory_exponent(self) -> Exponent | None:
        """Exponent of the memory of one sample."""
        return exponent(self.memory_per_sample)

    @property
    def memory_per_sample(self) -> dict[int, float]:
        """Bytes of one sample, by length."""
        return {length: cell.memory / self._memory_batch(length)
                for length, cell in self.measured.items()}  # fmt: skip

    def _memory_batch(self, length: int) -> int:
        return self.measured[length].memory_batch or self.cells[length].spec.batch

    @property
    def time_crossover(self) -> Crossover | None:
        """Where it becomes faster than the fastest softmax."""
        measured = self.measured.items()
        ratios = {length: cell.over_softmax for length, cell in measured if cell.over_softmax}
        return crossover(
            {length: ratio.q1 for length, ratio in ratios.items()},
            {length: ratio.q3 for length, ratio in ratios.items()},
        )

    @property
    def memory_crossover(self) -> Crossover | None:
        """Where it becomes smaller than SDPA softmax; None unless all lengths have one batch."""
        if len({self._memory_batch(length) for length in self.measured}) > 1:
            return None
        ratios = {length: cell.memory_over_softmax for length, cell in self.measured.items()}
        known = {length: ratio for length, ratio in ratios.items() if ratio}
        return crossover(known, known)


@dataclass(frozen=True)
class Sweep:
    """Rows whose costs may be compared: same pass, shape, precision and machine."""

    title: str
    rows: tuple[CostRow, ...]

    @property
    def lengths(self) -> list[int]:
        """Every length of a cell."""
        return sorted({length for row in self.rows for length in row.cells})

    @property
    def references(self) -> str:
        """The backends of the fastest softmax, each with the lengths at which a cell names it."""
        lengths: dict[str, list[int]] = {}
        for length in self.lengths:
            cells = (row.measured.get(length) for row in self.rows)
            for name in sorted({cell.reference for cell in cells if cell and cell.reference}):
                lengths.setdefault(name, []).append(length)
        texts = [
            f"{name} at {', '.join(f'{n:,}' for n in found)}" for name, found in lengths.items()
        ]
        return f"Fastest softmax: {'; '.join(texts)} tokens." if texts else ""


def sweeps(records: Iterable[CostRecord]) -> list[Sweep]:
    """Every sweep that the records make, in order of level, pass and machine."""
    groups: dict[str, list[CostRecord]] = {}
    for record in records:
        groups.setdefault(_shared(record.spec), []).append(record)
    return [Sweep(title(own[0]), _rows(own)) for own in (groups[key] for key in sorted(groups))]


def title(record: CostRecord) -> str:
    """The heading of the sweep of a record."""
    spec = record.spec
    causal = ", causal" if spec.causal and spec.operation in ("forward", "train") else ""
    batch = spec.batching if "=" in spec.batching else f"batch={spec.batching}"
    # Positions are always learned.
    own = spec.model.model_dump(exclude={"kind", "dim", "heads", "positions"}) if spec.model else {}
    model = "".join(f", {name}={value}" for name, value in own.items() if value)
    return (
        f"{NAMES[spec.operation]}, {spec.level}{causal}: {batch}, dim={spec.dim}, "
        f"heads={spec.heads}{model}, {spec.precision}; {machine(record)}"
    )


def cell_text(record: CostRecord | None, value: Callable[[Measured], str]) -> str:
    """One cell of a table: a value, or why there is none."""
    if record is None:
        return NOTHING
    if record.measured is None:
        status = record.status.replace("_", " ")
        return plain(record.reason, REASON) if status == "skipped" else status
    return value(record.measured)


def ratio_text(cell: Measured | None) -> str:
    """The ratio to the fastest softmax."""
    return number(cell.over_softmax.median) if cell and cell.over_softmax else NOTHING


def time_text(cell: Measured) -> str:
    """Milliseconds, and the ratio to the fastest softmax."""
    ratio = f" ({number(cell.over_softmax.median)}×)" if cell.over_softmax else ""
    return f"{number(1000 * cell.seconds.median)}{ratio}"


def memory_text(cell: Measured) -> str:
    """MiB, the state of decoding included, and the ratio to SDPA softmax."""
    ratio = f" ({number(cell.memory_over_softmax)}×)" if cell.memory_over_softmax else ""
    return f"{number(cell.memory / MIB)}{ratio}"


def exponent_text(fitted: Exponent | None) -> str:
    """An exponent with its interval."""
    if fitted is None:
        return NOTHING
    return f"{fitted.value:.2f} [{fitted.low:.2f}, {fitted.high:.2f}]"


def crossover_text(crossing: Crossover | None) -> str:
    """The lengths from which a row costs less than softmax, within the measured lengths."""
    if crossing is None:
        return NOTHING
    low, high, shortest, longest = crossing
    if low == 0 and high == math.inf:
        return "undecided"
    if high == 0:
        return f"below {shortest:,}"
    if low == math.inf:
        return f"above {longest:,}"
    if high == math.inf:
        return f"above {low:,.0f}"
    if low == 0:
        return f"below {high:,.0f}"
    # Memory has no interval.
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def as_csv(all_sweeps: Sequence[Sweep]) -> str:
    """Every cell of every sweep, at full precision; a cell without a value is empty, never zero."""
    rows = (row for sweep in all_sweeps for row in sweep.rows)
    return csv_text(HEADINGS, (_line(one) for row in rows for one in row.cells.values()))


def cost_rows(records: Iterable[CostRecord]) -> list[dict[str, object]]:
    """Every cell by `HEADINGS`, and the exponent of the time of its row; None for no value."""
    return [
        dict.fromkeys(HEADINGS) | _line(cell) | {"time_exponent": fitted and fitted.value}
        for sweep in sweeps(records)
        for row in sweep.rows
        for fitted in [row.time_exponent]
        for cell in row.cells.values()
    ]


def _line(record: CostRecord) -> dict[str, object]:
    spec, cell = record.spec, record.measured
    line: dict[str, object] = {name: getattr(spec, name) for name in SPEC}
    line |= {
        "options": record.options,
        "status": record.status,
        "reason": record.reason,
        "commit": record.environment.commit,
    }
    if cell is None:
        return line
    for name, quartiles in (("seconds", cell.seconds), ("ratio", cell.over_softmax)):
        if quartiles:
            line |= {f"{name}_{which}": value for which, value in quartiles.model_dump().items()}
    line |= {name: getattr(cell, name) for name in VALUES}
    return line | {
        "memory_bytes": cell.memory,
        "memory_ratio": cell.memory_over_softmax,
        "flops_per_second": cell.flops / cell.seconds.median,
        "bytes_per_second": cell.required_bytes / cell.seconds.median,
        "over_limit": cell.over_limit,
        "limit_flops_per_second": cell.limits.flops_per_second,
        "limit_bytes_per_second": cell.limits.bytes_per_second,
    }


def _shared(spec: CostSpec) -> str:
    """What all cells of a sweep share."""
    own = {"attention", "options", "overrides", "length", "batch"}
    return json.dumps(spec.model_dump(mode="json", exclude=own), sort_keys=True)


def _rows(records: Sequence[CostRecord]) -> tuple[CostRow, ...]:
    """The rows in order of name."""
    by_name: dict[str, dict[str, list[CostRecord]]] = {}
    for record in records:
        options = json.dumps(record.spec.options, sort_keys=True)
        by_name.setdefault(record.spec.attention, {}).setdefault(options, []).append(record)
    rows = []
    for name, sets in sorted(by_name.items()):
        specs = [own[0].spec for own in sets.values()]
        texts = differences([one.options for one in specs], [one.overrides for one in specs])
        for text, own in zip(texts, sets.values(), strict=True):
            cells = {one.spec.length: one for one in sorted(own, key=lambda r: r.spec.length)}
            rows.append(CostRow(name + text, cells))
    return tuple(sorted(rows, key=lambda row: row.label))
