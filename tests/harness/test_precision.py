"""`--precision auto`: the faster precision of a row, found once; decisions of a store."""

import json
import os
from dataclasses import replace

import pytest

from harness.plan import Draft
from harness.precision import faster, row_key
from harness.reference import CHOICES_FILE, choose, key_of
from tests.harness.conftest import SMALL, TREES, requested
from tests.harness.specs import raising


@pytest.fixture
def seconds(monkeypatch) -> dict[str, float]:
    """Seconds of a step in each precision; each trial prints a line."""
    of = {"bf16": 0.5, "fp32": 1.0}
    monkeypatch.setattr("harness.precision.native_precisions", lambda device: ("bf16", "fp32"))
    monkeypatch.setattr("harness.precision.short_trial", lambda makers, timer: dict(of))
    return of


@pytest.fixture
def request_for():
    """A request of a variant on short trees, as `plan` has them."""
    return lambda attention, seed=0: replace(
        requested(attention, "listops", listops=TREES), seed=seed
    )


@pytest.fixture
def decide(store):
    """The precision of each request, in order, and the lines of the trials."""

    def decide(*requests):
        lines = []
        drafts = [faster(Draft.of(request), store, lines.append) for request in requests]
        chosen = [draft.spec.train.precision for draft in drafts]
        assert chosen == [draft.request.precision for draft in drafts]
        return chosen, lines

    return decide


@pytest.mark.parametrize(("bf16", "expected"), [(0.89, "bf16"), (0.91, "fp32"), (1.5, "fp32")])
def test_bf16_is_taken_where_it_is_a_tenth_faster(request_for, seconds, decide, bf16, expected):
    seconds["bf16"] = bf16
    ((chosen,), lines) = decide(request_for("primal"))
    assert chosen == expected and f"{bf16:.2f}" in lines[-1] and expected in lines[-1]


def test_a_row_is_tried_once_and_every_seed_has_its_precision(request_for, seconds, decide, store):
    rows = [request_for(name, n) for name in ("primal", "linear") for n in range(3)]
    assert decide(*rows)[0] == ["bf16"] * 6
    assert len(json.loads((store.folder / CHOICES_FILE).read_text())) == 2
    # Another process, with another result: the first decision holds.
    seconds["bf16"] = 2.0
    again, lines = decide(*rows)
    assert (again, lines) == (["bf16"] * 6, [])
    assert decide(request_for("softmax"))[0] == ["fp32"]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["bf16", "fp32"])
def test_a_recorded_run_and_its_row_keep_their_precision(
    plan, run_here, request_for, seconds, decide, name
):
    record = run_here(plan("primal", precision=name))
    other = plan("primal", seed=1, lr=0.5)
    assert row_key(record.spec) == row_key(other.spec)
    seconds["bf16"] = {"bf16": 2.0, "fp32": 0.5}[name]
    assert decide(*(request_for("primal", seed) for seed in (1, 0))) == ([name, name], [])


def test_rows_whose_steps_take_other_times_decide_for_themselves(plan):
    plans = [plan("primal"), plan("linear"), plan("primal", batch=2)]
    plans += [plan("primal", settings={"primal": {"rank": 5}})]
    assert len({row_key(each.spec) for each in plans}) == len(plans)


def test_a_checkpoint_keeps_its_precision(plan, store, request_for, seconds, decide):
    store.require_writable()
    store.checkpoint(plan("primal", precision="fp32").spec).touch()
    assert decide(request_for("primal")) == (["fp32"], [])


def test_without_a_trial_the_device_decides_the_precision(
    request_for, seconds, decide, monkeypatch, store
):
    fail = raising(RuntimeError("a defect of the variant"))
    monkeypatch.setattr("harness.precision.short_trial", fail)
    request = request_for("primal")
    assert decide(request) == ([request.precision], [])
    monkeypatch.setattr("harness.precision.native_precisions", lambda device: ("fp32",))
    assert decide(request) == ([request.precision], [])
    assert not store.folder.exists()


@pytest.mark.slow
def test_a_run_in_the_faster_precision_finishes(seconds, call, store):
    argv = ("run", "-a", "primal", "--budget", "smoke", "--no-cost", *SMALL)
    assert call(*argv)[0] == 0
    ((record,), _) = store.read()
    assert (record.status, record.spec.train.precision) == ("ok", "bf16")


@pytest.mark.parametrize("registry", ["tasks", "variants"])
def test_nothing_of_another_package_is_tried(
    registry, request_for, seconds, decide, monkeypatch, store
):
    monkeypatch.setattr(f"harness.precision.{registry}.package", lambda name: "another")
    request = request_for("primal")
    assert request.precision == "fp32" and decide(request)[0] == ["fp32"]
    assert not store.folder.exists()


CHOICES = ("a", "b")


def test_the_first_decision_holds_and_nothing_is_tried_again(store):
    assert choose(store, "x", CHOICES, lambda: None) is None and not store.folder.exists()
    assert choose(store, "x", CHOICES, lambda: "a") == "a"
    assert choose(store, "y", CHOICES, lambda: "b") == "b"
    assert choose(store, "x", CHOICES, lambda: pytest.fail("tried again")) == "a"
    assert store.read() == ([], [])


def test_of_two_processes_that_try_at_once_the_first_decides(store):
    # The other process decides while this one tries.
    found = choose(store, "x", CHOICES, lambda: (choose(store, "x", CHOICES, lambda: "b"), "a")[1])
    assert found == "b"


@pytest.mark.parametrize("content", ["", "[1]", "[" * 5000, '{"x": 3}', '{"x": "c"}', "\x00", None])
def test_a_damaged_file_or_a_named_pipe_is_decided_again(store, content):
    store.require_writable()
    path = store.folder / CHOICES_FILE
    os.mkfifo(path) if content is None else path.write_text(content)
    assert choose(store, "x", CHOICES, lambda: "a") == "a"
    assert json.loads((store.folder / CHOICES_FILE).read_text())["x"] == "a"


def test_a_damaged_decision_leaves_the_others(store):
    store.require_writable()
    (store.folder / CHOICES_FILE).write_text('{"x": 3, "y": "b"}')
    assert choose(store, "x", CHOICES, lambda: "a") == "a"
    assert choose(store, "y", CHOICES, lambda: pytest.fail("tried again")) == "b"


def test_keys_are_equal_for_equal_conditions_alone():
    assert key_of("a", {"x": 1, "y": (2,)}) == key_of("a", {"y": [2], "x": 1})
    keys = [key_of("a", 1), key_of("b", 1), key_of("a", 2)]
    assert len({*keys}) == 3
