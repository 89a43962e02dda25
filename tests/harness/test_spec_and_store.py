"""The identity of a run, and records that are there whole or not at all."""

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.records.record import Cost, Environment, Final, Point, Record
from harness.records.spec import RunSpec
from harness.records.store import Broken, Store
from zoo.registry import UserError

SPEC = {
    "attention": "softmax+primal",
    "options": {"softmax": {"backend": "auto"}, "primal": {"rank": 30, "eta": 0.05}},
    "task": {"name": "listops", "key": "listops@1", "options": {"max_len": 2000, "seed": 0}},
    "budget": "paper",
    "model": {
        "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128, "head": 128, "dropout": 0.1,
        "attention_dropout": 0.0,
    },
    "train": {
        "batch": 32, "steps": 5000, "warmup": 1000, "lr": 1e-4, "betas": [0.9, 0.999],
        "eps": 1e-6, "weight_decay": 0.0, "evaluations": 20, "precision": "bf16",
        "compiled": False,
    },
    "device": "cpu",
    "seed": 0,
}  # fmt: skip
GOLDEN = "42ec680f113e0561"
OTHER_WORD = {"bf16": "fp32", "cpu": "cuda"}


def leaves(tree: object, path: tuple = ()) -> list[tuple]:
    """The path of every value that holds no other."""
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return [leaf for key, inner in items for leaf in leaves(inner, (*path, key))]
    return [path]


def changed(path: tuple) -> RunSpec:
    """`SPEC` with another value at `path`."""
    tree = json.loads(json.dumps(SPEC))
    owner = tree
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = another(owner[path[-1]])
    return RunSpec.model_validate(tree)


def another(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return OTHER_WORD.get(value, f"{value}x")
    return value + (1 if isinstance(value, int) else 1e-9)


def backwards(tree):
    """The same with every dictionary in the opposite order."""
    if isinstance(tree, dict):
        return {key: backwards(tree[key]) for key in reversed(tree)}
    return tree


@pytest.fixture
def spec() -> RunSpec:
    return RunSpec.model_validate(SPEC)


@pytest.fixture
def record(spec, unmeasured) -> Record:
    return Record(
        spec=spec, status="ok", reason="", started="2026-01-01T00:00:00+00:00",
        environment=Environment(
            device="cpu", threads=1, memory_gib=1.0, system="Linux", versions={}, commit=""
        ),
        baselines={"chance": 0.1},
        curve=[Point(step=1, seconds=0.1, loss=2.0, losses={"ksvd": 0.5}, dev_accuracy=None)],
        cost=unmeasured,
        final=Final(
            test_accuracy=1 / 3, test_examples=3, dev_accuracy=0.5, best_step=1,
            train_seconds=0.1, seconds=0.2,
        ),
    )  # fmt: skip


def test_the_identity_of_a_known_run_never_changes(spec):
    assert spec.id == GOLDEN


def test_equal_specifications_have_one_identity(spec):
    assert RunSpec.model_validate(backwards(SPEC)).id == spec.id
    assert RunSpec.model_validate_json(spec.model_dump_json()).id == spec.id
    assert backwards(SPEC) == SPEC
    assert json.dumps(backwards(SPEC)) != json.dumps(SPEC)


@pytest.mark.parametrize("path", leaves(SPEC), ids=lambda path: ".".join(map(str, path)))
def test_any_changed_field_is_another_run(spec, path):
    assert changed(path).id != spec.id


def test_an_added_or_dropped_option_is_another_run(spec):
    more = {**SPEC, "options": {**SPEC["options"], "reformer": {}}}
    assert RunSpec.model_validate(more).id != spec.id


@pytest.mark.parametrize("bad", [{"sede": 1}, {"device": "tpu"}, {"seed": 0.5}, {"seed": None}])
def test_a_specification_refuses_what_it_does_not_know(bad):
    with pytest.raises(ValidationError):
        RunSpec.model_validate({**SPEC, **bad})


def test_a_specification_is_frozen(spec):
    with pytest.raises(ValidationError, match="frozen"):
        spec.seed = 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_of_a_record_is_other_than_finite(record, bad):
    whole = record.model_dump()
    places = [p for p in leaves(whole) if isinstance(value_at(whole, p), float)]
    assert len(places) > 20
    for path in places:
        tree = record.model_dump(mode="json")
        value_at(tree, path[:-1])[path[-1]] = bad
        with pytest.raises(ValidationError):
            Record.model_validate(tree)


def value_at(tree, path: tuple):
    for key in path:
        tree = tree[key]
    return tree


def test_a_cost_has_softmax_and_all_ratios_or_none_of_them(unmeasured):
    parts = ("softmax", "time_ratio", "inference_ratio")
    absent = unmeasured.model_dump() | dict.fromkeys(parts)
    assert Cost.model_validate(absent).memory_ratio is None
    for part in parts:
        for some in (absent | {part: unmeasured.model_dump()[part]},
                     unmeasured.model_dump() | {part: None}):  # fmt: skip
            with pytest.raises(ValidationError, match="absent together or not at all"):
                Cost.model_validate(some)


def test_a_record_comes_back_as_it_was_written(store, record):
    path = store.write(record)
    assert path == store.path(record.spec)
    assert store.find(record.spec) == record
    assert store.read() == ([record], [])
    assert store.find(changed(("seed",))) is None


def test_the_path_of_a_record_says_what_it_is_of(store, spec):
    name = store.path(spec).name
    assert name == f"listops-softmax+primal-paper-cpu-s0-{spec.id}.json"
    assert store.checkpoint(spec).parent == store.folder
    assert store.checkpoint(spec).suffix != ".json"


def test_a_store_without_a_folder_is_empty_and_reading_makes_none(store, spec):
    assert store.find(spec) is None
    assert store.read() == ([], [])
    assert not store.folder.exists()


@pytest.mark.parametrize("place", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_a_failed_write_leaves_what_was_there_and_nothing_else(
    store, record, monkeypatch, place, error
):
    def fail(*_):
        raise error

    store.write(record)
    before = store.path(record.spec).read_bytes()
    monkeypatch.setattr(place, fail)
    with pytest.raises(type(error)):
        store.write(record.model_copy(update={"status": "failed", "reason": "x"}))
    assert [path.read_bytes() for path in store.folder.iterdir()] == [before]


def test_what_stands_at_the_final_name_is_never_partly_written(store, record, monkeypatch):
    seen = []
    real = Path.replace

    def spy(partial, path):
        seen.append((Record.model_validate_json(partial.read_text()), path.exists()))
        return real(partial, path)

    monkeypatch.setattr(Path, "replace", spy)
    store.write(record)
    assert seen == [(record, False)]


def test_what_a_killed_writer_left_is_no_record(store, record):
    store.write(record)
    text = record.model_dump_json()
    (store.folder / f".{record.spec.id}-x.partial").write_text(text[: len(text) // 2])
    assert store.read() == ([record], [])


def spoil(record: Record) -> dict[str, bytes]:
    """Contents that are no record, by what is wrong with them."""
    tree = record.model_dump(mode="json")
    text = json.dumps(tree)
    return {
        "empty": b"",
        "no JSON": b"{",
        "truncated": text[: len(text) // 2].encode(),
        "another kind": b"[]",
        "another schema": json.dumps({**tree, "schema_version": 2}).encode(),
        "an extra field": json.dumps({**tree, "note": 1}).encode(),
        "a missing field": json.dumps({k: v for k, v in tree.items() if k != "cost"}).encode(),
        "not a number": text.replace("0.5", "NaN").encode(),
        "no text": b"\xff\xfe\x00",
    }


WRONGS = [
    "empty", "no JSON", "truncated", "another kind", "another schema", "an extra field",
    "a missing field", "not a number", "no text",
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_broken_record_is_named_and_left_as_it_is(store, record, wrong):
    good = record.model_copy(update={"spec": changed(("seed",))})
    store.write(good)
    path, content = store.path(record.spec), spoil(record)[wrong]
    path.write_bytes(content)
    records, broken = store.read()
    assert records == [good]
    assert [one.path for one in broken] == [path]
    assert isinstance(broken[0], Broken)
    assert broken[0].reason
    assert "\n" not in broken[0].reason
    with pytest.raises(UserError, match="is not a record") as caught:
        store.find(record.spec)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_every_way_of_being_broken_is_tried(record):
    assert list(spoil(record)) == WRONGS


def test_records_are_read_in_order_of_their_names(tmp_path, record):
    store = Store(tmp_path)
    for seed in (3, 1, 2):
        one = record.spec.model_copy(update={"seed": seed})
        store.write(record.model_copy(update={"spec": one}))
    assert [one.spec.seed for one in store.read()[0]] == [1, 2, 3]
