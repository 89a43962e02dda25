"""A sample without real tokens, and the options of every variant."""

import inspect

import pytest

from tests.zoo.oracle import DIM, HEADS, gradients, ragged, sides, valid
from zoo.contract import Size
from zoo.projected import ProjectedAttention
from zoo.registry import UserError, options_of, resolve
from zoo.variants import variants

# Layers of published packages treat padding as they do.
OURS = {name: variant for name, variant in variants.items() if not name.endswith("-lib")}
FORMS = [
    pytest.param(variant, causal, id=f"{name}{', causal' * causal}")
    for name, variant in OURS.items()
    if issubclass(variant, ProjectedAttention) and name != "reformer"
    for causal in variant.traits.forms
]


@pytest.mark.parametrize(("variant", "causal"), FORMS)
def test_a_sample_without_real_tokens_gives_zero_and_finite_gradients(variant, causal):
    size = Size(dim=DIM, heads=HEADS, max_len=40, causal=causal, dropout=0.0)
    layer = variant(size).double()
    inputs, mask = sides(layer, 40), ragged(40, first=1)
    mask[0] = False
    out = valid(layer.attend(*inputs, mask), mask)
    assert (out[0] == 0).all()
    assert (out[1] != 0).any()
    assert all(part.isfinite().all() for part in gradients(out, *inputs))


NUMBERS = [
    pytest.param(name, option, id=f"{name}.{option}")
    for name, variant in variants.items()
    for option, parameter in options_of(variant).items()
    if isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool)
]


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_every_number_has_a_lower_bound(name, option):
    with pytest.raises(UserError, match=rf"^{name}\.{option}=-9 must be (at least|above|an|a) "):
        resolve(name, variants.find(name), {option: -9})


@pytest.mark.parametrize(
    ("name", "option", "rule"),
    [
        ("gated-linear", {"chunk": 48}, "chunk=48 must be a power of two; try 64"),
        ("gated-linear", {"temperature": 0}, "temperature=0 must be above 0"),
        ("nystrom", {"conv": "4"}, "conv=4 must be an odd number of taps, or 0 for none"),
        ("linear", {"chunk": 0}, "chunk=0 must be at least 1; raise it"),
    ],
)
def test_a_value_out_of_range_is_rejected_with_its_rule(name, option, rule):
    with pytest.raises(UserError, match=rf"^{name}\.{rule}"):
        resolve(name, variants.find(name), option)


@pytest.mark.parametrize("name", OURS)
def test_the_docstring_names_every_option(name):
    text = (inspect.getdoc(variants.find(name).__init__) or "").replace("`", "")
    assert all(f"{option}: " in text for option in options_of(variants.find(name)))
