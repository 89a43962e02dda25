"""The page docs/performance.md, from the committed records."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claims import BEFORE, RESULTS, ClaimRecord, Kind, ProfileRecord, read
from benchmarks.sections import SECTIONS
from harness.records.fields import Quartiles
from harness.records.record import Environment
from reports.markdown import escape, escape_prose, table
from reports.render import rendered
from reports.text import NOTHING, number

PAGE = Path("docs/performance.md")

KINDS: dict[Kind, str] = {"cpu": "CPU", "cuda": "GPU"}

MET = {True: "met", False: "**not met**", None: NOTHING}


def page(root: Path) -> str:
    """The page of the records below `root`."""
    devices = [_device(read(root / RESULTS, kind, ClaimRecord), kind, root) for kind in KINDS]
    text = rendered(
        "performance.md.j2", devices=[one for one in devices if one["sections"]],
        claims=_claims, grouped=_grouped, prose=escape_prose, ratio=_ratio,
    )  # fmt: skip
    return text.rstrip() + "\n"


def _device(records: Sequence[ClaimRecord], kind: Kind, root: Path) -> dict[str, Any]:
    by_name = {record.name: record for record in records}
    found = [
        (section, [by_name[claim.name] for claim in section.claims if claim.name in by_name])
        for section in SECTIONS.values()
    ]
    days: dict[str, set[str]] = {}
    for record in records:
        days.setdefault(_machine(record.environment), set()).add(record.taken[:10])
    now = read(root / RESULTS, kind, ProfileRecord)
    before = read(root / BEFORE, kind, ProfileRecord) if now else []
    commits = {
        when: sorted({one.environment.commit for one in profiles})
        for when, profiles in (("before", before), ("now", now))
        if profiles
    }
    return {
        "name": KINDS[kind],
        "machines": [
            f"{escape(name)}; {', '.join(sorted(on))}" for name, on in sorted(days.items())
        ],
        "missed": [record for _, own in found for record in own if record.met is False],
        "sections": [(section, own) for section, own in found if own],
        "profiles": [*_profiles({record.name: record for record in before}, now)],
        "commits": escape("; ".join(f"{when} {', '.join(one)}" for when, one in commits.items())),
    }


def _machine(environment: Environment) -> str:
    threads = "1 thread" if environment.threads == 1 else f"{environment.threads} threads"
    versions = ", ".join(f"{name} {environment.versions[name]}" for name in ("python", "torch"))
    return f"{environment.device}, {threads}; {versions}; commit {environment.commit or 'unknown'}"


def _claims(records: Sequence[ClaimRecord]) -> str:
    """The table of a section."""
    lines = []
    for record in records:
        figures = ", ".join(f"{name}: {number(one.median)}" for name, one in record.figures.items())
        bound = NOTHING if record.bound is None else number(record.bound)
        lines.append([
            f"`{record.name}`", escape_prose(record.what), _ratio(record), bound, MET[record.met],
            escape(figures) or NOTHING,
        ])  # fmt: skip
    return table(["name", "what", "ratio", "at most", "", "from"], lines)


def _grouped(records: Sequence[ClaimRecord], field: str) -> list[tuple[str, str]]:
    """Each text of a field, with the names of its records."""
    groups: dict[str, list[str]] = {}
    for record in records:
        groups.setdefault(getattr(record, field), []).append(f"`{record.name}`")
    return [(text, ", ".join(names)) for text, names in groups.items()]


def _ratio(record: ClaimRecord) -> str:
    if record.ratio is None:
        return f"not measured: {escape(record.reason)}"
    return quartiles_text(record.ratio)


def quartiles_text(values: Quartiles) -> str:
    """The median, and the quartiles in brackets where they differ from it."""
    q1, median, q3 = number(values.q1), number(values.median), number(values.q3)
    return median if q1 == median == q3 else f"{median} [{q1}, {q3}]"


def _profiles(
    before: dict[str, ProfileRecord], now: Sequence[ProfileRecord]
) -> Iterator[tuple[str, str]]:
    """The heading and the table of each workload: groups of operations, before and now."""
    workloads: dict[str, list[ProfileRecord]] = {}
    for record in now:
        workloads.setdefault(record.workload, []).append(record)
    for workload, records in workloads.items():
        columns = [
            (f"{record.attention}, {when}", one)
            for record in records
            for when, one in (("before", before.get(record.name)), ("now", record))
            if one
        ]
        groups = dict.fromkeys(group for _, one in columns for group in one.shares)
        lines = [["time (ms)", *(quartiles_text(one.milliseconds) for _, one in columns)]]
        lines += [
            [group, *(f"{100 * one.shares.get(group, 0):.1f}" for _, one in columns)]
            for group in groups
        ]
        head = ["", *(escape(name) for name, _ in columns)]
        yield (
            f"{escape(workload)}, {records[0].precision}",
            table(head, lines, align_right=True),
        )
