"""How near the tokens are that a task needs: accuracy against the window that a model may see.

Two curves a task. A model whose every layer sees so many tokens to each side; and a model that sees
all tokens of documents whose blocks of so many tokens were shuffled, so that no order is left but
that within a block. Where the second stays as high as the whole, no order beyond it is used.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.store import Record, RunSpec, place
from reports.bubbles import QUIET
from reports.plots import PANEL, STYLE, as_bytes
from reports.rows import machine
from reports.statistics import Interval, interval

WHOLE, NONE, WINDOWED = "softmax", "none", "local"
"""Variants behind the ends of a curve, and behind its middle: all tokens, the own one, a window."""

SEEN, SHUFFLED = "sees a window", "sees all, shuffled in blocks"


HEAD = f"""\
# How far a model has to look

Test accuracy in percent, with its 95 % interval. *{SEEN}*: every layer sees so many tokens to each
side. *{SHUFFLED}*: the model sees all tokens of documents whose blocks of
so many tokens are in random order, in training and in test.
"""


@dataclass(frozen=True)
class Audit:
    """The runs of one task, recipe and machine that tell how far a model has to look.

    Attributes:
        spec: of one of the runs.
        where: the machine.
        seen: accuracy by the tokens to each side that a layer sees; 0 is the token itself.
        shuffled: accuracy by the tokens of a shuffled block.
        whole: accuracy of the model that sees all tokens, where they stand.
        floors: accuracies that need no attention, by name.
    """

    spec: RunSpec
    where: str
    seen: Mapping[int, Interval]
    shuffled: Mapping[int, Interval]
    whole: Interval | None
    floors: Mapping[str, float]


def audits(records: Iterable[Record]) -> list[Audit]:
    """Every audit that the records make, in order of task; unfinished runs are left out."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if (
            record.final
            and record.status == "ok"
            and record.spec.attention in (WHOLE, NONE, WINDOWED)
        ):
            groups.setdefault(_setting(record), []).append(record)
    found = [_audit(groups[setting]) for setting in sorted(groups)]
    return [audit for audit in found if audit.shuffled or len(audit.seen) > 1]


def write(records: Iterable[Record], folder: Path) -> list[Path]:
    """Write `locality.md`, `locality.png` and `locality.svg`, and return their paths.

    Raises:
        ValueError: the records make no audit.
    """
    found = audits(records)
    if not found:
        raise ValueError(
            "no runs with windows or shuffled blocks; make some: harness locality TASK"
        )
    contents = {"locality.md": markdown(found).encode(), **figure(found)}
    return [place(folder / name, content) for name, content in contents.items()]


def markdown(found: Sequence[Audit]) -> str:
    """A table an audit: a row a window, accuracies in percent with their 95 % intervals."""
    parts = [HEAD]
    for audit in found:
        lines = ["| tokens | " + SEEN + " | " + SHUFFLED + " |", "| --: | --: | --: |"]
        for tokens in sorted({*audit.seen, *audit.shuffled}):
            cells = (_cell(audit.seen.get(tokens)), _cell(audit.shuffled.get(tokens)))
            lines.append(f"| {tokens} | {' | '.join(cells)} |")
        lines.append(f"| all | {_cell(audit.whole)} | |")
        lines += [f"| *{n}* | *{100 * a:.1f}* | |" for n, a in _descending(audit.floors)]
        parts.append(f"## {_title(audit)}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def figure(found: Sequence[Audit]) -> Mapping[str, bytes]:
    """The curves as PNG and SVG, by file name; the same audits give the same bytes."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": "locality"}):
        drawn = Figure((PANEL[0] * len(found), PANEL[1]), dpi=160, layout="constrained")
        FigureCanvasAgg(drawn)
        for number, audit in enumerate(found, 1):
            _draw(drawn.add_subplot(1, len(found), number), audit)
        return {
            "locality.png": as_bytes(drawn, "png", {"Software": None}),
            "locality.svg": as_bytes(drawn, "svg", {"Date": None}),
        }


def _setting(record: Record) -> str:
    # The block is what differs along a curve, and the key names it.
    spec = record.spec.model_dump(mode="json", exclude={"attention", "options", "seed"})
    del spec["task"]["key"], spec["task"]["block"]
    return json.dumps([spec["task"]["name"], machine(record), spec], sort_keys=True)


def _audit(records: Sequence[Record]) -> Audit:
    plain = [one for one in records if not one.spec.task.block]
    seen = {0: [one for one in plain if one.spec.attention == NONE]}
    for one in plain:
        if one.spec.attention == WINDOWED:
            seen.setdefault(int(one.spec.options[WINDOWED]["window"]), []).append(one)
    shuffled: dict[int, list[Record]] = {}
    for one in records:
        if one.spec.attention == WHOLE and one.spec.task.block:
            shuffled.setdefault(one.spec.task.block, []).append(one)
    whole = [one for one in plain if one.spec.attention == WHOLE]
    return Audit(
        spec=(plain or records)[0].spec,
        where=machine(records[0]),
        seen={tokens: _accuracy(of) for tokens, of in seen.items() if of},
        shuffled={tokens: _accuracy(of) for tokens, of in shuffled.items()},
        whole=_accuracy(whole) if whole else None,
        floors=plain[0].floors if plain else {},
    )


def _accuracy(records: Sequence[Record]) -> Interval:
    finals = [one.final for one in records if one.final]
    return interval([final.test_accuracy for final in finals], finals[0].test_examples)


def _title(audit: Audit) -> str:
    key = audit.spec.task.key.partition(", blocks of ")[0]
    return f"{key}, budget `{audit.spec.budget}`, {audit.spec.device}: {audit.where}"


def _cell(found: Interval | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _descending(floors: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(floors.items(), key=lambda floor: (-floor[1], floor[0]))


def _draw(axes: Axes, audit: Audit) -> None:
    tokens = sorted({*audit.seen, *audit.shuffled})
    places = {count: place for place, count in enumerate(tokens)}
    end = len(tokens)
    for colour, name, curve in zip(
        sns.color_palette("colorblind", 2),
        (SEEN, SHUFFLED),
        (audit.seen, audit.shuffled),
        strict=True,
    ):
        points = [(places[count], curve[count]) for count in sorted(curve)]
        if audit.whole:
            points.append((end, audit.whole))
        means = [100 * found.mean for _, found in points]
        below = [100 * (found.mean - found.low) for _, found in points]
        above = [100 * (found.high - found.mean) for _, found in points]
        axes.errorbar(
            [place for place, _ in points], means, (below, above), color=colour, label=name,
            marker="o", capsize=3,
        )  # fmt: skip
    for name, floor in audit.floors.items():
        axes.axhline(100 * floor, color=QUIET, linewidth=0.8, linestyle=":")
        axes.annotate(name, (0, 100 * floor), color=QUIET, fontsize=7.5, va="bottom")
    axes.set_xticks([*places.values(), end], [*map(str, tokens), "all"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="tokens", ylabel="test accuracy, %")
    title, _, options = audit.spec.task.key.partition(", blocks of ")[0].partition("[")
    axes.set_title(f"{title}  [{options}" if options else title, loc="left", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    sns.despine(ax=axes)
