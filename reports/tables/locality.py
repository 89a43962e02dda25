"""Groups records into locality studies: accuracy against the tokens that attention reaches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.record import Record
from reports.tables import settings
from reports.tables.boards import (
    Baselines,
    Options,
    Row,
    baselines,
    by_options,
    differing,
    latest,
    machine,
)

FULL, NONE, WINDOWED = "softmax", "none", "local"
"""Variants that attend to all tokens, to each token alone (it has no options), and to a window."""

WINDOW_OPTION = (WINDOWED, "window")
"""The option that varies along a curve, with its variant."""

WINDOW, SHUFFLED = "windowed attention", "full attention, shuffled blocks"


@dataclass(frozen=True)
class Curve:
    """Accuracy against a number of tokens, for one set of options of one variant.

    Attributes:
        name: `WINDOW` or `SHUFFLED`, with the options that distinguish it from others of the name.
        rows: by the tokens to each side that a layer attends to, 0 for the token itself; or by the
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
        title: task, budget and machine as plain text, and what distinguishes the study from others
            with the same three.
        machine: the device, with its threads where it is a processor.
        setting: fields that the runs share, by path, as they are without shuffled blocks.
        curves: those of windows, then those of shuffled blocks.
        baselines: of the task with tokens in order.
    """

    title: str
    machine: str
    setting: settings.Setting
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
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in latest(records):
        if record.spec.attention in (FULL, NONE) or _window(record):
            key = settings.sort_key(_setting(record), machine(record))
            groups.setdefault(key, []).append(record)
    ordered = [groups[key] for key in sorted(groups)]
    shared = [_setting(runs[0]) for runs in ordered]
    titles = settings.titles(shared, [machine(runs[0]) for runs in ordered])
    made = [
        Study(title, machine(runs[0]), of, _curves(runs), baselines(_unshuffled(runs)))
        for title, of, runs in zip(titles, shared, ordered, strict=True)
    ]
    return [study for study in made if len(study.tokens) > 1 or study.has_blocks]


def _setting(record: Record) -> settings.Setting:
    """What a run shares with its study: block sizes differ along a curve, and so do the data."""
    key = record.spec.task.key.partition(", blocks of ")[0]
    changes = {"task.key": key, "task.block": 0, "task.digests": {}}
    return {**settings.setting(record.spec), **changes}


def _curves(records: Sequence[Record]) -> tuple[Curve, ...]:
    plain = _unshuffled(records)
    alone = _rows((one for one in plain if one.spec.attention == NONE), lambda _: 0)
    full = [
        Curve(SHUFFLED + suffix, _rows((run for run in runs if _block(run)), _block), _full(runs))
        for suffix, runs in _named(one for one in records if one.spec.attention == FULL)
    ]
    end = full[0].full if len(full) == 1 else None
    windowed = _named(one for one in plain if one.spec.attention == WINDOWED) or [("", [])]
    return (
        *(Curve(WINDOW + suffix, alone | _rows(runs, _window), end) for suffix, runs in windowed),
        # A single run of full attention is the end of the windowed curve, and no curve of its own.
        *(curve for curve in full if curve.rows or len(full) > 1),
    )


def _unshuffled(runs: Iterable[Record]) -> list[Record]:
    return [run for run in runs if not _block(run)]


def _full(runs: Iterable[Record]) -> Row | None:
    plain = tuple(_unshuffled(runs))
    return Row(FULL, plain) if plain else None


def _window(record: Record) -> int:
    """The window of a run of windowed attention; 0 for any other."""
    window = record.spec.options.get(WINDOWED, {}).get("window")
    return window if record.spec.attention == WINDOWED and isinstance(window, int) else 0


def _block(record: Record) -> int:
    return record.spec.task.block


def _rows(runs: Iterable[Record], tokens: Callable[[Record], int]) -> dict[int, Row]:
    groups: dict[int, list[Record]] = {}
    for run in runs:
        groups.setdefault(tokens(run), []).append(run)
    return {count: Row(of[0].spec.attention, tuple(of)) for count, of in groups.items()}


def _named(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """Runs whose options, but for the window, agree; each with the options that differ."""
    sets = by_options(records, _options)
    texts = differing([_options(runs[0]) for runs in sets])
    return [(f" ({text})" if text else "", runs) for text, runs in zip(texts, sets, strict=True)]


def _options(record: Record) -> Options:
    return {
        name: {option: value for option, value in own.items() if (name, option) != WINDOW_OPTION}
        for name, own in record.spec.options.items()
    }
