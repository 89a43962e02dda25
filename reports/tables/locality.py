"""Groups records into locality studies: accuracy against the tokens that attention reaches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.record import Record
from reports.tables.boards import Baselines, Options, Row, baselines, by_options, grouped
from reports.tables.settings import Setting, setting

FULL, NONE, WINDOWED = "softmax", "none", "local"
"""Variants that attend to all tokens, to each token alone (it has no options), and to a window."""

WINDOW_OPTION = (WINDOWED, "window")
"""The option that varies along a curve, with its variant."""

WINDOW, SHUFFLED = "windowed attention", "full attention, shuffled blocks"


@dataclass(frozen=True)
class Curve:
    """Accuracy against a number of tokens, for one set of options of one variant.

    Attributes:
        name: `WINDOW` or `SHUFFLED`, and options that distinguish it from others of the name.
        rows: by the tokens on each side that a layer attends to, 0 for the token itself; or by the
            tokens of a shuffled block.
        full: of full attention on tokens in order; None where it was not run, or where several sets
            of its options exist and none belongs to the curve.
    """

    name: str
    rows: Mapping[int, Row]
    full: Row | None


@dataclass(frozen=True)
class Study:
    """The runs of one task, recipe and machine that show how far attention has to reach.

    Attributes:
        title: of the study, as plain text; no other study has the same.
        setting: fields that the runs share, by path, as they are without shuffled blocks.
        curves: those of windows, then those of shuffled blocks.
        baselines: of the task with tokens in order.
    """

    title: str
    setting: Setting
    curves: tuple[Curve, ...]
    baselines: Baselines

    @property
    def has_blocks(self) -> bool:
        """Whether blocks were shuffled in any run."""
        return any(one.rows for one in self.curves if one.name.startswith(SHUFFLED))

    @property
    def tokens(self) -> list[int]:
        """Every window and block size, in order."""
        return sorted({tokens for curve in self.curves for tokens in curve.rows})


def studies(records: Iterable[Record]) -> list[Study]:
    """Every study that the records make, in order of task, budget and machine.

    A window makes one together with another window or with the variant that mixes no tokens; a
    shuffled block makes one by itself.
    """
    used = [one for one in records if one.spec.attention in (FULL, NONE) or _window(one)]
    found = [
        Study(title, shared, _curves(runs), baselines(run for run in runs if not _block(run)))
        for title, shared, runs in grouped(used, _shared)
    ]
    return [study for study in found if len(study.tokens) > 1 or study.has_blocks]


def _shared(record: Record) -> Setting:
    """What a run shares with its study: block sizes differ along a curve, and so do the data."""
    key = record.spec.task.key.partition(", blocks of ")[0]
    return setting(record.spec) | {"task.key": key, "task.block": 0, "task.digests": {}}


def _curves(records: Sequence[Record]) -> tuple[Curve, ...]:
    ordered = [run for run in records if not _block(run)]
    alone = _rows((run for run in ordered if run.spec.attention == NONE), lambda _: 0)
    full = [
        Curve(SHUFFLED + options, _rows(filter(_block, runs), _block), _full(runs))
        for options, runs in by_options(run for run in records if run.spec.attention == FULL)
    ]
    windowed = by_options(filter(_window, ordered), _options) or [("", [])]
    end = full[0].full if len(full) == 1 else None
    return (
        *(Curve(WINDOW + options, alone | _rows(runs, _window), end) for options, runs in windowed),
        # A single run of full attention is the end of the windowed curve, and no curve of its own.
        *(curve for curve in full if curve.rows or len(full) > 1),
    )


def _full(runs: Iterable[Record]) -> Row | None:
    ordered = tuple(run for run in runs if not _block(run))
    return Row(FULL, ordered) if ordered else None


def _window(record: Record) -> int:
    """The window of a run of windowed attention; 0 for any other run."""
    window = record.spec.options.get(WINDOWED, {}).get("window")
    return window if record.spec.attention == WINDOWED and isinstance(window, int) else 0


def _block(record: Record) -> int:
    return record.spec.task.block


def _rows(runs: Iterable[Record], tokens: Callable[[Record], int]) -> dict[int, Row]:
    groups: dict[int, list[Record]] = {}
    for run in runs:
        groups.setdefault(tokens(run), []).append(run)
    return {count: Row(of[0].spec.attention, tuple(of)) for count, of in groups.items()}


def _options(record: Record) -> Options:
    return {
        name: {option: value for option, value in own.items() if (name, option) != WINDOW_OPTION}
        for name, own in record.spec.options.items()
    }
