"""Files in a store that are no records, or that say two things, and stores of many runs."""

import os
import re
from pathlib import Path

import pytest

from harness import api
from harness.records import store as stores
from harness.records.files import EDITED, Text, file_lines, line_of
from harness.records.record import Point, Record
from harness.records.store import CostStore
from tests.reports.conftest import make_cost, make_record
from zoo.registry import UserError

GIB3 = 3 * 2**30


def line(kind: str = "run", **changes) -> str:
    record = make_record().model_copy(update=changes)
    return line_of(kind, record.spec.file_name, record.model_dump_json())


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(GIB3)


def write(text: str):
    return lambda path: path.write_text(text)


# What is no file of records whatever its content, by kind.
NO_FILES = {
    "pipe": os.mkfifo, "folder": Path.mkdir, "huge": sparse,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
}  # fmt: skip

NO_LINES = {
    "empty": write(""), "data": write('{"text": "x"}\n' * 9), "binary": write("\0" * 99),
    "another kind": write(line("bogus")), "edited kind": write(line().replace('"run"', '"study"')),
    "edited name": write(line().replace('"name":"', '"name":"x')), "deep/er/a": write(line()),
}  # fmt: skip

PLACES = {f"{kind}.jsonl": make for kind, make in NO_LINES.items()} | {
    f"{kind}.{suffix}": make for kind, make in NO_FILES.items() for suffix in ("json", "jsonl")
}


@pytest.fixture
def good(store):
    record = make_record("primal")
    store.write(record)
    return record


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_record_is_named_once_and_left_out(store, good, call, tmp_path, name):
    path = store.folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    PLACES[name](path)
    records, broken = store.read()
    assert (records, [bad.path for bad in broken]) == ([good], [path])
    code, out, err = call("status")
    assert (code, err.count("\n"), out.splitlines()[0][:18]) == (0, 1, "1 of 1 runs done, ")
    assert err.startswith(f"harness: warning: {path} is not a record and is left out: ")
    assert "harness run" not in err and "permissions" not in err
    if path.suffix == ".json":  # is published whole, or not at all
        with pytest.raises(UserError, match=f"{path.name} is not a record"):
            api.pack(store.folder, tmp_path / "out")
    else:
        assert api.pack(store.folder, store.folder)[1] == 1 and store.read()[0] == [good]
    assert not (tmp_path / "out").exists()


def test_a_line_with_another_content_under_the_same_name_is_named(store, good):
    texts = [line(status="failed", reason=reason, final=None) for reason in "ab"]
    path = store.folder / "row.jsonl"
    path.write_text("".join(texts))
    records, ((where, reason),) = store.read()
    assert sorted(record.reason for record in records) == ["", "b"]
    assert where == path and re.match(rf"line 1: line 2 of {re.escape(str(path))} has", reason)
    path.write_text(texts[0] * 2)
    assert not store.read()[1] and len(store.read()[0]) == 2


@pytest.mark.filterwarnings("always")
def test_an_edited_cost_is_named_by_status_as_by_report(store, good, call):
    path = CostStore.within(store.folder).write(make_cost("primal", 256))
    path.write_text(path.read_text().replace('"status": "ok"', '"status": "ok" '))
    assert call("status")[2].startswith(f"harness: warning: {path} is not a record")
    assert EDITED in call("status")[2]


def test_a_file_of_many_lines_that_are_none_is_named_once(tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{line()}one\ntwo\nthree\n")
    whole, rest = file_lines(tmp_path / "a.jsonl")
    assert (whole.line, rest.line) == (1, 2) and rest.problem.endswith("2 more are none either")


@pytest.mark.parametrize("indent", [1, None])
@pytest.mark.parametrize("names", [("dev", "a b"), ("p[0]", '},{"step":')])
def test_points_are_left_out_of_the_text_as_of_the_record(indent, names):
    scores = {1: 0.0, 5: 0.5, 8: 0.7}
    curve = [Point(step=n, seconds=n, loss=1.0, losses={names[0]: 1.0}, dev=scores.get(n),
                   groups={names[1]: 1.0}) for n in range(1, 10)]  # fmt: skip
    for count in (9, 1, 0):
        record = make_record().model_copy(update={"curve": curve[:count]})
        text = Text(Path("a"), 1, "run", "a", record.model_dump_json(indent=indent), "")
        found = stores.parse(stores.thinned(text), Record)
        assert isinstance(found, Record) and found.thinned() == record.thinned()
        assert (found == record.thinned()) == (count < 2 or names[0] == "dev")
        # What is not parsed is not believed.
        if count == 9:
            short = stores.thinned(text).text
            assert (len(short) < len(text.text)) == (names[0] == "dev")
            wrong = text.text.replace('"final":', '"x":[1,{"step":3}],"final":')
            found = stores.parse(stores.thinned(text._replace(text=wrong)), Record)
            assert isinstance(found, stores.Broken)


def test_a_store_without_records_is_not_packed(store, rejected, tmp_path):
    store.folder.mkdir()
    assert "has no record" in rejected("pack", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
