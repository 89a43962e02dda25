"""The least memory of a model is known before it is built; models of equal size by their width."""

import pytest

from harness.grid import check
from harness.memory import matched, parameters
from harness.questions import spec_of
from tests.harness.conftest import TREES, requested
from tests.harness.specs import raising
from zoo.registry import UserError

LARGE = [
    {"model": {"depth": 2**62}},
    {"model": {"depth": 3 * 10**6}},
    {"model": {"dim": 2**40}},
    {"model": {"dim": 2**62}},
    {"model": {"feed_forward": 2**62}},
]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("settings", LARGE, ids=str)
def test_a_model_beyond_the_memory_is_rejected_before_it_is_built(store, monkeypatch, settings):
    monkeypatch.setattr("harness.grid.build_model", raising(AssertionError("it is built")))
    with pytest.raises(UserError, match=r"needs .* GiB of memory, .* GiB is all; lower") as error:
        check([requested("primal", "listops", **{"listops": TREES, **settings})], store)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("attention", ["linformer", "none", "softmax+primal", "softmax"])
def test_a_matched_model_has_the_parameters_of_softmax_at_the_recipe(attention):
    target = parameters(requested("softmax", "listops", listops=TREES))
    plain = requested(attention, "listops", listops=TREES)
    width = matched(plain.question, attention, {}, "cpu")
    equal = spec_of(plain.question, attention, values=width)
    assert parameters(equal) == pytest.approx(target, rel=0.01)
    if attention in ("linformer", "none"):
        assert abs(parameters(plain) / target - 1) > 0.01
        assert equal.values == {"model.feed_forward": equal.model.feed_forward}
    assert (equal.id == plain.id) == (attention == "softmax" and not width)
    assert "match" not in plain.model_dump_json()


def test_a_variant_that_does_not_support_the_task_is_left_to_its_run():
    plain = requested("softmax", "mqar", mqar={"causal": True, "train": 8})
    assert matched(plain.question, "linformer", {}, "cpu") == {}
