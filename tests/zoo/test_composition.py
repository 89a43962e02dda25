"""Stacks of layers by name."""

import pytest

from zoo.composition import Composition, build
from zoo.contract import Size
from zoo.registry import UserError

SIZE = Size(dim=16, heads=2, max_len=20, causal=False, dropout=0.0)


def names(text: str, depth: int, options=None) -> list[str]:
    layers = Composition.parse(text).layers(depth)
    return [layer.name() for layer in build(layers, SIZE, options or {})]


def test_one_name_fills_every_layer():
    assert names("primal", 3) == ["primal"] * 3
    assert names("primal", 1) == ["primal"]


def test_a_plus_b_is_layers_of_a_and_a_last_layer_of_b():
    assert names("softmax+primal", 4) == ["softmax"] * 3 + ["primal"]
    assert names("primal+softmax", 2) == ["primal", "softmax"]


def test_the_layers_share_no_parameter():
    stack = build(("softmax",) * 3, SIZE, {})
    parameters = [p for layer in stack for p in layer.parameters()]
    assert len({id(p) for p in parameters}) == len(parameters) == 3 * 6


def test_each_variant_is_named_once():
    assert Composition.parse("softmax+primal").names == ("softmax", "primal")
    with pytest.raises(UserError, match="'primal\\+primal' names primal twice; give 'primal'"):
        Composition.parse("primal+primal")


def test_options_go_to_the_variant_that_they_are_for():
    given = {"primal": {"rank": 5}, "nystrom": {"landmarks": 3}}
    body, last = build(("nystrom", "primal"), SIZE, given)
    assert body.landmarks == 3
    assert last.scales.shape[-1] == 5


def test_resolved_options_are_complete():
    actual = Composition.parse("softmax+primal").resolve({"primal": {"rank": "5"}, "nystrom": {}})
    assert actual.keys() == {"softmax", "primal"}
    assert actual["softmax"] == {"backend": "auto"}
    assert actual["primal"]["rank"] == 5
    assert actual["primal"]["eta"] == 0.1


def test_changed_options_are_those_that_differ_from_the_defaults():
    given = {"primal": {"rank": "5", "eta": 0.1}}
    assert Composition.parse("softmax+primal").changed(given) == {
        "softmax": {}, "primal": {"rank": 5},
    }  # fmt: skip


BAD = {
    "sofmax": "unknown attention variant 'sofmax'; did you mean 'softmax'",
    "softmax+primel": "unknown attention variant 'primel'; did you mean 'primal'",
    "softmax+": "names 1 variants, not one or two; give A or A",
    "softmax+primal+softmax": "names 3 variants, not one or two; give A or A",
}


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_name_is_rejected(text):
    with pytest.raises(UserError, match=BAD[text]):
        Composition.parse(text)


def test_a_depth_below_the_number_of_variants_is_rejected():
    with pytest.raises(UserError, match=r"depth=1 is less than the 2 variants of softmax\+primal"):
        names("softmax+primal", 1)


def test_an_unknown_option_or_one_of_another_type_is_rejected():
    composition = Composition.parse("softmax+primal")
    with pytest.raises(UserError, match="unknown option of primal 'rnk'; did you mean 'rank'"):
        composition.resolve({"primal": {"rnk": 3}})
    with pytest.raises(UserError, match=r"primal\.rank=3\.5 is not of type int"):
        composition.changed({"primal": {"rank": 3.5}})
