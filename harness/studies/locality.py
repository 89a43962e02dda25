"""Locality: the range of attention that a task needs, by limited windows and by shuffled blocks.

With windows every layer attends to some tokens on each side. With shuffled blocks attention reaches
all tokens of sequences whose blocks are in random order: where a model is as accurate as with all
tokens in order, the order of tokens further apart than a block is not used.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from statistics import fmean
from typing import Annotated, Any

import pandas as pd
import seaborn
from matplotlib.axes import Axes

from harness.cli import arguments
from harness.cli.runs import requests, require_used
from harness.plan import Draft, Plan, Request, resolve
from harness.records.frame import baselines
from harness.records.interval import Sample, interval_of
from harness.records.record import Record
from harness.records.store import Store
from harness.records.study import Row, setting_of
from harness.studies import Announce, Panel, Section, Study, Table, study
from zoo.registry import UserError

WINDOW, SHUFFLED = "windowed attention", "full attention, shuffled blocks"

VARIANTS = ("softmax", "none", "local")
"""Full attention, none, and attention within a window."""

ALL = "all"
"""The number of tokens of full attention on tokens in order."""


@study
class Locality(Study):
    """Measure accuracy against the window of attention, and with shuffled blocks of tokens.

    Attributes:
        task: TASK or TASK,TASK,...
        windows: Window and block sizes in tokens, separated by commas.
        budget: Recipe: smoke, laptop, paper, or a TOML file.
        seeds: Seeds and ranges: 0-2,7.
        set_: NAME.OPTION=VALUE; NAME is a variant, a task, train or model; repeatable.
        device: auto, cpu or cuda.
        precision: auto, bf16 or fp32.
    """

    task: Annotated[str, {"argument": True}]
    windows: str = "8,32,128"
    budget: str = "laptop"
    seeds: str = "0"
    set_: list[str] | None = None
    device: str = "auto"
    precision: str = "auto"

    head = f"""\
# Locality: score against the range of attention

Test score with its 95 % interval. *{WINDOW}*: every layer attends to that many tokens
on each side, or only before the token where the task is causal. *{SHUFFLED}*:
attention reaches all tokens of sequences whose blocks of that many tokens are in random order, in
training and in test. Where it is as accurate as with all tokens in order, the order of tokens
further apart than a block is not used. Tasks with an answer per token have no shuffled blocks,
because shuffling would move the target positions. The interval of one seed covers the sampling of
the test split alone.
"""

    @cached_property
    def plans(self) -> list[Plan]:
        """Full attention, no attention, each window and each size of blocks, for each seed."""
        sizes = arguments.integers_in("windows", self.windows, range(1, 2**63), "8,32,128")
        options = arguments.Runs(
            attention=["softmax"], task=[self.task], budget=self.budget, seeds=self.seeds,
            set_=self.set_, device=self.device, precision=self.precision,
        )  # fmt: skip
        base = requests(options)
        require_used(
            [Draft.of(replace(request, attention=name)) for request in base for name in VARIANTS]
        )
        plans = [plan for request in base for plan in windowed(request, sizes)]
        return [*plans, *shuffled(base, sizes)]

    def tables(self, store: Store) -> Iterator[Table]:
        """The scores of the runs, for each task."""
        runs = [found for plan in self.plans if (found := store.find(plan.spec))]
        for task in dict.fromkeys(run.spec.task.name for run in runs):
            of_task = [run for run in runs if run.spec.task.name == task]
            since = max((run.started for run in of_task), default="")
            rows = partial(scores, of_task, baselines(store.folder))
            yield Table(f"{task}-{self.budget}", self.options() | {"task": task}, rows, since)

    @classmethod
    def sections(cls, frame: pd.DataFrame) -> Iterator[Section]:
        """A row for each number of tokens, a column for each curve; then the baselines."""
        for setting, rows in frame.groupby("setting"):
            points = rows[rows["tokens"] != ""]
            table = points.pivot(index="tokens", columns="curve", values="text")
            curves = sorted(table, key=lambda name: (str(name).startswith(SHUFFLED), str(name)))
            table = table.loc[sorted(table.index, key=_order), curves].reset_index()
            rules = rows[rows["tokens"] == ""]
            texts = "; ".join(f"{rule.curve}: {rule.text}" for rule in rules.itertuples())
            yield Section(str(setting), table, f"Baselines: {texts}." if texts else "")

    @classmethod
    def panels(cls, frame: pd.DataFrame) -> Iterator[Panel]:
        """The score against the number of tokens."""
        for setting, rows in frame.groupby("setting"):
            yield Panel(str(setting), partial(_draw, rows), rows["curve"].nunique())


def windowed(request: Request, windows: Sequence[int]) -> Iterator[Plan]:
    """The runs with full attention, with no attention, and with each window that limits it.

    A window, in tokens on each side, that covers whole sequences is left out with a warning.

    Raises:
        UserError: `resolve` raises it, the settings give the window, or no window limits attention.
    """
    local = request.settings.get("local", {})
    if (window := local.get("window")) is not None:
        raise UserError(f"local.window={window} is varied by the study; use --windows {window}")
    full = resolve(request)
    sizes = _below(full, "window", windows, full.task.max_len - 1)
    if not sizes:
        raise UserError(
            f"windows {', '.join(map(str, windows))} cover whole sequences of {full.task.key}, "
            f"which have at most {full.task.max_len} tokens; give narrower --windows"
        )
    yield full
    yield resolve(replace(request, attention="none"))
    for count in sizes:
        settings = {**request.settings, "local": {**local, "window": count}}
        yield resolve(replace(request, attention="local", settings=settings))


def shuffled(base: Sequence[Request], blocks: Sequence[int]) -> Iterator[Plan]:
    """The runs with full attention on sequences whose blocks are shuffled.

    Tasks with target positions are skipped: shuffling would move the targets. A block, in tokens,
    as long as the longest sequence is left out with a warning.
    """
    for request in base:
        full = resolve(request)
        if not full.data.summary.has_target_positions:
            sizes = _below(full, "block", blocks, full.task.max_len)
            yield from (resolve(replace(request, block=count)) for count in sizes)


def _below(full: Plan, kind: str, counts: Sequence[int], limit: int) -> list[int]:
    """The counts below `limit`, from which on they have no effect, with a warning for others."""
    for count in counts:
        if count >= limit:
            warnings.warn(
                f"{kind} {count} is left out: sequences of {full.task.key} have at most "
                f"{full.task.max_len} tokens, and from {limit} on it changes nothing",
                stacklevel=2,
            )
    return [count for count in counts if count < limit]


def scores(runs: Sequence[Record], rules: pd.DataFrame, announce: Announce) -> Iterator[Row]:
    """A row for each curve and number of tokens, and for each baseline.

    Curves are of windows and of shuffled blocks; `tokens` is 0 without attention, `all` for full
    attention on tokens in order, and empty for a baseline.
    """
    points: dict[tuple[str, Any], list[Record]] = {}
    has_blocks, metric = any(run.spec.task.block for run in runs), runs[0].metric
    for run in runs:
        window, block = run.options.get("local", {}).get("window", 0), run.spec.task.block
        if not block:
            tokens = ALL if run.spec.attention == "softmax" else window
            points.setdefault((WINDOW, tokens), []).append(run)
        if run.spec.attention == "softmax" and has_blocks:
            points.setdefault((SHUFFLED, block or ALL), []).append(run)
    rules = rules[rules["task"].isin({run.spec.task.key for run in runs})]
    rows = [(*point, *_score(same)) for point, same in points.items()]
    rows += [(name, "", score, None, None, "") for name, score in rules[["name", "score"]].values]
    for curve, tokens, score, low, high, failed in rows:
        number = "" if score is None else metric.text(score)
        interval = "" if low is None else f" [{metric.text(low)}, {metric.text(high)}]"
        yield {
            "setting": setting_of(runs[0].spec, runs[0].environment), "curve": curve,
            "tokens": tokens, "score": score, "low": low, "high": high,
            "text": "; ".join(filter(None, [number + interval, failed])), "metric": metric.title,
        }  # fmt: skip


def _score(runs: Sequence[Record]) -> tuple[Any, ...]:
    """The mean of the finished runs, its interval where their answers are known, and failures."""
    finals = [run.final for run in runs if run.final]
    failed = [f"{run.status.replace('_', ' ')}: {run.reason}" for run in runs if not run.final]
    answers = [final.sample for final in finals if final.sample]
    sample = Sample.of(answers) if finals and len(answers) == len(finals) else None
    mean = fmean(final.score for final in finals) if finals else None
    interval = interval_of(sample, runs[0].metric)[:3] if sample else (mean, None, None)
    return (*interval, "; ".join(dict.fromkeys(failed)))


def _order(tokens: Any) -> float:
    return float("inf") if tokens == ALL else float(tokens)


def _draw(rows: pd.DataFrame, axes: Axes) -> None:
    points, rules = rows[rows["tokens"] != ""].dropna(subset="score"), rows[rows["tokens"] == ""]
    order = sorted(points["tokens"].unique(), key=_order)
    points = points.assign(at=points["tokens"].map(order.index)).sort_values("at")
    seaborn.lineplot(
        points, x="at", y="score", hue="curve", style="curve", markers=True, errorbar=None, ax=axes
    )
    axes.vlines(points["at"], points["low"], points["high"], color="grey", linewidth=1)
    for rule in rules.to_dict("records"):
        label = f"{rule['curve']} {rule['text']}"
        axes.axhline(rule["score"], color="grey", linewidth=1, linestyle=":", label=label)
    axes.set_xticks(range(len(order)), [str(tokens) for tokens in order])
    axes.set(xlabel="tokens", ylabel=f"test {rows['metric'].iloc[0]}")
