"""The contract: sizes, claims, the call of a layer, and its error messages."""

import weakref
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from zoo.contract import Attended, Attention, Size, Traits, Unsupported, names_with
from zoo.projected import ProjectedAttention
from zoo.registry import UserError
from zoo.size import require_inputs
from zoo.variants import variants

SIZE = Size(dim=6, heads=2, max_len=9, causal=False, dropout=0.0)
NOTHING = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)


class First(ProjectedAttention):
    """Every query receives the first value; records its arguments."""

    traits = NOTHING

    def attend(self, q, k, v, mask):
        self.arguments = q, k, v, mask
        return v[:, :, :1].expand_as(q)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"dim": 0}, "dim=0 must be at least 1"),
        ({"heads": 0}, "heads=0 must be at least 1"),
        ({"max_len": -3}, "max_len=-3 must be at least 1"),
        ({"heads": 4}, "dim=6 is not a multiple of heads=4; change either"),
        ({"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        ({"dropout": -0.1}, r"dropout=-0.1 must be in \[0, 1\)"),
        ({"dropout": float("nan")}, r"dropout=nan must be in \[0, 1\)"),
        ({"dim": "64"}, "dim='64' is not an int; give a whole number"),
        ({"heads": 2.0}, "heads=2.0 is not an int; give a whole number"),
        ({"max_len": True}, "max_len=True is not an int; give a whole number"),
        ({"dropout": None}, r"dropout=None is not a float; give a number in \[0, 1\)"),
        ({"causal": "no"}, "causal='no' is not a bool; give True or False"),
        ({"rotary": 1}, "rotary=1 is not a bool; give True or False"),
    ],
)
def test_an_impossible_size_is_rejected(wrong, complaint, no_type_checks):
    with pytest.raises(UserError, match=complaint):
        replace(SIZE, **wrong)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"causal": "yes"}, "Traits.causal='yes'; give True or False"),
        ({"linear": 1}, "Traits.linear=1; give True or False"),
        ({"losses": "aux"}, "Traits.losses='aux'; give a tuple of names"),
        ({"losses": (1,)}, "give a tuple of names"),
        ({"bidirectional": False}, "needs causal=True, cross=False"),
        ({"bidirectional": False, "causal": True, "cross": True}, "needs causal=True, cross"),
    ],
)
def test_claims_of_another_type_are_rejected(wrong, complaint, no_type_checks):
    with pytest.raises(TypeError, match=complaint):
        replace(NOTHING, **wrong)


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({"traits": {"causal": False}}, "Mine.traits is a dict; make it a Traits"),
        ({"traits": None}, "Mine.traits is a NoneType; make it a Traits"),
        ({"expected_failures": ["lengths"]}, "Mine.expected_failures is a list; make it a Mapping"),
        ({"family": "kernal"}, "Mine: unknown family 'kernal'; did you mean 'kernel'?"),
        ({"identities": "softmax"}, "Mine.identities is a str; make it a tuple"),
        ({"unchecked": True}, "Mine.unchecked is a bool; make it a str"),
    ],
)
def test_class_attributes_of_another_type_are_rejected(attributes, complaint):
    with pytest.raises(TypeError, match=complaint):
        type("Mine", (First,), attributes)


def test_sizes_traits_and_losses_are_immutable():
    assert SIZE.head_dim == 3
    with pytest.raises(FrozenInstanceError):
        SIZE.dim = 7
    with pytest.raises(FrozenInstanceError):
        NOTHING.causal = True
    losses = Attended(torch.zeros(1, 1, 1)).losses
    assert len(losses) == 0
    with pytest.raises(TypeError):
        losses["ksvd"] = torch.zeros(())


def test_a_layer_without_a_forward_cannot_be_built():
    class Nothing(Attention):
        traits = NOTHING

    with pytest.raises(TypeError, match="abstract"):
        Nothing(SIZE)


def test_variants_with_a_trait_are_those_that_claim_it():
    causal = names_with("causal").split(", ")
    assert "softmax" in causal
    assert causal == [name for name, variant in variants.items() if variant.traits.causal]


class CausalOnly(First):
    traits = replace(NOTHING, causal=True, bidirectional=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: First(replace(SIZE, causal=True)),
            f"First is not causal; causal variants: {names_with('causal')}",
        ),
        (
            lambda: CausalOnly(SIZE),
            f"CausalOnly is causal only; bidirectional variants: {names_with('bidirectional')}",
        ),
        (
            lambda: First(SIZE)(torch.randn(1, 4, 6), torch.randn(1, 4, 6), None),
            "First attends to its input only; variants with cross-attention: "
            + names_with("cross"),
        ),
    ],
)
def test_what_is_not_claimed_is_rejected_with_the_names_of_others(call, message):
    with pytest.raises(Unsupported) as error:
        call()
    assert str(error.value) == message


BOTH = [name for name, of in variants.items() if of.traits.causal and of.traits.cross]


@pytest.mark.parametrize("name", BOTH)
def test_a_causal_layer_rejects_a_context_of_another_length(name):
    layer = variants.find(name)(replace(SIZE, causal=True, max_len=16))
    with pytest.raises(
        Unsupported, match=f"^causal {name} got 5 queries and 11 keys; give as many"
    ):
        layer(torch.randn(2, 5, 6), torch.randn(2, 11, 6), None)


@pytest.mark.parametrize("upcast", [True, False])
def test_upcast_gives_fp32_without_autocast_and_returns_the_dtype_of_the_layer(upcast):
    class Recorded(First):
        def attend(self, q, k, v, mask):
            self.autocast = torch.is_autocast_enabled("cpu")
            return super().attend(q, k, v, mask)

    Recorded.upcast = upcast
    layer, x = Recorded(SIZE), torch.randn(2, 4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        tokens = layer(x, x, None).tokens
    assert tokens.dtype == torch.bfloat16
    assert layer.autocast is not upcast
    expected = torch.float32 if upcast else torch.bfloat16
    assert {part.dtype for part in layer.arguments[:3]} == {expected}
    layer, x = layer.double(), x.double()
    assert layer(x, x, None).tokens.dtype == torch.float64
    assert {part.dtype for part in layer.arguments[:3]} == {torch.float64}


EVEN = replace(SIZE, dim=8, max_len=16)
EVERY = [name for name, variant in variants.items() if not variant.unchecked]


TOKENS, REAL = torch.randn(2, 9, 8), torch.ones(2, 9, dtype=torch.bool)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TOKENS, REAL), r"^context is boolean; .*layer\(x, mask=mask\)$"),
        ((TOKENS, None, REAL.float()), "^mask has dtype torch.float32; a mask is .*mask.bool"),
        ((TOKENS, None, REAL.int()), "^mask has dtype torch.int32; a mask is .*mask.bool"),
        *(
            (
                (TOKENS, None, torch.ones(shape, dtype=torch.bool)),
                r"^mask has .* of shape \(2, 9\)$",
            )
            for shape in [(9,), (2, 8), (2, 10), (1, 9), (2, 1), (2, 9, 9)]
        ),
        *(((x,), r"^x has shape .*; give") for x in (TOKENS[0], TOKENS[..., :7], TOKENS[:, :0])),
        ((TOKENS.long(),), r"^x has shape .*; give"),
        ((torch.randn(2, 10, 8),), r"^x has 10 tokens, more than max_len=9; truncate it, or"),
        ((TOKENS, torch.randn(2, 10, 8)), r"^context has 10 tokens, more than max_len=9"),
        ((TOKENS, TOKENS[:1]), "x has 2 samples and context 1"),
        ((TOKENS, TOKENS[..., :3]), "context has shape"),
    ],
)
def test_what_a_layer_cannot_be_called_with_is_rejected(arguments, message):
    layer = variants.find("primal")(replace(EVEN, max_len=9))
    assert layer(TOKENS, mask=REAL).tokens.shape == TOKENS.shape
    with pytest.raises(UserError, match=message):
        layer(*arguments)


@pytest.mark.slow
def test_a_compiled_layer_rejects_more_tokens_than_max_len(no_type_checks):
    layer = torch.compile(variants.find("softmax")(replace(EVEN, max_len=9)), backend="eager")
    for length in (5, 7, 9):  # the second length makes the shape dynamic
        layer(torch.randn(2, length, 8))
    with pytest.raises(UserError, match=r"^x has 10 tokens, more than max_len=9"):
        layer(torch.randn(2, 10, 8))


@pytest.mark.parametrize("parameter", ["query.weight", "out.weight"])
def test_autocast_stays_enabled_behind_the_backward_pass_of_a_part(parameter, no_type_checks):
    layer = variants.find("soft")(replace(SIZE, dim=8))
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            loss = layer(torch.randn(2, 6, 8)).tokens.sum()
            torch.autograd.grad(loss, layer.get_parameter(parameter), retain_graph=True)
            torch.autograd.grad(loss, layer.get_parameter(parameter))
            assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("inside", [True, False])
def test_the_graph_of_a_call_under_autocast_is_released(inside, no_type_checks):
    layer, x = variants.find("soft")(replace(SIZE, dim=8)), torch.randn(2, 6, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        saved = Saved.apply(x)
        node = weakref.ref(saved.grad_fn)
        loss = layer(saved).tokens.sum()
        if inside:
            loss.backward()
    del saved, loss
    assert node() is None


class Saved(torch.autograd.Function):
    """The identity: its node is an object of Python, to which a weak reference is possible."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient


@pytest.mark.parametrize("name", [name for name in EVERY if variants.find(name).decodes()])
def test_steps_may_continue_beyond_max_len(name):
    layer = variants.find(name)(replace(EVEN, max_len=3, causal=True)).eval()
    state = layer.start(2)
    for token in TOKENS.unbind(1):
        output, state = layer.step(token, state)
        assert output.isfinite().all()


def test_arguments_that_are_no_tensors_are_rejected():
    with pytest.raises(UserError, match="x is a ndarray; give a tensor"):
        require_inputs(EVEN, TOKENS.numpy(), TOKENS, None)
    with pytest.raises(UserError, match="mask is a list; give a boolean tensor"):
        require_inputs(EVEN, TOKENS, TOKENS, [[True] * 9] * 2)


def test_a_layer_that_returns_a_tensor_is_rejected(no_type_checks):
    class Bare(First):
        def forward(self, x, context, mask):
            return x

    with pytest.raises(TypeError, match=r"^Bare returned a Tensor; a variant returns zoo.contract"):
        Bare(SIZE)(torch.randn(1, 4, 6))
