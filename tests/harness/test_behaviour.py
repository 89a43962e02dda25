"""The numbers of a variant change only with its version."""

import json

import pytest

from harness import behaviour
from harness.behaviour import Entry, differences, option_sets
from harness.records.versions import LOOP
from harness.train import OPTIMISERS

RECORDED = behaviour.recorded()


@pytest.mark.parametrize("name", behaviour.names())
def test_the_numbers_of_a_version_are_those_of_its_code(name):
    before, now = RECORDED[name], behaviour.now(name)
    assert before.major == now.major and before.numbers.keys() == now.numbers.keys(), (
        "run: python -m harness.behaviour"
    )
    assert not differences(before, now), "other numbers: raise the first part of the version"


def test_every_optimiser_and_every_option_set_of_a_suite_has_numbers():
    cases = " ".join(RECORDED[LOOP].numbers)
    assert all(f"'optimiser': '{name}'" in cases for name in OPTIMISERS)
    assert [*RECORDED] == behaviour.names() and {"negative": True} in option_sets("delta")
    assert {"expand": 1, "state": 32} in option_sets("mamba2") and len(option_sets("primal")) > 5


@pytest.mark.parametrize("other", [{"weight_decay": 0.0}, {"eps": 1e-2}], ids=str)
def test_a_change_of_training_is_seen(other, monkeypatch):
    make = OPTIMISERS["adamw"]
    monkeypatch.setitem(
        OPTIMISERS, "adamw", lambda model, spec: make(model, spec.model_copy(update=other))
    )
    case = str({"optimiser": "adamw"})
    now = Entry("1", {case: behaviour.of_training({"optimiser": "adamw"})})
    assert differences(RECORDED[LOOP], now) == [case]


@pytest.mark.parametrize(("change", "major", "kept"), [
    (1e-12, "1", True), (1e-5, "1", None), (1e-5, "2", False),
])  # fmt: skip
def test_other_numbers_are_written_with_another_version_alone(
    change, major, kept, tmp_path, monkeypatch, capsys
):
    path, case = tmp_path / "behaviour.json", "linear, float64 training"
    path.write_text(text := json.dumps({"linear": Entry("1", {case: [1.0, -2.0]})}))
    now = Entry(major, {case: [1.0 + change, -2.0], "linear, new": [3.0]})
    monkeypatch.setattr(behaviour, "FILE", path)
    monkeypatch.setattr(behaviour, "names", lambda: ["linear"])
    monkeypatch.setattr(behaviour, "now", lambda name: now)
    with pytest.raises(SystemExit) as end:
        behaviour.main()
    refused = f"linear: other numbers ({case})" in capsys.readouterr().out
    assert refused == end.value.code == (kept is None) == (path.read_text() == text)
    if not refused:
        numbers = {**now.numbers, case: [1.0, -2.0] if kept else now.numbers[case]}
        assert behaviour.recorded() == {"linear": Entry(major, numbers)}
