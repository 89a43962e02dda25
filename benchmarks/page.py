"""The page docs/performance.md, from the committed records."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.claims import CLAIMS, RESULTS, ClaimRecord, Kind, read
from benchmarks.sections import SECTIONS
from harness.records.fields import Quartiles
from harness.records.record import Environment
from reports.markdown import escape_prose, rendered
from reports.text import NOTHING, number, threads_of

PAGE = Path("docs/performance.md")

NAMES: dict[Kind, str] = {"cpu": "CPU", "cuda": "GPU"}

MET = {True: "met", False: "not met", None: NOTHING}


def page(root: Path) -> str:
    """The page of the records in the folders of `root`, as Markdown."""
    devices = [_device(root, kind) for kind in NAMES]
    text = rendered(
        "performance.md.j2", devices=[device for device in devices if device["sections"]],
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


def _device(root: Path, kind: Kind) -> dict[str, Any]:
    by_name = {record.name: record for record in read(root / RESULTS, kind)}
    found = {
        section: [by_name[claim.name] for claim in claims if claim.name in by_name]
        for section, claims in CLAIMS.items()
    }
    machines = pd.Series({n: _machine(record.environment) for n, record in by_name.items()})
    days = pd.Series({name: record.taken[:10] for name, record in by_name.items()})
    return {
        "name": NAMES[kind], "machines": days.groupby(machines).unique().to_dict(),
        "missed": [r for records in found.values() for r in records if r.met is False],
        "sections": [_section(name, records) for name, records in found.items() if records],
    }  # fmt: skip


def _machine(environment: Environment) -> str:
    versions = ", ".join(f"{name} {environment.versions[name]}" for name in ("python", "torch"))
    machine = f"{environment.device}, {threads_of(environment.threads)}; {versions}"
    return f"{machine}; commit {environment.commit or 'unknown'}"


def _section(name: str, records: Sequence[ClaimRecord]) -> dict[str, Any]:
    """The content of a section: its claims by each text of their setting and limit."""
    frame = pd.DataFrame([dict(record) for record in records])
    names = {
        field: frame.groupby(field, sort=False)["name"].agg(list).to_dict()
        for field in ("setting", "limit")
    }
    return {"name": name, "text": inspect.getdoc(SECTIONS[name]), "records": records, **names}
