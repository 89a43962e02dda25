"""Records: their identity, their answers, and folders of them, written, read and damaged."""

import json
import math
import os
import re
from functools import cache, reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from harness import api
from harness.records import store as stores
from harness.records.answers import ClusterValues, CorrectAnswers
from harness.records.files import EDITED, Text, file_lines, line_of, read_lines, write_atomic
from harness.records.record import Point, Record
from harness.records.spec import RunSpec
from harness.records.store import CostStore, Store
from harness.runner import by_cluster
from tasks.contract import Split
from tests.conftest import ROOT, one_line
from tests.harness.specs import raising
from tests.reports.conftest import costs_of, make_cost, make_record
from zoo.registry import UserError

SPEC = make_record(
    "softmax+primal", device="cpu", role="final", rates=(1e-4, 1e-2), train={"lr": 1e-3},
    options={"softmax": {"backend": "naive"}, "primal": {"rank": 20, "eta": 0.05}},
    overrides={"softmax.backend": "naive"},
).spec.model_dump(mode="json")  # fmt: skip
SPEC["question"]["task"]["options"] = {"max_len": 2000, "seed": 0}
SPEC["question"]["variants"] = {"primal": {"rank": 20, "eta": 0.05}}
OTHER = RunSpec.model_validate({**SPEC, "seed": 1})


@pytest.fixture
def record() -> Record:
    spec = RunSpec.model_validate(SPEC)
    return make_record(accuracy=1 / 3).model_copy(update={"spec": spec})


def test_a_specification_is_frozen_and_rejects_unknown_fields_and_values():
    for bad in ({"sede": 1}, {"device": "tpu"}, {"seed": 0.5}, {"seed": None}):
        with pytest.raises(ValidationError, match=min(bad)):
            RunSpec.model_validate({**SPEC, **bad})
    for path in ("train.rate", "primal.rank", "lr"):
        question = {**SPEC["question"], "grid": {path: (1, 2)}}
        with pytest.raises(ValidationError, match=f"'{path}' is no field of model or train"):
            RunSpec.model_validate({**SPEC, "question": question})
    with pytest.raises(ValidationError, match="frozen"):
        OTHER.seed = 2


@pytest.mark.parametrize(("function", "error", "raised"), [
    ("os.fsync", OSError(28, "disk full"), UserError),
    ("pathlib.Path.replace", KeyboardInterrupt(), KeyboardInterrupt),
])  # fmt: skip
def test_a_failed_write_leaves_the_former_record_and_no_other_file(
    store, record, monkeypatch, function, error, raised
):
    before = store.write(record).read_bytes()
    monkeypatch.setattr(function, raising(error))
    with pytest.raises(raised):
        store.write(record.model_copy(update={"status": "failed", "reason": "x"}))
    assert [path.read_bytes() for path in store.folder.iterdir()] == [before]


@pytest.mark.parametrize(("change", "expected"), [
    ({"schema_version": 3}, "it is of another schema; run it again, or move it away"),
    ({"note": 1}, "note: "),
])  # fmt: skip
def test_a_record_of_another_schema_is_named_and_left_as_it_is(store, record, change, expected):
    path = store.write(record)
    path.write_text(text := json.dumps(record.model_dump(mode="json") | change))
    records, ((broken, reason),) = store.read()
    assert (records, broken) == ([], path) and reason.startswith(expected)
    with one_line(path, "is not a record"):
        store.find(record.spec)
    assert path.read_text() == text


@cache
def first_of(kind):
    store = kind.within(ROOT / "results")
    return next(store.parse(of) for of in read_lines(ROOT / "results") if of.kind == store.tag)


@pytest.mark.parametrize("kind", stores.KINDS.values(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("form", ["a file", "a line"])
@pytest.mark.parametrize("edit", ["a year", "no checksum", "none"])
def test_an_edited_record_is_named_and_not_believed(tmp_path, kind, edit, form):
    first, store = first_of(kind), kind.within(tmp_path)
    name, path = store.name_of(first), tmp_path / "row" / "any.jsonl"
    if form == "a file":
        path = store.write(first)
    else:
        path.parent.mkdir()
        path.write_text(line_of(store.tag, name, first.model_dump_json()))
    text = path.read_text("utf-8")
    path.write_text({
        "a year": re.sub(r'("(?:started|taken)": ?"202).', r"\g<1>5", text),
        "no checksum": re.sub(r' ?"checksum": ?"\w*",\n?', "", text),
        "none": text,
    }[edit], "utf-8")  # fmt: skip
    records, broken = store.read()
    # A line without a checksum does not say of what kind it is; it is named with the runs.
    unknown = edit == "no checksum" and form == "a line"
    named = Store(tmp_path).read()[1] if unknown else broken
    assert (len(records), len(named)) == ((1, 0) if edit == "none" else (0, 1))
    if named:
        reason = {"a file": "it has no checksum", "a line": "it is not a line of a record"}[form]
        reason = reason if edit == "no checksum" else "it was edited"
        assert re.match(f"(line 1: )?{reason}", named[0].reason)
        if not unknown:
            with pytest.raises(UserError, match=reason):
                store.require(name)


def test_a_record_is_found_among_lines_and_a_file_of_it_counts_first(store, record):
    other = record.model_copy(update={"spec": OTHER})
    written = [store.write(run) for run in (record, other)]
    ((path, lines),) = stores.merged(stores.every_line(store.folder), store.folder).items()
    assert path == store.folder / "runs" / "softmax+primal-softmax.backend-naive.jsonl"
    write_atomic(path, lines)
    for file in written:
        file.unlink()
    assert [store.find(run.spec) for run in (record, other)] == [record, other]
    assert sorted(store.read()[0], key=lambda run: run.spec.seed) == [record, other]
    again = record.model_copy(update={"started": "2026-01-02T00:00:00+00:00"})
    store.write(again)
    assert store.find(record.spec) == again and len(store.read()[0]) == 2
    store.path(record.spec).unlink()
    path.write_text(path.read_text().replace(f'{record.spec.id}"', 'f00"'))
    assert store.find(record.spec) is None
    (reason,) = (reason for _, reason in store.read()[1])
    assert reason.startswith("line 1: it was edited")


OUT_OF_RANGE = {
    Store: {
        "final.score": ["high", math.nan, math.inf], "final.seconds": [-1.0, -math.inf],
        "final.test_examples": [0, -1], "curve.0.loss": [math.nan], "curve.0.dev": [math.inf],
        "final.train_seconds": [-1.0, 1e308], "curve.0.step": [0, -1], "curve.0.seconds": [-1.0],
        "metric.better": ["larger"], "environment.threads": [0, True],
        "started": ["yesterday", "2026-13-01T00:00:00+00:00", "2026-01-01T00:00:00+02:00"],
        "spec.layers": [[], ["softmax"]], "spec.seed": [-1, 2**32],
        "spec.question.train.lr": [0.0, True], "spec.question.train.warmup": [-1, 5001],
        "spec.question.model.dropout": [-0.1, 1.0], "spec.question.model.depth": [True],
    },
    CostStore: {
        "measured.seconds": [{"q1": 2.0, "median": 1.0, "q3": 3.0}],
        "measured.ratio.median": [0.0, 1e308, math.nan], "measured.peak_bytes": [-1],
        **dict.fromkeys(("spec.train", "spec.task", "spec.model"), (None,)),
        "spec.batch": [0], "spec.level": ["layer"],
    },
}  # fmt: skip
FIELDS = [(kind, field) for kind, fields in OUT_OF_RANGE.items() for field in fields]


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=lambda of: getattr(of, "__name__", of))
def test_a_record_with_a_figure_out_of_range_is_left_out(tmp_path, record, kind, field):
    store, good = kind.within(tmp_path), record.model_copy(update={"spec": OTHER})
    if kind is CostStore:
        record, good = costs_of(record)
    store.write(good)
    *owner, last = (int(part) if part.isdecimal() else part for part in field.split("."))
    path, starts = store.path(record.spec), (field.removesuffix(".warmup"), "spec: ")
    for value in OUT_OF_RANGE[kind][field]:
        tree = record.model_dump(mode="json")
        reduce(getitem, owner, tree)[last] = value
        path.write_text(json.dumps(tree))
        records, ((broken, reason),) = store.read()
        assert (records, broken) == ([good], path)
        assert reason.replace(".encoder", "").startswith(starts) or "finite" in reason
        assert "Value error" not in reason and "\n" not in reason


def test_a_record_under_the_name_of_another_run_is_left_out(store, record):
    path = store.write(record)
    store.path(OTHER).write_text(path.read_text())
    reason = f"its specification belongs in {path.name}; move it away"
    assert store.read() == ([record], [(store.path(OTHER), reason)])
    with pytest.raises(UserError, match="its specification belongs in"):
        store.find(OTHER)


def test_a_file_in_place_of_the_folder_is_one_line(store, record):
    store.folder.write_text("a file")
    assert store.find(record.spec) is None and store.read() == ([], [])
    for write in (store.require_writable, lambda: store.write(record)):
        with one_line("cannot be written"):
            write()


def line(kind: str = "run", **changes) -> str:
    record = make_record().model_copy(update=changes)
    return line_of(kind, record.spec.file_name, record.model_dump_json())


def write(text: str):
    return lambda path: path.write_text(text)


# What is no file of records whatever its content, by kind.
NO_FILES = {
    "pipe": os.mkfifo, "folder": Path.mkdir,
    "huge": lambda path: (path.touch(), os.truncate(path, 3 * 2**30)),
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
PLACES |= {"cut.json": write('{"'), "list.json": write("[]"), "binary.json": write("\x80\0")}


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
@pytest.mark.parametrize(("name", "group"), [("dev", "a b"), ("p[0]", '},{"step":')])
def test_points_are_left_out_of_the_text_as_of_the_record(indent, name, group):
    def parsed(text: Text):
        return stores.parse(stores.thinned(text), Record)

    scores = {1: 0.0, 5: 0.5, 8: 0.7}
    curve = [Point(step=n, seconds=n, loss=1.0, losses={name: 1.0}, dev=scores.get(n),
                   groups={group: 1.0}) for n in range(1, 10)]  # fmt: skip
    for count in (0, 1, 9):
        record = make_record().model_copy(update={"curve": curve[:count]})
        text = Text(Path("a"), 1, "run", "a", record.model_dump_json(indent=indent), "")
        found = parsed(text)
        assert isinstance(found, Record) and found.thinned() == record.thinned()
        assert (found == record.thinned()) == (count < 2 or name == "dev")
    assert (len(stores.thinned(text).text) < len(text.text)) == (name == "dev")
    # What is not parsed is not believed.
    wrong = text.text.replace('"final":', '"x":[1,{"step":3}],"final":')
    assert isinstance(parsed(text._replace(text=wrong)), stores.Broken)


def test_a_store_without_records_is_not_packed(store, rejected, tmp_path):
    store.folder.mkdir()
    assert "has no record" in rejected("pack", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_examples_that_share_a_sequence_are_a_cluster_and_small_clusters_come_first():
    # Sequence 5 is in three examples; each other one is a cluster.
    ids = torch.tensor([[0, 5], [1, 2], [5, 3], [4, 5], [6, 7]]).int()
    tokens, lengths = torch.zeros(8, 1).byte(), torch.ones(8).int()
    split = Split(tokens, lengths, ids, torch.zeros(5).long(), padded=False)
    packed = by_cluster(torch.tensor([True, False, False, True, True]), split)
    assert packed.clusters == ((1, 2), (3, 1)) and packed.cluster_sums().tolist() == [0, 1, 2]


def test_every_answer_survives_packing_and_json():
    rng = np.random.default_rng(0)
    correct, sizes = rng.random(1003) < 0.3, [1] * 500 + [3] * 101 + [200]
    packed = CorrectAnswers.pack(correct.tolist(), sizes)
    again = CorrectAnswers.model_validate_json(packed.model_dump_json())
    expected = [part.sum() for part in np.split(correct, np.cumsum(sizes)[:-1])]
    assert again.cluster_sums().tolist() == expected
    assert (again.count, again.mean) == (1003, correct.mean())
    assert again.cluster_sizes().tolist() == sizes and again == packed
    assert CorrectAnswers.pack([True] * 300, [300]).cluster_sums().tolist() == [300]
    values = ClusterValues(sizes=(2, 3), sums=(1.0, 4.0))
    assert (values.count, values.mean) == (5, 1.0)
    assert values.cluster_sizes().tolist() == [2, 3] and values.cluster_sums().tolist() == [1, 4]
    with pytest.raises(ValidationError, match="one number for each cluster"):
        ClusterValues(sizes=(2, 3), sums=(1.0,))


@pytest.mark.parametrize(("change", "message"), [
    ({"bits": "pA"}, "padding"), ({"bits": "pAA="}, "do not hold"),
    ({"bits": "pQ=="}, "are not 0"), ({"clusters": []}, "at least 1"),
    ({"clusters": [[3, 1]]}, "are not 0"), ({"clusters": [[0, 6]]}, "greater than or equal to 1"),
    ({"clusters": [[2**62, 2**62]]}, "more than"), ({"bits": "tA=="}, "accuracy 66"),
    ({"bits": "eEg=", "clusters": [[1, 13]]}, "accuracy 46"),
])  # fmt: skip
def test_answers_that_do_not_agree_are_rejected(change, message):
    record = json.loads(make_record(accuracy=0.5, examples=2).model_dump_json())
    record["final"]["sample"] = {"kind": "bits", "bits": "pA==", "clusters": [[3, 2]]} | change
    with pytest.raises(ValidationError, match=message):
        Record.model_validate(record)
