"""Groups records into audits: accuracy against the window that a model may see, curve by curve."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.record import Record
from reports import settings
from reports.rows import Row, baselines_of, differing, latest, machine

WHOLE, NONE, WINDOWED = "softmax", "none", "local"
"""Variants that see all tokens, their own alone (it has no options), and a window."""

WINDOW = (WINDOWED, "window")
"""The option that differs along a curve, behind its variant."""

SEEN, SHUFFLED = "sees a window", "sees all, shuffled in blocks"


@dataclass(frozen=True)
class Curve:
    """Accuracy against the tokens that a model may see, for one set of options of its variant.

    Attributes:
        name: `SEEN` or `SHUFFLED`, with the options that tell it from another of that name.
        rows: by the tokens to each side that a layer sees, 0 for the token itself; or by the tokens
            of a shuffled block.
        whole: of the model that sees all tokens where they stand; absent where it was not run, or
            where several sets of its options leave open which one ends the curve.
    """

    name: str
    rows: Mapping[int, Row]
    whole: Row | None


@dataclass(frozen=True)
class Audit:
    """The runs of one task, recipe and machine that tell how far a model has to look.

    Attributes:
        setting: what the runs share, by path; the task is named as it is unshuffled.
        machine: where they ran.
        seen: the curves of models that see a window.
        shuffled: those of models that see all; several only where their options differ.
        baselines: accuracies that need no attention, by name, the highest first.
    """

    setting: settings.Setting
    machine: str
    seen: tuple[Curve, ...]
    shuffled: tuple[Curve, ...]
    baselines: tuple[tuple[str, float], ...]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """Those that see a window, then the others."""
        return self.seen + self.shuffled

    @property
    def title(self) -> str:
        """Task, budget and machine; audits that differ in the recipe alone share it."""
        return settings.title(self.setting, self.machine)

    @property
    def has_blocks(self) -> bool:
        """Whether blocks were shuffled in any run."""
        return any(curve.rows for curve in self.shuffled)

    @property
    def tokens(self) -> list[int]:
        """Every window and block, in order."""
        return sorted({tokens for curve in self.curves for tokens in curve.rows})


def audits(records: Iterable[Record]) -> list[Audit]:
    """Every audit that the records make, in order of task, budget and machine.

    A window makes one where another stands beside it, or the model that mixes no tokens; a shuffled
    block makes one by itself.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in sorted(latest(records), key=lambda record: record.spec.seed):
        if record.spec.attention in (WHOLE, NONE, WINDOWED):
            shared = settings.group(_setting(record), machine(record))
            groups.setdefault(shared, []).append(record)
    found = [_audit(groups[shared]) for shared in sorted(groups)]
    return [audit for audit in found if len(audit.tokens) > 1 or audit.has_blocks]


def _setting(record: Record) -> dict[str, object]:
    """What a run shares with its audit: blocks are what differs along a curve."""
    key = record.spec.task.key.partition(", blocks of ")[0]
    return {**settings.setting(record.spec), "task.key": key, "task.block": 0}


def _audit(records: Sequence[Record]) -> Audit:
    plain = [one for one in records if not _block(one)]
    own = _along((one for one in plain if one.spec.attention == NONE), lambda _: 0)
    windowed = _by_options(one for one in plain if one.spec.attention == WINDOWED)
    shuffled = [
        Curve(SHUFFLED + told, _along(filter(_block, runs), _block), _whole(runs))
        for told, runs in _by_options(one for one in records if one.spec.attention == WHOLE)
    ]
    end = shuffled[0].whole if len(shuffled) == 1 else None
    return Audit(
        setting=_setting(records[0]),
        machine=machine(records[0]),
        seen=tuple(
            Curve(SEEN + told, own | _along(runs, _window), end)
            for told, runs in windowed or [("", [])]
        ),
        # Where all that one has is the end of what sees a window, it needs no column of its own.
        shuffled=tuple(one for one in shuffled if one.rows or len(shuffled) > 1),
        baselines=baselines_of(plain),
    )


def _whole(runs: Iterable[Record]) -> Row | None:
    plain = tuple(one for one in runs if not _block(one))
    return Row(WHOLE, plain) if plain else None


def _window(record: Record) -> int:
    return int(record.spec.options[WINDOWED]["window"])


def _block(record: Record) -> int:
    return record.spec.task.block


def _along(runs: Iterable[Record], tokens: Callable[[Record], int]) -> dict[int, Row]:
    found: dict[int, list[Record]] = {}
    for run in runs:
        found.setdefault(tokens(run), []).append(run)
    return {count: Row(of[0].spec.attention, tuple(of)) for count, of in found.items()}


def _by_options(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """Runs whose options, the window aside, are the same, behind what tells them from others."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps(_options(record), sort_keys=True), []).append(record)
    sets = [groups[options] for options in sorted(groups)]
    told = differing([_options(runs[0]) for runs in sets])
    return [(f" ({how})" if how else "", runs) for how, runs in zip(told, sets, strict=True)]


def _options(record: Record) -> dict[str, dict[str, object]]:
    """Options of a run, but for the window."""
    return {
        name: {option: value for option, value in own.items() if (name, option) != WINDOW}
        for name, own in record.spec.options.items()
    }
