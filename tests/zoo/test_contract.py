"""The contract: sizes, claims, the call of a layer, and its error messages."""

import weakref
from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest
import torch

from zoo.contract import Attended, Attention, Size, Traits, Unsupported, names_with
from zoo.projected import ProjectedAttention
from zoo.registry import UserError
from zoo.variants import variants

SIZE = Size(dim=8, heads=2, max_len=9, causal=False, dropout=0.0)
NOTHING = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)
TOKENS, REAL = torch.randn(2, 9, 8), torch.ones(2, 9, dtype=torch.bool)


class First(ProjectedAttention):
    """Every query receives the first value; records its arguments."""

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
    (lambda: size(heads=0), "heads=0 must be at least 1"),
    (lambda: size(dim=6, heads=4), "dim=6 is not a multiple of heads=4; change either"),
    (lambda: size(dropout=1.0), r"dropout=1.0 must be in \[0, 1\)"),
    (lambda: size(dim="64"), "dim='64' is not an int; give a whole number"),
    (lambda: size(dropout=None), r"dropout=None is not a float; give a number in \[0, 1\)"),
    (lambda: size(causal="no"), "causal='no' is not a bool; give True or False"),
    (lambda: traits(causal="yes"), "Traits.causal='yes'; give True or False"),
    (lambda: traits(losses="aux"), "Traits.losses='aux'; give a tuple of names"),
    (lambda: traits(losses=(1,)), "give a tuple of names"),
    (lambda: traits(bidirectional=False), "needs causal=True, cross=False"),
    (lambda: replace(CausalOnly.traits, cross=True), "needs causal=True, cross=False"),
    (lambda: mine(traits={"causal": False}), "Mine.traits is a dict; make it a Traits"),
    (lambda: mine(expected_failures=[]), "Mine.expected_failures is a list; make it a Mapping"),
    (lambda: mine(family="kernal"), "Mine: unknown family 'kernal'; did you mean 'kernel'?"),
    (lambda: mine(identities="softmax"), "Mine.identities is a str; make it a tuple"),
    (lambda: mine(unchecked=True), "Mine.unchecked is a bool; make it a str"),
    (lambda: type("Nothing", (Attention,), {"traits": NOTHING})(SIZE), "abstract"),
    (lambda: Bare(SIZE)(TOKENS), r"^Bare returned a Tensor; a variant returns zoo.contract"),
    (lambda: call(TOKENS, REAL), r"^context is boolean; .*layer\(x, mask=mask\)$"),
    (lambda: call(TOKENS, None, REAL.float()), "^mask has dtype torch.float32; .*mask.bool"),
    (lambda: call(TOKENS, None, REAL[:1]), r"^mask has .* of shape \(2, 9\)$"),
    (lambda: call(TOKENS[:, :0]), r"^x has shape .*; give"),
    (lambda: call(torch.randn(2, 10, 8)), r"^x has 10 tokens, more than max_len=9; truncate it,"),
    (lambda: call(TOKENS, torch.randn(2, 10, 8)), "^context has 10 tokens, more than max_len=9"),
    (lambda: call(TOKENS, TOKENS[:1]), "x has 2 samples and context 1"),
]


@pytest.mark.parametrize(("make", "message"), REJECTED, ids=[text for _, text in REJECTED])
def test_an_impossible_size_claim_class_or_call_is_rejected(make, message, no_type_checks):
    assert call(TOKENS, None, REAL).tokens.shape == TOKENS.shape
    with pytest.raises((UserError, TypeError), match=message):
        make()


def test_sizes_traits_and_losses_are_immutable():
    assert SIZE.head_dim == 4
    with pytest.raises(FrozenInstanceError):
        SIZE.dim = 7
    with pytest.raises(FrozenInstanceError):
        NOTHING.causal = True
    with pytest.raises(TypeError):
        Attended(TOKENS).losses["ksvd"] = torch.zeros(())


def test_what_is_not_claimed_is_rejected_with_the_names_of_others():
    causal, every = names_with("causal").split(", "), variants.items()
    assert causal == [name for name, variant in every if variant.traits.causal]
    for make, message in (
        (lambda: First(size(causal=True)), "First is not causal; causal variants: {causal}"),
        (
            lambda: CausalOnly(SIZE),
            "CausalOnly is causal only; bidirectional variants: {bidirectional}",
        ),
        (
            lambda: First(SIZE)(TOKENS, TOKENS.clone()),
            "First attends to its input only; variants with cross-attention: {cross}",
        ),
    ):
        with pytest.raises(Unsupported) as error:
            make()
        names = {trait: names_with(trait) for trait in ("causal", "bidirectional", "cross")}
        assert str(error.value) == message.format(**names)


BOTH = [name for name, of in variants.items() if of.traits.causal and of.traits.cross]


@pytest.mark.parametrize("name", BOTH)
def test_a_causal_layer_rejects_a_context_of_another_length(name):
    layer = variants.find(name)(size(causal=True))
    with pytest.raises(Unsupported, match=f"^causal {name} got 5 queries and 9 keys; give as many"):
        layer(TOKENS[:, :5], TOKENS)


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
    for length in (5, 7, 9):  # the second length makes the shape dynamic
        layer(torch.randn(2, length, 8))
    with pytest.raises(UserError, match=r"^x has 10 tokens, more than max_len=9"):
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


class Saved(torch.autograd.Function):
    """The identity: its node is an object of Python, to which a weak reference is possible."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient


@pytest.mark.parametrize("inside", [True, False])
def test_the_graph_of_a_call_under_autocast_is_released(inside, no_type_checks):
    layer, x = variants.find("soft")(SIZE), torch.randn(2, 6, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        saved = Saved.apply(x)
        node = weakref.ref(saved.grad_fn)
        loss = layer(saved).tokens.sum()
        if inside:
            loss.backward()
    del saved, loss
    assert node() is None
