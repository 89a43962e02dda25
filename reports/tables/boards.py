"""Groups records into boards and rows: a board is one table, a row is one line of it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from harness.records.cost import CostRecord
from harness.records.record import Cost, Final, Record
from harness.records.spec import RunSpec
from reports.statistics import Interval, interval
from reports.tables.settings import Setting, setting, sort_key, titles
from reports.text import plain

Key = TypeVar("Key")

REASON = 200
"""The most characters of a reason in a table; the record has the complete reason."""

Options = Mapping[str, Mapping[str, object]]
"""Options of the variants of a run, by variant."""

Baselines = tuple[tuple[str, float], ...]
"""Accuracies without attention as fractions, by name, the highest first."""


@dataclass(frozen=True)
class Row:
    """Runs of one variant with one set of options, which differ by seed only.

    Attributes:
        label: the variant's name, and options that distinguish it from other rows of the name.
        runs: one for each seed, in order of seed.
    """

    label: str
    runs: tuple[Record, ...]

    @property
    def spec(self) -> RunSpec:
        """Of the first run: all agree on everything but the seed."""
        return self.runs[0].spec

    @property
    def finals(self) -> list[Final]:
        """Outcomes of the runs that finished."""
        return [run.final for run in self.runs if run.final]

    @cached_property
    def accuracy(self) -> Interval | None:
        """Test accuracy over the runs that finished; None where none did."""
        finals = self.finals
        if not finals:
            return None
        return interval([final.test_accuracy for final in finals], finals[0].test_examples)

    @cached_property
    def costs(self) -> list[Cost]:
        """Costs of all runs, finished or not; only those with softmax, if there are any."""
        measured = [run.cost for run in self.runs if run.cost]
        return [cost for cost in measured if cost.softmax] or measured

    @property
    def failures(self) -> str:
        """How the runs that did not finish ended, in one line; empty where all finished."""
        failed = group_by((run for run in self.runs if not run.final), failure)
        if len(failed) == 1 and not self.finals:
            return next(iter(failed))
        seeds = {reason: [str(run.spec.seed) for run in runs] for reason, runs in failed.items()}
        return "; ".join(f"seed {', '.join(own)} {reason}" for reason, own in seeds.items())


@dataclass(frozen=True)
class Board:
    """Rows whose numbers may be compared: same task, data, recipe and machine.

    Attributes:
        title: of the board, as plain text; no other board has the same.
        machine: where its runs were measured.
        setting: every field of the specification that all runs share, by its path.
        rows: the most accurate first, those without an accuracy last.
        baselines: of the task.
    """

    title: str
    machine: str
    setting: Setting
    rows: tuple[Row, ...]
    baselines: Baselines

    @property
    def spec(self) -> RunSpec:
        """Of any run: all agree on everything but variant, options and seed."""
        return self.rows[0].spec

    @property
    def test_examples(self) -> int | None:
        """Size of the test split; None where no run finished."""
        return next((final.test_examples for row in self.rows for final in row.finals), None)


def boards(records: Iterable[Record]) -> list[Board]:
    """Every board that the records make, in order of task, budget and machine.

    Two records share a board if their specifications differ in nothing but variant, options and
    seed, and if they ran on the same machine.
    """
    return [
        Board(title, machine(runs[0]), shared, _rows(runs), baselines(runs))
        for title, shared, runs in grouped(records, lambda run: setting(run.spec))
    ]


def grouped(
    records: Iterable[Record], shared: Callable[[Record], Setting]
) -> list[tuple[str, Setting, list[Record]]]:
    """Groups of runs of one setting and machine in order, each with its title and setting.

    Of two records of the same run on one machine, the later one is used.
    """
    ordered = sorted(records, key=lambda record: (record.spec.id, record.started))
    latest = {(record.spec.id, machine(record)): record for record in ordered}
    groups = group_by(latest.values(), lambda run: sort_key(shared(run), machine(run)))
    runs = [groups[key] for key in sorted(groups)]
    settings = [shared(own[0]) for own in runs]
    names = titles(settings, [machine(own[0]) for own in runs])
    return list(zip(names, settings, runs, strict=True))


def group_by(runs: Iterable[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    """The runs by `key`; keys and runs are in the order of `runs`."""
    groups: dict[Key, list[Record]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def machine(record: Record | CostRecord) -> str:
    """The machine of a cost: the device, for a CPU with the number of threads."""
    name, threads = record.environment.device, record.environment.threads
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"{name}, {count}" if record.spec.device == "cpu" else name


def failure(record: Record) -> str:
    """How a run ended that did not finish, in a few words."""
    status, reason = record.status.replace("_", " "), plain(record.reason, REASON)
    if not reason:
        return f"{status} at step {record.curve[-1].step}" if record.curve else status
    return reason if status in reason.lower() else f"{status}: {reason}"


def by_options(
    runs: Iterable[Record], options: Callable[[Record], Options] = lambda run: run.spec.options
) -> list[tuple[str, list[Record]]]:
    """Groups of runs whose options agree, in order of seed, each with the options that differ.

    Returns:
        The text of `differences` and the runs.
    """
    ordered = sorted(runs, key=lambda run: run.spec.seed)
    groups = group_by(ordered, lambda run: json.dumps(options(run), sort_keys=True))
    sets = [groups[key] for key in sorted(groups)]
    return list(zip(differences([options(runs[0]) for runs in sets]), sets, strict=True))


def differences(sets: Sequence[Options]) -> list[str]:
    """What distinguishes each set of options, as ` (eta=0.1, rank=20)`; empty for a single one."""
    flat = [_flat(options) for options in sets]
    names = sorted({name for own in flat for name in own})
    differing = [name for name in names if len({own.get(name) for own in flat}) > 1]
    texts = [", ".join(f"{name}={own[name]}" for name in differing if name in own) for own in flat]
    return [f" ({text})" if text else "" for text in texts]


def baselines(records: Iterable[Record]) -> Baselines:
    """Baselines of runs of one task; where records disagree, the latest is used."""
    accuracies: dict[str, float] = {}
    for record in sorted(records, key=lambda record: record.started):
        accuracies |= record.baselines
    return tuple(sorted(accuracies.items(), key=lambda baseline: (-baseline[1], baseline[0])))


def _rows(records: Sequence[Record]) -> tuple[Row, ...]:
    rows = [
        Row(f"{name}{options}", tuple(runs))
        for name, all_runs in group_by(records, lambda run: run.spec.attention).items()
        for options, runs in by_options(all_runs)
    ]
    return tuple(sorted(rows, key=lambda r: (-r.accuracy.mean if r.accuracy else 1, r.label)))


def _flat(options: Options) -> dict[str, str]:
    """Options by name; with the variant's name before it where a composition has several."""
    prefix = "{0}.{1}" if len(options) > 1 else "{1}"
    return {
        prefix.format(variant, name): str(value)
        for variant, own in options.items()
        for name, value in own.items()
    }
