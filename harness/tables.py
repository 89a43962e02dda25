"""Plain tables for the terminal."""

import dataclasses
import json
import warnings
from collections.abc import Callable, Iterable, Sequence

from tabulate import tabulate

from harness.records.record import WITHOUT_SOFTMAX, Record
from harness.records.store import Store
from tasks import create
from tasks.registry import tasks
from zoo.conformance import Result
from zoo.contract import Traits
from zoo.registry import UserError, options_of
from zoo.variants import variants


def outcome(records: Iterable[Record]) -> str:
    """One line a run: accuracies in percent, costs, and the ratios to SDPA softmax."""
    head = ["attention", "task", "seed", "test %", "dev %", "floor %"]
    head += ["s/1K steps", "time x softmax", "peak MiB", "memory x softmax"]
    head += ["tokens/s", "parameters", "GFLOP/step"]
    return _table(head, [_accuracies(record) + _costs(record) for record in records])


def places(outcome: Iterable[tuple[Record, bool]], store: Store) -> str:
    """Where each record is, whether it was run now, and how to make a leaderboard of them."""
    old = "  (was there; --again to redo)"
    lines = [f"{store.path(record.spec)}{'' if new else old}" for record, new in outcome]
    return "\n".join([*lines, f"leaderboard: harness report --store {store.folder}"])


def claims() -> str:
    """One line a variant: what it claims, and its options with their defaults."""
    rows = []
    for name, variant in variants.items():
        traits = dataclasses.asdict(variant.traits) | {"losses": ", ".join(variant.traits.losses)}
        cells = ("yes" if claim is True else claim or "" for claim in traits.values())
        rows.append([name, *cells, _defaults(variant)])
    head = [field.name for field in dataclasses.fields(Traits)]
    return _table(["attention", *head, "options"], rows)


def questions() -> str:
    """One line a task: its versioned name, what its defaults make it, and its options."""
    rows = []
    for name, factory in tasks.items():
        try:
            task = create(name)
        except UserError as refusal:
            warnings.warn(str(refusal), stacklevel=2)
            continue
        causal = "yes" if task.causal else ""
        size = str(task.classes), str(task.max_len)
        rows.append([f"{name}@{task.version}", *size, causal, _defaults(factory)])
    return _table(["task", "classes", "length", "causal", "options"], rows)


def as_line(result: Result) -> str:
    """A check in a line: verdict, form, name, the figure that decided it, and a declared gap."""
    verdict = "ok  " if result.passed else "FAIL"
    gap = f" [known gap: {result.gap}]" if result.gap else ""
    if result.gap and not result.passed:
        gap = f" [no gap, but declared as one: {result.gap}; take it out of gaps]"
    return f"{verdict} {result.form}: {result.check}: {result.finding.figure}{gap}"


def as_json(result: Result) -> str:
    """The same as a JSON object on one line."""
    fields = {"form": result.form, "check": result.check, "passed": result.passed}
    return json.dumps({**fields, "figure": result.finding.figure, "gap": result.gap})


def _accuracies(record: Record) -> list[str]:
    spec, final = record.spec, record.final
    cell = [spec.attention, spec.task.key, str(spec.seed)]
    if final is None:
        return [*cell, f"{record.status}: {record.reason}", "", ""]
    floor = max(record.baselines.values())
    return cell + [f"{100 * x:.1f}" for x in (final.test_accuracy, final.dev_accuracy, floor)]


def _costs(record: Record) -> list[str]:
    cost = record.cost
    if cost is None:
        return [""] * 7
    own = cost.own
    return [
        f"{own.seconds_per_1k_steps.median:.1f}",
        f"{cost.time_ratio.median:.2f}" if cost.time_ratio else WITHOUT_SOFTMAX,
        f"{own.peak_bytes / 2**20:.1f}",
        WITHOUT_SOFTMAX if cost.memory_ratio is None else f"{cost.memory_ratio:.2f}",
        f"{own.tokens_per_second.median:,.0f}",
        f"{own.parameters:,}",
        f"{own.flops / 1e9:.1f}",
    ]


def _defaults(factory: Callable[..., object]) -> str:
    options = options_of(factory).items()
    return ", ".join(name if p.default is p.empty else f"{name}={p.default}" for name, p in options)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return tabulate(rows, headers=head, disable_numparse=True)
