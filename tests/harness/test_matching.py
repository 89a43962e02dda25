"""Models of equal size: the feed-forward width of each variant."""

import pytest

from harness.memory import matched, parameters
from harness.plan import resolve
from tests.harness.conftest import TREES


@pytest.mark.parametrize("attention", ["linformer", "none", "softmax+primal", "softmax"])
def test_a_matched_model_has_the_parameters_of_softmax_at_the_recipe(request_of, attention):
    target = parameters(resolve(request_of("softmax", "listops", listops=TREES)))
    plain = resolve(request_of(attention, "listops", listops=TREES))
    made = resolve(matched(request_of(attention, "listops", listops=TREES)))
    assert parameters(made) == pytest.approx(target, rel=0.01)
    if attention in ("linformer", "none"):
        assert abs(parameters(plain) / target - 1) > 0.01
        assert made.spec.overrides == {"model.feed_forward": made.spec.model.feed_forward}
    assert made.spec.id != plain.spec.id
    assert "match" not in plain.spec.model_dump_json()


def test_a_variant_that_does_not_support_the_task_is_left_to_its_cell(request_of):
    made = matched(request_of("linformer", "mqar", mqar={"causal": True, "train": 8}))
    assert (made.match, "model" in made.settings) == ("parameters", False)
