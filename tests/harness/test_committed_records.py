"""The committed records: their identities, their names, and which of them are outdated.

`committed.json` has a line for each file of records. It changes with a new record or a new version
of a variant; that the code reads records in another way changes none of it. To write it again:
`python -m tests.harness.test_committed_records`.
"""

import hashlib
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from harness.environment import is_outdated
from harness.records.cost import CostRecord
from harness.records.files import Text, read_lines
from harness.records.record import Record, origin_of
from harness.records.store import KINDS, Broken
from harness.records.versions import are_outdated, outdated
from tests.conftest import ROOT

FILE = Path(__file__).with_name("committed.json")
STORE = ROOT / "results"


@cache
def lines() -> dict[str, list[Text]]:
    found = defaultdict(list)
    for line in read_lines(STORE):
        found[str(line.file.relative_to(ROOT))].append(line)
    return {name: [*dict.fromkeys(found[name])] for name in sorted(found)}


@cache
def records() -> dict[Text, Any]:
    found = {}
    for line in (line for of in lines().values() for line in of):
        record = KINDS[line.kind].within(STORE).parse(line)
        assert not isinstance(record, Broken), record
        found[line] = record
    return found


@cache
def old() -> dict[Text, bool]:
    runs = {line: of for line, of in records().items() if isinstance(of, Record)}
    costs = {line: of for line, of in records().items() if isinstance(of, CostRecord)}
    of_costs = are_outdated((of.version, of.started) for of in costs.values())
    return {
        **dict(zip(runs, outdated([*map(origin_of, runs.values())]), strict=True)),
        **{line: of_costs[of.version] for line, of in costs.items()},
    }


def identity(line: Text) -> list[str]:
    record = records()[line]
    name = KINDS[line.kind].within(STORE).name_of(record)
    found = [line.kind, name, str(old().get(line, ""))]
    if isinstance(record, Record):
        question = record.spec.question
        found += [record.spec.id, question.id, question.title, question.declared]
    return [*found, record.spec.id] if isinstance(record, CostRecord) else found


def entry(file: str) -> dict[str, Any]:
    of = [identity(line) for line in lines()[file]]
    text = json.dumps(sorted(of)).encode()
    return {
        "records": len(of), "outdated": sum(found[2] == "True" for found in of),
        "digest": hashlib.sha256(text).hexdigest()[:16],
    }  # fmt: skip


def test_identities_and_what_is_outdated_are_as_they_were():
    # One test: another process would read all records again.
    assert [line.name for line in records()] == [identity(line)[1] for line in records()]
    assert [(file, entry(file)) for file in lines()] == [*json.loads(FILE.read_text()).items()]
    found = {line: is_outdated(records()[line]) for line in old()}
    assert found == old(), "a process finds other records outdated than pages do"


if __name__ == "__main__":
    texts = (f"{json.dumps(file)}: {json.dumps(entry(file))}" for file in lines())
    FILE.write_text("{\n" + ",\n".join(texts) + "\n}\n")
