"""Groups records into boards and rows: what one table compares, and what is one line of it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median_low

from harness.records.record import Cost, Final, Record, Usage
from harness.records.spec import RunSpec
from reports.statistics import Interval, interval, median_quartiles
from reports.tables import settings
from reports.text import plain

REASON = 200
"""The most characters of a reason in a table; the record has all of them."""

Options = Mapping[str, Mapping[str, object]]
"""Options of the variants of a run, by variant."""

Baselines = tuple[tuple[str, float], ...]
"""Accuracies without attention as fractions, by name, the highest first."""


@dataclass(frozen=True)
class Row:
    """Runs of one variant with one set of options, which differ by seed only.

    Attributes:
        label: the variant's name, with the options that distinguish it from other rows of that
            name.
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

    @property
    def dev_accuracy(self) -> float | None:
        """Mean dev accuracy of the checkpoints that were tested; None where there are none."""
        return fmean(final.dev_accuracy for final in self.finals) if self.finals else None

    @cached_property
    def cost(self) -> Cost | None:
        """Median over the runs that were measured, finished or not; None where none was.

        Runs without a measurement of softmax count only where no run has one.
        """
        measured = [run.cost for run in self.runs if run.cost]
        costs = [cost for cost in measured if cost.softmax] or measured
        if not costs:
            return None
        softmax = [cost.softmax for cost in costs if cost.softmax]
        times = [cost.time_ratio for cost in costs if cost.time_ratio]
        inference = [cost.inference_ratio for cost in costs if cost.inference_ratio]
        return Cost(
            own=_usage([cost.own for cost in costs]),
            softmax=_usage(softmax) if softmax else None,
            time_ratio=median_quartiles(times) if times else None,
            inference_ratio=median_quartiles(inference) if inference else None,
        )

    @property
    def status(self) -> str:
        """`ok`, `partial` where only some runs finished, or how the first one ended."""
        if len(self.finals) == len(self.runs):
            return "ok"
        return "partial" if self.finals else self.runs[0].status

    @property
    def expected_failures(self) -> Mapping[str, str]:
        """Checks that its variants are known to fail, each with its reason."""
        return self.runs[-1].expected_failures

    @property
    def failures(self) -> str:
        """How the runs that did not finish ended, in one line; empty where all finished."""
        seeds: dict[str, list[int]] = {}
        for run in self.runs:
            if not run.final:
                seeds.setdefault(failure(run), []).append(run.spec.seed)
        if len(seeds) == 1 and not self.finals:
            return next(iter(seeds))
        return "; ".join(f"seed {', '.join(map(str, of))} {how}" for how, of in seeds.items())


@dataclass(frozen=True)
class Board:
    """Rows whose numbers may be compared: same task, data, recipe and machine.

    Attributes:
        title: task, budget and machine as plain text, and what distinguishes the board from others
            with the same three.
        machine: the device, with its threads where it is a processor.
        setting: every field of the specification that all runs share, by its path.
        rows: the most accurate first, those without an accuracy last.
        baselines: of the task.
    """

    title: str
    machine: str
    setting: settings.Setting
    rows: tuple[Row, ...]
    baselines: Baselines

    @property
    def spec(self) -> RunSpec:
        """Of any run: all agree on everything but variant, options and seed."""
        return self.rows[0].spec

    @property
    def test_examples(self) -> int | None:
        """Size of the test split; None where no run finished."""
        finals = [final for row in self.rows for final in row.finals]
        return finals[0].test_examples if finals else None


def boards(records: Iterable[Record]) -> list[Board]:
    """Every board that the records make, in order of task, budget and machine.

    Two records share a board if their specifications differ in nothing but variant, options and
    seed, and if they ran on the same machine. Of a run that is given twice the later counts.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in latest(records):
        key = settings.sort_key(settings.setting(record.spec), machine(record))
        groups.setdefault(key, []).append(record)
    ordered = [groups[key] for key in sorted(groups)]
    shared = [settings.setting(runs[0].spec) for runs in ordered]
    titles = settings.titles(shared, [machine(runs[0]) for runs in ordered])
    return [
        Board(title, machine(runs[0]), setting, _rows(runs), baselines(runs))
        for title, setting, runs in zip(titles, shared, ordered, strict=True)
    ]


def latest(records: Iterable[Record]) -> list[Record]:
    """The runs in order of their ids, each once a machine, as its latest record there has it."""
    ordered = sorted(records, key=lambda record: (record.spec.id, record.started))
    return list({(record.spec.id, machine(record)): record for record in ordered}.values())


def machine(record: Record) -> str:
    """The machine that a run's costs hold for: the device, with the threads of a processor."""
    name, threads = record.environment.device, record.environment.threads
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"{name}, {count}" if record.spec.device == "cpu" else name


def failure(record: Record) -> str:
    """How a run ended that did not finish, in a few words."""
    status, reason = record.status.replace("_", " "), plain(record.reason, REASON)
    if not reason and record.curve:
        reason = f"at step {record.curve[-1].step}"
    if not reason or status in reason.lower():
        return reason or status
    return f"{status} {reason}" if reason.startswith("at ") else f"{status}: {reason}"


def differing(sets: Sequence[Options]) -> list[str]:
    """The options by which each set differs from the other sets: `eta=0.1, rank=20`."""
    flat = [_flat(options) for options in sets]
    names = sorted({name for options in flat for name in options})
    differ = [name for name in names if len({options.get(name) for options in flat}) > 1]
    return [
        ", ".join(f"{name}={options[name]}" for name in differ if name in options)
        for options in flat
    ]


def by_options(
    runs: Iterable[Record], options: Callable[[Record], Options] = lambda run: run.spec.options
) -> list[list[Record]]:
    """Groups of runs whose options agree, each in order of seed."""
    groups: dict[str, list[Record]] = {}
    for run in sorted(runs, key=lambda run: run.spec.seed):
        groups.setdefault(json.dumps(options(run), sort_keys=True), []).append(run)
    return [groups[key] for key in sorted(groups)]


def baselines(records: Iterable[Record]) -> Baselines:
    """Baselines of runs of one task; where records disagree, the latest counts."""
    ordered = sorted(records, key=lambda record: record.started)
    found = {name: accuracy for record in ordered for name, accuracy in record.baselines.items()}
    return tuple(sorted(found.items(), key=lambda baseline: (-baseline[1], baseline[0])))


def _rows(records: Sequence[Record]) -> tuple[Row, ...]:
    variants: dict[str, list[Record]] = {}
    for record in records:
        variants.setdefault(record.spec.attention, []).append(record)
    rows: list[Row] = []
    for name in sorted(variants):
        sets = by_options(variants[name])
        for options, runs in zip(differing([s[0].spec.options for s in sets]), sets, strict=True):
            rows.append(Row(f"{name} ({options})" if options else name, tuple(runs)))
    return tuple(sorted(rows, key=lambda r: (-r.accuracy.mean if r.accuracy else 1, r.label)))


def _flat(options: Options) -> dict[str, str]:
    """Options by name; with the variant's name before it where a composition has several."""
    prefix = "{0}.{1}" if len(options) > 1 else "{1}"
    return {
        prefix.format(variant, name): str(value)
        for variant, own in options.items()
        for name, value in own.items()
    }


def _usage(usages: Sequence[Usage]) -> Usage:
    return Usage(
        seconds_per_1k_steps=median_quartiles([usage.seconds_per_1k_steps for usage in usages]),
        tokens_per_second=median_quartiles([usage.tokens_per_second for usage in usages]),
        # A measured value: the mean of two 63-bit integers is not exact as a float.
        peak_bytes=median_low(usage.peak_bytes for usage in usages),
        parameters=usages[0].parameters,
        flops=usages[0].flops,
    )
