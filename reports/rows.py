"""Groups records into boards and rows: what may stand in one table, and what is one line of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from harness.records.record import Cost, Final, Record, Usage
from harness.records.spec import RunSpec
from reports import settings
from reports.statistics import Interval, interval, middle

MIB = 2**20
GIGA = 10**9

Options = Mapping[str, Mapping[str, object]]
"""Options of the variants of a run, by variant."""


@dataclass(frozen=True)
class Row:
    """Runs of one variant with one set of options, which differ by seed only.

    Attributes:
        label: the variant's name, with the options that tell it from other rows of that name.
        runs: one a seed, in order of seed.
    """

    label: str
    runs: tuple[Record, ...]

    @property
    def attention(self) -> str:
        """Name of the variant."""
        return self.runs[0].spec.attention

    @property
    def finals(self) -> list[Final]:
        """Outcomes of the runs that finished."""
        return [run.final for run in self.runs if run.status == "ok" and run.final]

    @cached_property
    def accuracy(self) -> Interval | None:
        """Test accuracy over the runs that finished; absent where none did."""
        finals = self.finals
        if not finals:
            return None
        return interval([final.test_accuracy for final in finals], finals[0].test_examples)

    @property
    def dev_accuracy(self) -> float | None:
        """Mean dev accuracy of the checkpoints that were tested; absent where there are none."""
        return fmean(final.dev_accuracy for final in self.finals) if self.finals else None

    @cached_property
    def cost(self) -> Cost | None:
        """Median over the runs that were measured, finished or not; absent where none was.

        Over those beside softmax, where there are any: a ratio is of what was measured together.
        """
        measured = [run.cost for run in self.runs if run.cost]
        costs = [cost for cost in measured if cost.softmax] or measured
        if not costs:
            return None
        softmax = [cost.softmax for cost in costs if cost.softmax]
        times = [cost.time_ratio for cost in costs if cost.time_ratio]
        readings = [cost.inference_ratio for cost in costs if cost.inference_ratio]
        return Cost(
            own=_usage([cost.own for cost in costs]),
            softmax=_usage(softmax) if softmax else None,
            time_ratio=middle(times) if times else None,
            inference_ratio=middle(readings) if readings else None,
        )

    @property
    def status(self) -> str:
        """`ok`, `partial` where only some runs finished, or how the first one ended."""
        if len(self.finals) == len(self.runs):
            return "ok"
        return "partial" if self.finals else self.runs[0].status

    @property
    def expected_failures(self) -> dict[str, str]:
        """Checks that its variants are known to fail, each with its reason."""
        return dict(self.runs[-1].expected_failures)

    @property
    def failures(self) -> str:
        """How the runs that did not finish ended, in one line; empty where all finished."""
        seeds: dict[str, list[int]] = {}
        for run in self.runs:
            if run.status != "ok" or not run.final:
                seeds.setdefault(failure(run), []).append(run.spec.seed)
        if len(seeds) == 1 and not self.finals:
            return next(iter(seeds))
        return "; ".join(f"seed {', '.join(map(str, of))} {how}" for how, of in seeds.items())


@dataclass(frozen=True)
class Board:
    """Rows whose numbers may be compared: same task, recipe and machine, whatever the variant.

    Attributes:
        rows: the most accurate first, those without an accuracy last.
        baselines: accuracies that need no attention, by name, the highest first.
    """

    rows: tuple[Row, ...]
    baselines: tuple[tuple[str, float], ...]

    @property
    def spec(self) -> RunSpec:
        """Of any run: all agree on everything but variant, options and seed."""
        return self.rows[0].runs[0].spec

    @property
    def setting(self) -> dict[str, object]:
        """Every field that all runs share, by its path."""
        return settings.setting(self.spec)

    @property
    def title(self) -> str:
        """Task, budget and machine; boards that differ in the recipe alone share it."""
        return settings.title(self.setting, self.machine)

    @property
    def machine(self) -> str:
        """Name of the device, with its threads where it is a processor."""
        return machine(self.rows[0].runs[0])

    @property
    def test_examples(self) -> int | None:
        """Size of the test split; unknown where no run finished."""
        finals = [final for row in self.rows for final in row.finals]
        return finals[0].test_examples if finals else None


def boards(records: Iterable[Record]) -> list[Board]:
    """Every board that the records make, in order of task, budget and machine.

    Two records share a board if their specifications differ in nothing but variant, options and
    seed, and if they ran on the same machine: seconds of two machines do not compare. Of a run that
    is given twice the later counts.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in latest(records):
        shared = settings.group(settings.setting(record.spec), machine(record))
        groups.setdefault(shared, []).append(record)
    return [_board(groups[group]) for group in sorted(groups)]


def latest(records: Iterable[Record]) -> list[Record]:
    """The runs in order of their ids, each once a machine, as its latest record there has it."""
    ordered = sorted(records, key=lambda record: (record.spec.id, record.started))
    return list({(record.spec.id, machine(record)): record for record in ordered}.values())


def machine(record: Record) -> str:
    """What a run's seconds hold for: the device, and its threads where it is a processor."""
    name, threads = record.environment.device, record.environment.threads
    return f"{name}, {threads} threads" if record.spec.device == "cpu" else name


def failure(record: Record) -> str:
    """How a run ended that did not finish, in a few words."""
    how, reason = record.status.replace("_", " "), record.reason.strip()
    if not reason and record.curve:
        reason = f"at step {record.curve[-1].step}"
    if not reason or how in reason.lower():
        return reason or how
    return f"{how} {reason}" if reason.startswith("at ") else f"{how}: {reason}"


def differing(sets: Sequence[Options]) -> list[str]:
    """Of each set of options those that tell it from the other sets: `eta=0.1, rank=20`."""
    flat = [_flat(options) for options in sets]
    names = sorted({name for options in flat for name in options})
    differ = [name for name in names if len({options.get(name) for options in flat}) > 1]
    return [
        ", ".join(f"{name}={options[name]}" for name in differ if name in options)
        for options in flat
    ]


def baselines_of(records: Iterable[Record]) -> tuple[tuple[str, float], ...]:
    """The floors of runs of one task by name, the highest first."""
    # A floor of a task's setting is one number; where records disagree, the latest knows best.
    ordered = sorted(records, key=lambda record: record.started)
    baselines = {name: of for record in ordered for name, of in record.baselines.items()}
    return tuple(sorted(baselines.items(), key=lambda floor: (-floor[1], floor[0])))


def _board(records: Sequence[Record]) -> Board:
    variants: dict[str, dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda record: record.spec.seed):
        options = json.dumps(record.spec.options, sort_keys=True)
        variants.setdefault(record.spec.attention, {}).setdefault(options, []).append(record)
    rows = [row for name in sorted(variants) for row in _rows(name, list(variants[name].values()))]
    return Board(
        rows=tuple(
            sorted(rows, key=lambda row: (-row.accuracy.mean if row.accuracy else 1, row.label))
        ),
        baselines=baselines_of(records),
    )


def _rows(attention: str, sets: Sequence[Sequence[Record]]) -> list[Row]:
    told = differing([runs[0].spec.options for runs in sets])
    return [
        Row(f"{attention} ({shown})" if shown else attention, tuple(runs))
        for shown, runs in zip(told, sets, strict=True)
    ]


def _flat(options: Options) -> dict[str, str]:
    """Options by name; the variant stands before it only where a composition has several."""
    prefix = "{0}.{1}" if len(options) > 1 else "{1}"
    return {
        prefix.format(variant, name): str(value)
        for variant, own in options.items()
        for name, value in own.items()
    }


def _usage(usages: Sequence[Usage]) -> Usage:
    return Usage(
        seconds_per_1k_steps=middle([usage.seconds_per_1k_steps for usage in usages]),
        tokens_per_second=middle([usage.tokens_per_second for usage in usages]),
        peak_bytes=round(median(usage.peak_bytes for usage in usages)),
        parameters=usages[0].parameters,
        flops=usages[0].flops,
    )
