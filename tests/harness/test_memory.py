"""What a model takes is known before it is built, and too much is rejected before anything is."""

import pytest
import torch

from harness import memory
from harness.grid import check
from harness.memory import Footprint, footprint
from harness.model import build_model
from harness.plan import resolve
from tests.harness.conftest import TREES
from tests.harness.specs import raising
from zoo.registry import UserError
from zoo.variants import variants

NAMES = [
    name
    for name, variant in variants.items()
    if not variant.unchecked and variant.traits.bidirectional
]


@pytest.mark.parametrize(
    ("name", "depth"), [*((name, 9) for name in NAMES), ("softmax+primal", 9), ("primal", 2)]
)
def test_the_estimate_is_the_number_of_parameters_of_the_model(plan, name, depth):
    planned = plan(name, settings={"model": {"depth": depth}})
    model = build_model(planned.spec, planned.task)
    parameters = sum(part.numel() for part in model.parameters())
    trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
    buffers = sum(part.numel() * part.element_size() for part in model.buffers())
    used = 16 * trained + 4 * (parameters - trained) + buffers
    assert footprint(planned) == Footprint(parameters, used)


LARGE = [
    {"model": {"depth": 2**62}},
    {"model": {"depth": 3 * 10**6}},
    {"model": {"dim": 2**40}},
    {"model": {"dim": 2**62}},
    {"model": {"feed_forward": 2**62}},
    {"model": {"head": 2**40}},
    {"primal": {"rank": 2**40}},
    {"listops": {"max_len": 2**40, "train": 64, "min_len": 2}},
]


@pytest.mark.parametrize("settings", LARGE, ids=str)
def test_a_model_beyond_the_memory_is_rejected_before_it_is_built(
    request_of, store, monkeypatch, settings
):
    monkeypatch.setattr("harness.grid.build_model", raising(AssertionError("it is built")))
    request = request_of("primal", "listops", **{"listops": TREES, **settings})
    with pytest.raises(UserError, match=r"needs .* GiB of memory, .* GiB is all; lower") as error:
        check([resolve(request)], store)
    assert "\n" not in str(error.value)


def test_a_variant_that_cannot_be_built_without_storage_has_no_estimate(plan, monkeypatch):
    monkeypatch.setattr(memory, "build_model", raising(TypeError("no meta")))
    assert footprint(plan()) is None
    memory.require_fit(plan())


def test_the_generator_is_left_as_it_was(plan):
    before = torch.get_rng_state()
    footprint(plan("performer"))
    assert torch.equal(torch.get_rng_state(), before)
