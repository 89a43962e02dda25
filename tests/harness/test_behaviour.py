"""Code that computes the same as before outdates no run."""

import json

import pytest

from harness import behaviour
from harness.provenance import is_outdated, source_digest
from harness.records import sources
from harness.records.record import origin_of
from harness.records.store import Store
from harness.stores import PUBLISHED
from zoo.variants import variants


@pytest.fixture
def file(monkeypatch, tmp_path):
    """A file of the entries of linear and delta; returns a function that writes it."""
    path = tmp_path / "behaviour.json"
    monkeypatch.setattr(behaviour, "BEHAVIOUR", path)
    monkeypatch.setattr(sources, "BEHAVIOUR", path)
    monkeypatch.setattr(behaviour, "variants", {"linear": variants.find("linear")})

    def write(**entries):
        sources.code_that_computes_the_same.cache_clear()
        path.write_text(json.dumps(entries))
        return path

    yield write
    sources.code_that_computes_the_same.cache_clear()


def test_the_file_is_of_the_code_now():
    entries = json.loads(behaviour.BEHAVIOUR.read_text())
    found = {name: entry["code"][-1] for name, entry in entries.items()}
    now = {name: source_digest(variants.find(name)) for name in found}
    assert found == now, "run: python -m harness.behaviour"
    checked = [name for name, variant in variants.items() if not variant.unchecked]
    assert sorted(found) == sorted(checked)


@pytest.mark.parametrize("name", ["linear", "delta", "primal"])
def test_the_numbers_of_the_file_are_those_of_the_code(name):
    entry = json.loads(behaviour.BEHAVIOUR.read_text())[name]
    values = behaviour.values_of(name, variants.find(name))
    assert behaviour.same(entry["values"], values)
    # One number that is changed in the sixth digit is seen.
    assert not behaviour.same(entry["values"], [*values[:-1], values[-1] + 1e-6])


@pytest.mark.parametrize(("change", "kept"), [(1e-12, True), (1e-5, False)])
def test_code_is_listed_with_that_before_where_it_computes_the_same(file, change, kept, capsys):
    variant = variants.find("linear")
    values, now = behaviour.values_of("linear", variant), source_digest(variant)
    path = file(linear={"values": [v + change for v in values], "code": ["zoo.variants.linear:1"]})
    behaviour.main()
    entry = json.loads(path.read_text())["linear"]
    assert entry == {"values": values, "code": ["zoo.variants.linear:1"] * kept + [now]}
    assert ("the same as before" in capsys.readouterr().out) == kept


def test_a_run_of_code_that_computes_the_same_is_current(file):
    now, old = source_digest(variants.find("linear")), "zoo.variants.linear:1"
    records = (run for run in Store(PUBLISHED).read()[0] if {*run.implementations} == {"linear"})
    record = next(records).model_copy(update={"implementations": {"linear": old}})
    file()
    assert is_outdated(record) and sources.outdated([origin_of(record)]) == [True]
    file(linear={"values": [], "code": [old, now]})
    assert record.implementation == now
    assert not is_outdated(record) and sources.outdated([origin_of(record)]) == [False]
