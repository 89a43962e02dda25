"""Whether records are outdated: versions of variants and of training, and the data of a run.

A version is `MAJOR.MINOR`: what is computed, and how fast. A plug-in without one has the digest of
its file, `sha256:HEX`. Nothing here imports a variant, so that pages and tables need no torch.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.records.families import LISTED

TRAINING = "1.0"  # The version of `harness.train`; `harness/behaviour.json` has its losses
LOOP = "training loop"  # Its name among those of variants, which have no spaces


@cache
def built_in() -> Mapping[str, str]:
    listed = json.loads(LISTED.read_text("utf-8"))["variants"]
    return {entry["name"]: entry["version"] for entry in listed} | {LOOP: TRAINING}


def major(version: str) -> str:
    return version.partition(".")[0]


def line_of(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def line_of_run(versions: Mapping[str, str], training: str) -> str:
    return line_of({name: major(v) for name, v in {**versions, LOOP: training}.items()})


def versions_in(line: str) -> dict[str, str]:
    return {name: version for name, _, version in (p.rpartition(" ") for p in line.split(", "))}


def is_current(line: str, now: Mapping[str, str]) -> bool:
    # `1` matches any `1.MINOR`. An empty version is unknown, so it is not current.
    found = versions_in(line).items()
    return all(v and f"{now.get(name, v)}.".startswith(f"{v}.") for name, v in found)


def are_outdated(lines: Iterable[tuple[str, str]]) -> dict[str, bool]:
    # Plug-ins are not imported: the last record has their version.
    now: dict[str, str] = {}
    last = {line: started for started, line in sorted((started, line) for line, started in lines)}
    ordered = sorted(last, key=last.__getitem__)
    for line in ordered:
        now |= versions_in(line)
    now |= built_in()
    return {line: not is_current(line, now) for line in ordered}


class Origin(NamedTuple):
    """The code and the data of a run; `files` has SHA-256 of the user's files by path."""

    version: str
    task: str
    data: str
    files: dict[str, str]
    started: str


def outdated(origins: Sequence[Origin]) -> list[bool]:
    # By its code, a file it read, or, for a task without files, a later run with other data.
    code = are_outdated((one.version, one.started) for one in origins)
    data = {one.task: one.data for one in sorted(origins, key=lambda one: one.started)}
    files = {path: file_digest(path) for origin in origins for path in origin.files}
    return [
        code[one.version]
        or any(files[path] not in ("", recorded) for path, recorded in one.files.items())
        or (not one.files and data[one.task] != one.data)
        for one in origins
    ]


def file_digest(path: str) -> str:
    # Hidden files and subfolders do not count, as for a task of several files.
    try:
        if Path(path).is_dir():
            files = sorted(file for file in Path(path).iterdir() if file.name[0] != ".")
            named = [f.name + file_digest(str(f)) for f in files if f.is_file()]
            text = "".join(named).encode("utf-8", "surrogatepass")
            return hashlib.sha256(text).hexdigest() if named else ""
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
