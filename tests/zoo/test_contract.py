"""The contract: sizes, claims, the call of a layer, and its error messages."""

import weakref
from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest
import torch

import zoo
from tests.conftest import one_line
from zoo.contract import Attended, Attention, Size, Traits, Unsupported, names_with
from zoo.projected import ProjectedAttention
from zoo.registry import UserError
from zoo.variants import variants

SIZE = Size(dim=8, heads=2, max_len=9, causal=False, dropout=0.0)
NOTHING = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)
TOKENS, REAL = torch.randn(2, 9, 8), torch.ones(2, 9, dtype=torch.bool)


class First(ProjectedAttention):
    traits = NOTHING

    def attend(self, q, k, v, mask):
        self.arguments, self.autocast = (q, k, v), torch.is_autocast_enabled("cpu")
        return v[:, :, :1].expand_as(q)


class CausalOnly(First):
    traits = replace(NOTHING, causal=True, bidirectional=False)


class Bare(First):
    def forward(self, x, context, mask):
        return x


def mine(**attributes) -> type:
    return type("Mine", (First,), attributes)


def call(*arguments) -> Attended:
    return variants.find("primal")(SIZE)(*arguments)


size, traits = partial(replace, SIZE), partial(replace, NOTHING)
REJECTED = [
    (lambda: size(dim=6, heads=4), "dim=6"), (lambda: size(causal="no"), "causal='no'"),
    (lambda: traits(causal="yes"), "'yes'"), (lambda: traits(losses="aux"), "'aux'"),
    (lambda: traits(losses=(1,)), "losses"), (lambda: traits(bidirectional=False), "causal=True"),
    (lambda: replace(CausalOnly.traits, cross=True), "cross=False"),
    (lambda: mine(traits={"causal": False}), "Mine.traits"),
    (lambda: mine(expected_failures=[]), "Mine.expected_failures"),
    (lambda: mine(family="kernal"), "'kernal'"),
    (lambda: mine(identities="softmax"), "Mine.identities"),
    (lambda: mine(unchecked=True), "Mine.unchecked"),
    (lambda: type("Nothing", (Attention,), {"traits": NOTHING})(SIZE), "Nothing"),
    (lambda: Bare(SIZE)(TOKENS), "Bare"), (lambda: call(TOKENS, REAL), "context is boolean"),
    (lambda: call(TOKENS, torch.randn(2, 10, 8)), "context has 10 tokens"),
    (lambda: call(TOKENS, TOKENS[:1]), "context 1"),
    (lambda: variants.find("linear")(size(causal=True))(TOKENS[:, :5], TOKENS),
     "causal linear got 5 queries and 9 keys"),
]  # fmt: skip
"""Other sizes, tokens and masks are in `tests/test_wrong_calls.py`."""


@pytest.mark.parametrize(("make", "named"), REJECTED)
def test_an_impossible_size_claim_class_or_call_is_rejected(make, named, no_type_checks):
    assert call(TOKENS, None, REAL).tokens.shape == TOKENS.shape
    with pytest.raises((UserError, TypeError)) as raised:
        make()
    assert named in str(raised.value) and "\n" not in str(raised.value)


def test_sizes_traits_and_losses_are_immutable():
    assert SIZE.head_dim == 4
    with pytest.raises(FrozenInstanceError):
        SIZE.dim = 7
    with pytest.raises(FrozenInstanceError):
        NOTHING.causal = True
    with pytest.raises(TypeError):
        Attended(TOKENS).losses["ksvd"] = torch.zeros(())


def test_what_is_not_claimed_is_rejected_with_the_names_of_others():
    assert names_with("causal").split(", ") == zoo.names(causal=True)
    for make, trait in (
        (lambda: First(size(causal=True)), "causal"), (lambda: CausalOnly(SIZE), "bidirectional"),
        (lambda: First(SIZE)(TOKENS, TOKENS.clone()), "cross"),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=f": {names_with(trait)}$"):
            make()


@pytest.mark.parametrize("upcast", [True, False])
def test_upcast_gives_fp32_without_autocast_and_returns_the_dtype_of_the_layer(upcast):
    layer = mine(upcast=upcast)(SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        tokens = layer(TOKENS).tokens
    assert tokens.dtype == torch.bfloat16 and layer.autocast is not upcast
    expected = torch.float32 if upcast else torch.bfloat16
    assert {part.dtype for part in layer.arguments} == {expected}
    assert layer.double()(TOKENS.double()).tokens.dtype == torch.float64
    assert {part.dtype for part in layer.arguments} == {torch.float64}


@pytest.mark.slow
def test_a_compiled_layer_rejects_more_tokens_than_max_len(no_type_checks):
    layer = torch.compile(variants.find("softmax")(SIZE), backend="eager")
    for length in (5, 7):  # the second length makes the shape dynamic
        layer(torch.randn(2, length, 8), segments=torch.zeros(2, length, dtype=torch.long))
    with one_line("10 tokens", "max_len=9"):
        layer(torch.randn(2, 10, 8))


@pytest.mark.parametrize("parameter", ["query.weight", "out.weight"])
def test_autocast_stays_enabled_behind_the_backward_pass_of_a_part(parameter, no_type_checks):
    layer = variants.find("soft")(SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            loss = layer(TOKENS).tokens.sum()
            torch.autograd.grad(loss, layer.get_parameter(parameter), retain_graph=True)
            torch.autograd.grad(loss, layer.get_parameter(parameter))
            assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("inside", [True, False])
def test_the_graph_of_a_call_under_autocast_is_released(inside, no_type_checks):
    layer, x = variants.find("soft")(SIZE), torch.randn(2, 6, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        tokens = torch.utils.checkpoint.checkpoint(torch.clone, x, use_reentrant=True)
        node = weakref.ref(tokens.grad_fn)
        loss = layer(tokens).tokens.sum()
        if inside:
            loss.backward()
    del tokens, loss
    assert node() is None
