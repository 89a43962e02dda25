"""The page docs/performance.md, from the records of claims."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records.claim import ClaimRecord, read
from harness.records.fields import Device, Quartiles
from reports.markdown import escape_prose, rendered
from reports.text import NOTHING, number, threads_of

PAGE = Path("docs/performance.md")

NAMES: Mapping[Device, str] = {"cpu": "CPU", "cuda": "GPU"}

MET = {True: "met", False: "not met", None: NOTHING}


def page(store: Path, sections: Mapping[str, str]) -> str:
    """The page of the records of a store, as Markdown; `sections` has that of each claim."""
    found = [(NAMES[kind], read(store, kind)) for kind in NAMES]
    text = rendered(
        "performance.md.j2", devices=[_device(*of, sections) for of in found if of[1]],
        prose=escape_prose, quartiles=quartiles_text, met=MET,
    )  # fmt: skip
    return text.rstrip() + "\n"


def quartiles_text(values: Quartiles) -> str:
    """The median, and the quartiles in brackets where they differ from it."""
    q1, median, q3 = number(values.q1), number(values.median), number(values.q3)
    return median if q1 == median == q3 else f"{median} [{q1}, {q3}]"


def line_of(record: ClaimRecord) -> str:
    """One claim: its name, ratio with quartiles, bound, and whether it is met."""
    if record.ratio is None:
        return f"{record.name:28} not measured: {record.reason}"
    bound = "" if record.bound is None else f"at most {record.bound:.3g}"
    met = MET[record.met].upper() if record.met is False else MET[record.met]
    return f"{record.name:28} {quartiles_text(record.ratio):26} {bound:15} {met}"


def _device(
    name: str, records: Mapping[str, ClaimRecord], sections: Mapping[str, str]
) -> dict[str, Any]:
    every = [records[claim] for claim in sections if claim in records]
    machines = defaultdict[str, set[str]](set)
    of_sections = defaultdict[str, list[ClaimRecord]](list)
    for record in every:
        on = record.environment
        versions = ", ".join(f"{name} {on.versions[name]}" for name in ("python", "torch"))
        machine = f"{on.device}, {threads_of(on.threads)}; {versions}"
        machines[f"{machine}; commit {on.commit or 'unknown'}"].add(record.taken[:10])
        of_sections[sections[record.name]].append(record)
    return {
        "name": name, "machines": dict(sorted(machines.items())),
        "missed": [record for record in every if record.met is False],
        "sections": [
            {"name": section, "records": of, "setting": _names(of, "setting"),
             "limit": _names(of, "limit")}
            for section, of in of_sections.items()
        ],
    }  # fmt: skip


def _names(records: Sequence[ClaimRecord], field: str) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for record in records:
        found[getattr(record, field)].append(record.name)
    return found
