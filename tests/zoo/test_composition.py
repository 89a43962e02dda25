"""Stacks of layers by name."""

import pytest

from zoo.composition import Composition, build
from zoo.contract import Size
from zoo.registry import UserError

SIZE = Size(dim=16, heads=2, max_len=20, causal=False, dropout=0.0)


LAYERS = {
    ("primal", 3): "ppp", ("softmax+primal", 4): "sssp", ("primal+softmax", 2): "ps",
    ("primal*3+softmax", 8): "pppsppps", ("primal*2+softmax*2", 4): "ppss",
    ("(primal*2+softmax)*2+linear", 7): "ppsppsl", ("primal*2", 6): "pppppp",
}  # fmt: skip


@pytest.mark.parametrize(("text", "depth"), LAYERS)
def test_a_pattern_gives_layers_one_by_one_and_repeats(text, depth):
    kinds = {"p": "primal", "s": "softmax", "l": "linear"}
    expected = tuple(kinds[letter] for letter in LAYERS[text, depth])
    assert Composition.parse(text).layers(depth) == expected


def test_layers_share_no_parameter_and_options_go_to_the_variant_that_they_are_for():
    layers = ("nystrom", "primal", "primal")
    body, *rest = build(layers, SIZE, {"primal": {"rank": 5}, "nystrom": {"landmarks": 3}})
    assert body.landmarks == 3
    assert [layer.scales.shape[-1] for layer in rest] == [5, 5]
    first, second = ({id(p) for p in layer.parameters()} for layer in rest)
    assert first and not first & second


def test_resolved_options_are_complete_and_changed_ones_differ_from_the_defaults():
    composition, options = Composition.parse("softmax+primal"), {"primal": {"rank": "5"}}
    actual = composition.resolve({**options, "nystrom": {}})
    assert actual.keys() == {"softmax", "primal"}
    assert actual["softmax"] == {"backend": "auto"}
    assert (actual["primal"]["rank"], actual["primal"]["eta"]) == (5, 0.1)
    options["primal"]["eta"] = 0.1
    assert composition.changed(options) == {"softmax": {}, "primal": {"rank": 5}}


BAD = {
    "sofmax": "unknown attention variant 'sofmax'; did you mean 'softmax'",
    "softmax+": "names 1 variants, not one or two; give A or A",
    "softmax+primal+softmax": "names 3 variants, not one or two; give A or A",
    "softmax*3+": "the end in place of a variant", "softmax*+primal": "'\\+' is no count",
    "softmax*0": "'0' is no count", "softmax*2000": "'2000' is no count",
    "(softmax*40)*40": "'40' is no count", "softmax*2**3": "'\\*' is no count",
    "(softmax+primal": "a parenthesis is not closed", "softmax*2)": "unexpected '\\)'",
    "()*2": "'\\)' in place of a variant",
    "primal+primal": "'primal\\+primal' names primal twice; give 'primal'",
    "softmax+primal": r"depth=1 is less than the 2 variants of softmax\+primal",
    "primal*3+softmax": "depth=1 is no multiple of the 4 layers .* depth=4",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_name_and_one_of_more_layers_than_there_are_is_rejected(text):
    with pytest.raises(UserError, match=BAD[text]):
        Composition.parse(text).layers(1)


def test_an_unknown_option_or_one_of_another_type_is_rejected():
    composition = Composition.parse("softmax+primal")
    with pytest.raises(UserError, match="unknown option of primal 'rnk'; did you mean 'rank'"):
        composition.resolve({"primal": {"rnk": 3}})
    with pytest.raises(UserError, match=r"primal\.rank=3\.5 is not of type int"):
        composition.changed({"primal": {"rank": 3.5}})
