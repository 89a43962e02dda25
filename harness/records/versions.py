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

# The version of `harness.train`; `harness/behaviour.json` has losses that it computes.
TRAINING = "1.0"

# The name of that version beside those of variants, none of which has a space.
LOOP = "training loop"


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
    # `1` is the first part of any version `1.MINOR`. An empty version is not known, and not
    # current.
    found = versions_in(line).items()
    return all(v and f"{now.get(name, v)}.".startswith(f"{v}.") for name, v in found)


def are_outdated(lines: Iterable[tuple[str, str]]) -> dict[str, bool]:
    # A plug-in, which is not imported, has the version of its last record.
    now: dict[str, str] = {}
    ordered = [line for _, line in sorted((started, line) for line, started in lines)]
    for line in ordered:
        now |= versions_in(line)
    now |= built_in()
    return {line: not is_current(line, now) for line in ordered}


class Origin(NamedTuple):
    """The code and the data of a run, which decide whether it is outdated.

    `version` is of `line_of_run`, `data` is the name of its data, `files` has SHA-256 of files of a
    user by path.
    """

    version: str
    task: str
    data: str
    files: dict[str, str]
    started: str


def outdated(origins: Sequence[Origin]) -> list[bool]:
    # The data of a task with files are others if a file has other content now; those of a task
    # without files, if a later run has other data.
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
    # Hidden files of a folder and its folders do not count, as for a task of several files.
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
