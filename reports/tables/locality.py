"""Groups records into locality studies: accuracy against the tokens that attention reaches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.record import Metric, Record
from reports.tables.boards import (
    Baselines,
    Row,
    baselines,
    by_options,
    group_by,
    grouped,
)
from reports.tables.settings import Setting, setting
from reports.tables.trials import without_trials

FULL, NONE, WINDOWED = "softmax", "none", "local"
"""Variants that attend to all tokens, to each token alone (it has no options), and to a window."""

WINDOW, SHUFFLED = "windowed attention", "full attention, shuffled blocks"

ALL = 2**63
"""The number of tokens of full attention on tokens in order, greater than any other."""


@dataclass(frozen=True)
class Curve:
    """Rows by a number of tokens, for one set of options of one variant.

    The number is that of the tokens on each side that a layer attends to (0: the token itself), or
    that of the tokens of a shuffled block. Full attention on tokens in order has the number `ALL`.
    """

    name: str
    rows: Mapping[int, Row]


@dataclass(frozen=True)
class Study:
    """The runs of one task, recipe and machine that show the range of attention that it needs.

    `setting` is that of tokens in order, and so are the baselines. The curves of windows come
    before those of shuffled blocks.
    """

    title: str
    setting: Setting
    curves: tuple[Curve, ...]
    baselines: Baselines

    @property
    def metric(self) -> Metric:
        """What its scores are."""
        return next(row.metric for curve in self.curves for row in curve.rows.values())

    @property
    def has_blocks(self) -> bool:
        """Whether blocks were shuffled in any run."""
        return any(c.name.startswith(SHUFFLED) and {*c.rows} - {ALL} for c in self.curves)

    @property
    def ticks(self) -> dict[int, str]:
        """Every number of tokens in order, with its label; always with `ALL`."""
        tokens = {tokens for curve in self.curves for tokens in curve.rows} - {ALL}
        return {**{number: str(number) for number in sorted(tokens)}, ALL: "all"}


def studies(records: Iterable[Record]) -> list[Study]:
    """Every study that the records make, in order of task, budget and machine.

    A study needs two windows, or a window and the variant that mixes no tokens, or a shuffled
    block.
    """
    used = [
        run for run in without_trials(records) if run.spec.attention in (FULL, NONE) or _window(run)
    ]
    candidates = [
        Study(title, shared, _curves(runs), baselines(run for run in runs if not _block(run)))
        for title, shared, runs in grouped(used, _shared)
    ]
    return [study for study in candidates if len(study.ticks) > 2 or study.has_blocks]


def _shared(record: Record) -> Setting:
    """What a run shares with its study: block sizes differ along a curve, and so do the data."""
    key = record.spec.task.key.partition(", blocks of ")[0]
    return setting(record.spec) | {"task.key": key, "task.block": 0, "task.digests": {}}


def _curves(records: Sequence[Record]) -> tuple[Curve, ...]:
    ordered = [run for run in records if not _block(run)]
    alone = _rows((run for run in ordered if run.spec.attention == NONE), lambda run: 0)
    shuffled = [
        Curve(SHUFFLED + options, _rows(runs, lambda run: _block(run) or ALL))
        for options, runs in by_options(run for run in records if run.spec.attention == FULL)
    ]
    windowed = by_options(filter(_window, ordered), f"{WINDOWED}.window") or [("", [])]
    # With several sets of options of full attention, none is the end of a windowed curve.
    only = shuffled[0].rows if len(shuffled) == 1 else {}
    end = {ALL: only[ALL]} if ALL in only else {}
    curves = [Curve(WINDOW + name, alone | _rows(runs, _window) | end) for name, runs in windowed]
    # A single run of full attention is the end of the windowed curve, and no curve of its own.
    return (*curves, *(c for c in shuffled if len(shuffled) > 1 or {*c.rows} - {ALL}))


def _window(record: Record) -> int:
    """The window of a run of windowed attention; 0 for any other run."""
    window = record.options.get(WINDOWED, {}).get("window")
    return window if record.spec.attention == WINDOWED and isinstance(window, int) else 0


def _block(record: Record) -> int:
    return record.spec.task.block


def _rows(runs: Iterable[Record], tokens: Callable[[Record], int]) -> dict[int, Row]:
    groups = group_by(runs, tokens)
    return {count: Row(same[0].spec.attention, tuple(same)) for count, same in groups.items()}
