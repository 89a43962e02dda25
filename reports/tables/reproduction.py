"""Measured costs of training steps beside those that a paper published for the same shapes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.cost import CostRecord
from reports.papers import published
from reports.tables.cost import cell_text
from reports.tables.values import NOTHING, number
from reports.text import csv_text

REFERENCE = "softmax"
"""The row that published ratios refer to: softmax by its formula."""

SDPA = "sdpa"
"""The row of SDPA softmax, which no paper published."""

TIME, MEMORY = "s/1K steps", "GB"
"""Units of published numbers."""

GIGA = 1e9

HEADINGS: tuple[str, ...] = (
    "task", "attention", "options", "length", "batch", "precision", "device", "machine", "threads",
    "status", "reason", "backend", "seconds_per_1k_steps_q1", "seconds_per_1k_steps_median",
    "seconds_per_1k_steps_q3", "published_seconds_per_1k_steps", "peak_memory_gb",
    "published_peak_memory_gb", "time_over_naive_softmax", "published_time_over_softmax",
    "time_over_fastest_softmax", "fastest_softmax", "memory_over_naive_softmax",
    "published_memory_over_softmax", "memory_over_sdpa_softmax", "source", "commit",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A variant on a task.

    Attributes:
        task: the key of the task.
        attention: the variant; `REFERENCE` by its formula, or `SDPA`.
        record: of its training step.
        naive: that of softmax by its formula on the task.
    """

    task: str
    attention: str
    record: CostRecord
    naive: CostRecord

    @property
    def time(self) -> float | None:
        """Seconds of 1,000 steps."""
        cell = self.record.measured
        return 1000 * cell.seconds.median if cell else None

    @property
    def memory(self) -> float | None:
        """Peak memory of a step in GB."""
        cell = self.record.measured
        return cell.peak_bytes / GIGA if cell else None

    @property
    def time_over_fastest(self) -> float | None:
        """Time over that of the fastest softmax, measured alternately."""
        return _over_fastest(self.record)

    @property
    def memory_over_sdpa(self) -> float | None:
        """Memory over that of SDPA softmax."""
        cell = self.record.measured
        return cell.memory_over_softmax if cell else None

    @property
    def time_over_naive(self) -> float | None:
        """Time over that of softmax by its formula; both alternate with the fastest softmax."""
        cell, naive = self.record.measured, self.naive.measured
        if not (cell and naive and cell.over_softmax and naive.over_softmax):
            return None
        if cell.reference != naive.reference:
            return cell.seconds.median / naive.seconds.median
        return cell.over_softmax.median / naive.over_softmax.median

    @property
    def memory_over_naive(self) -> float | None:
        """Memory over that of softmax by its formula."""
        naive = self.naive.measured
        return self.memory / (naive.peak_bytes / GIGA) if self.memory and naive else None

    def published(self, unit: str) -> float | None:
        """The published number."""
        found = published(self.task, self.attention).get(unit)
        return float(found.value) if found else None

    def published_over_softmax(self, unit: str) -> float | None:
        """The published number over that of softmax."""
        own, softmax = self.published(unit), published(self.task, REFERENCE).get(unit)
        return own / float(softmax.value) if own and softmax else None

    @property
    def source(self) -> str | None:
        """The source of the published numbers."""
        found = published(self.task, self.attention).get(TIME)
        return found.reference if found else None


def _over_fastest(record: CostRecord) -> float | None:
    cell = record.measured
    return cell.over_softmax.median if cell and cell.over_softmax else None


def by_attention(entries: Sequence[Entry]) -> dict[str, dict[str, Entry]]:
    """The entries by variant and task, in their order."""
    rows: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        rows.setdefault(entry.attention, {})[entry.task] = entry
    return rows


def tasks_of(entries: Sequence[Entry]) -> list[str]:
    """Every task, in order."""
    return list(dict.fromkeys(entry.task for entry in entries))


def label(attention: str) -> str:
    """The name of a row: which softmax it is."""
    return {REFERENCE: "softmax (naive)", SDPA: "softmax (SDPA)"}.get(attention, attention)


def entry_text(entry: Entry, value: float | None) -> str:
    """A measured value, or why there is none."""
    return cell_text(entry.record, lambda _: number(value) if value else NOTHING)


def as_csv(entries: Sequence[Entry]) -> str:
    """Every entry, at full precision; a cell without a value is empty, never zero."""
    return csv_text(HEADINGS, map(line, entries))


def line(entry: Entry) -> dict[str, object]:
    """The values of `HEADINGS`."""
    record, spec = entry.record, entry.record.spec
    shape = ("length", "batch", "precision", "device", "machine", "threads")
    seconds = record.measured.seconds.model_dump() if record.measured else {}
    return {
        "task": entry.task,
        "attention": entry.attention,
        "options": json.dumps(record.options, sort_keys=True),
        **{name: getattr(spec, name) for name in shape},
        "status": record.status,
        "reason": record.reason,
        "backend": record.measured.backend if record.measured else None,
        **{f"seconds_per_1k_steps_{which}": 1000 * value for which, value in seconds.items()},
        "published_seconds_per_1k_steps": entry.published(TIME),
        "peak_memory_gb": entry.memory,
        "published_peak_memory_gb": entry.published(MEMORY),
        "time_over_naive_softmax": entry.time_over_naive,
        "published_time_over_softmax": entry.published_over_softmax(TIME),
        "time_over_fastest_softmax": entry.time_over_fastest,
        "fastest_softmax": record.measured.reference if record.measured else None,
        "memory_over_naive_softmax": entry.memory_over_naive,
        "published_memory_over_softmax": entry.published_over_softmax(MEMORY),
        "memory_over_sdpa_softmax": entry.memory_over_sdpa,
        "source": entry.source,
        "commit": record.environment.commit,
    }
