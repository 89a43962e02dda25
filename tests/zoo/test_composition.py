"""Stacks of layers by name."""

import pytest

from zoo.composition import Composition, build
from zoo.contract import Size
from zoo.registry import UserError

SIZE = Size(dim=16, heads=2, max_len=20, causal=False, dropout=0.0)


@pytest.mark.parametrize(
    ("text", "depth", "layers"),
    [
        ("primal", 3, "ppp"),
        ("softmax+primal", 4, "sssp"),
        ("primal+softmax", 2, "ps"),
        ("primal*3+softmax", 4, "ppps"),
        ("primal*3+softmax", 8, "pppsppps"),
        ("primal*2+softmax*2", 4, "ppss"),
        ("(primal+softmax)*2", 4, "psps"),
        ("(primal*2+softmax)*2+linear", 7, "ppsppsl"),
        ("primal*2", 6, "pppppp"),
    ],
)
def test_a_pattern_gives_layers_one_by_one_and_repeats(text, depth, layers):
    kinds = {"p": "primal", "s": "softmax", "l": "linear"}
    assert Composition.parse(text).layers(depth) == tuple(kinds[letter] for letter in layers)


def test_the_layers_share_no_parameter():
    stack = build(("softmax",) * 3, SIZE, {})
    parameters = [p for layer in stack for p in layer.parameters()]
    assert len({id(p) for p in parameters}) == len(parameters) == 3 * 6


def test_options_go_to_the_variant_that_they_are_for():
    options = {"primal": {"rank": 5}, "nystrom": {"landmarks": 3}}
    body, last = build(("nystrom", "primal"), SIZE, options)
    assert body.landmarks == 3
    assert last.scales.shape[-1] == 5


def test_resolved_options_are_complete():
    actual = Composition.parse("softmax+primal").resolve({"primal": {"rank": "5"}, "nystrom": {}})
    assert actual.keys() == {"softmax", "primal"}
    assert actual["softmax"] == {"backend": "auto"}
    assert actual["primal"]["rank"] == 5
    assert actual["primal"]["eta"] == 0.1


def test_changed_options_are_those_that_differ_from_the_defaults():
    options = {"primal": {"rank": "5", "eta": 0.1}}
    assert Composition.parse("softmax+primal").changed(options) == {
        "softmax": {}, "primal": {"rank": 5},
    }  # fmt: skip


BAD = {
    "sofmax": "unknown attention variant 'sofmax'; did you mean 'softmax'",
    "softmax+primel": "unknown attention variant 'primel'; did you mean 'primal'",
    "softmax+": "names 1 variants, not one or two; give A or A",
    "softmax+primal+softmax": "names 3 variants, not one or two; give A or A",
    "softmax*3+": "the end in place of a variant",
    "softmax*+primal": "'\\+' is no count",
    "softmax*0": "'0' is no count",
    "softmax*2000": "'2000' is no count",
    "(softmax*40)*40": "'40' is no count",
    "softmax*2**3": "'\\*' is no count",
    "(softmax+primal": "a parenthesis is not closed",
    "softmax*2)": "unexpected '\\)'",
    "()*2": "'\\)' in place of a variant",
    "softmax*2+primel": "unknown attention variant 'primel'",
    "primal+primal": "'primal\\+primal' names primal twice; give 'primal'",
    "softmax+primal": r"depth=1 is less than the 2 variants of softmax\+primal",
    "primal*3+softmax": "depth=1 is no multiple of the 4 layers .* depth=4",
}


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
