"""The page docs/performance.md, from the committed records."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.__main__ import BENCHMARKS
from benchmarks.claims import BEFORE, RESULTS, Claim, ClaimRecord, Kind, ProfileRecord, read
from harness.records.fields import Quartiles
from harness.records.record import Environment
from reports.markdown import escape, escape_prose, table
from reports.text import NOTHING, number

PAGE = Path("docs/performance.md")

KINDS: dict[Kind, str] = {"cpu": "CPU", "cuda": "GPU"}

HEAD = """\
# Performance

Made from the records in `results/benchmarks/`, which
`python -m benchmarks` measures and replaces. Each figure is a ratio of two measurements of one run
on one device: the median over rounds, and the quartiles in brackets. Implementations are timed
alternately, so that other load of the machine affects all of them. A claim is met where the median
is at most its bound. Peak memory is what one call allocates in addition to what was allocated
before it; it is the same in every round. *Limit* says what the ratio cannot fall below, and why.
"""

PROFILES = """\
Shares of the time of a training step by group of operations, in percent, and its time without the
profiler: *before* the step was optimised, and *now*. Operations are grouped by their names. Copies
are casts between precisions and changes of layout; additions are those of residuals, positions and
gradients.
"""

MET = {True: "met", False: "**not met**", None: NOTHING}


def page(root: Path) -> str:
    """The page of the records below `root`."""
    parts = [HEAD]
    for kind, name in KINDS.items():
        records = read(root / RESULTS, kind, ClaimRecord)
        if records:
            parts += [f"# {name}\n", *_device(records, kind, root)]
    return "\n".join(parts).rstrip() + "\n"


def claims_of(benchmark: str) -> list[Claim]:
    """The claims of a module."""
    return import_module(f"benchmarks.{benchmark}").CLAIMS


def _device(records: Sequence[ClaimRecord], kind: Kind, root: Path) -> Iterator[str]:
    by_name = {record.name: record for record in records}
    sections = {
        benchmark: [by_name[one.name] for one in claims_of(benchmark) if one.name in by_name]
        for benchmark in BENCHMARKS
    }
    yield _environments(records)
    yield from _not_met([record for own in sections.values() for record in own])
    for benchmark, own in sections.items():
        if own:
            yield from _section(benchmark, own)
    profiles = read(root / RESULTS, kind, ProfileRecord)
    if profiles:
        yield f"## Profiles of the training step\n\n{PROFILES}"
        yield from _profiles(read(root / BEFORE, kind, ProfileRecord), profiles)


def _not_met(records: Sequence[ClaimRecord]) -> Iterator[str]:
    missed = [record for record in records if record.met is False]
    yield "## Bounds not met\n"
    if not missed:
        yield "Every bound is met.\n"
    for record in missed:
        yield f"- {escape_prose(record.what)}: {_ratio(record)}; the bound is {_bound(record)}."
    if missed:
        yield ""


def _section(benchmark: str, records: Sequence[ClaimRecord]) -> Iterator[str]:
    documentation = import_module(f"benchmarks.{benchmark}").__doc__ or ""
    title = benchmark.replace("_", " ").capitalize()
    yield f"## {title}\n\n{documentation.strip()}\n"
    head = ["name", "what", "ratio", "at most", "", "from"]
    yield table(head, [_line(record) for record in records])
    yield "Taken at:\n"
    yield from _grouped(records, lambda record: f"{record.setting}.")
    yield "\nLimits:\n"
    yield from _grouped(records, lambda record: record.limit)
    yield ""


def _grouped(records: Sequence[ClaimRecord], text: Callable[[ClaimRecord], str]) -> Iterator[str]:
    """A line for each text, with the names of its records."""
    groups: dict[str, list[str]] = {}
    for record in records:
        groups.setdefault(text(record), []).append(f"`{record.name}`")
    for line, names in groups.items():
        yield f"- {escape_prose(line)} {', '.join(names)}"


def _line(record: ClaimRecord) -> list[str]:
    figures = ", ".join(f"{name}: {number(one.median)}" for name, one in record.figures.items())
    return [
        f"`{record.name}`",
        escape_prose(record.what),
        _ratio(record),
        _bound(record),
        MET[record.met],
        escape(figures) or NOTHING,
    ]


def _ratio(record: ClaimRecord) -> str:
    if record.ratio is None:
        return f"not measured: {escape(record.reason)}"
    return quartiles_text(record.ratio)


def quartiles_text(values: Quartiles) -> str:
    """The median, and the quartiles in brackets where they differ from it."""
    q1, median, q3 = number(values.q1), number(values.median), number(values.q3)
    return median if q1 == median == q3 else f"{median} [{q1}, {q3}]"


def _bound(record: ClaimRecord) -> str:
    return NOTHING if record.bound is None else number(record.bound)


def _environments(records: Sequence[ClaimRecord]) -> str:
    lines: dict[str, set[str]] = {}
    for record in records:
        lines.setdefault(_machine(record.environment), set()).add(record.taken[:10])
    return "\n".join(
        ["Measured on:\n"]
        + [f"- {escape(line)}; {', '.join(sorted(days))}" for line, days in sorted(lines.items())]
        + [""]
    )


def _machine(environment: Environment) -> str:
    threads = "1 thread" if environment.threads == 1 else f"{environment.threads} threads"
    versions = ", ".join(f"{name} {environment.versions[name]}" for name in ("python", "torch"))
    return f"{environment.device}, {threads}; {versions}; commit {environment.commit or 'unknown'}"


def _profiles(before: Sequence[ProfileRecord], now: Sequence[ProfileRecord]) -> Iterator[str]:
    """A table for each workload: groups of operations, and columns before and now."""
    earlier = {record.name: record for record in before}
    workloads: dict[str, list[ProfileRecord]] = {}
    for record in now:
        workloads.setdefault(record.workload, []).append(record)
    for workload, records in workloads.items():
        columns = [
            (f"{record.attention}, {when}", one)
            for record in records
            for when, one in (("before", earlier.get(record.name)), ("now", record))
            if one
        ]
        groups = dict.fromkeys(group for _, one in columns for group in one.shares)
        lines = [["time (ms)", *(quartiles_text(one.milliseconds) for _, one in columns)]]
        lines += [
            [group, *(f"{100 * one.shares.get(group, 0):.1f}" for _, one in columns)]
            for group in groups
        ]
        head = ["", *(escape(name) for name, _ in columns)]
        yield f"### {escape(workload)}, {records[0].precision}\n"
        yield table(head, lines, align_right=True)
    yield "Commits: " + escape(
        "; ".join(
            f"{when} {', '.join(sorted({one.environment.commit for one in own}))}"
            for when, own in (("before", before), ("now", now))
            if own
        )
        + "."
    )
