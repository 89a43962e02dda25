"""Options: completed by the signature, converted from text, checked; stacks of layers by name."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from tests.conftest import one_line
from zoo.composition import Composition, build
from zoo.contract import Size
from zoo.registry import changed, options_of, resolve
from zoo.variants import variants


def cut(wood, *, depth: int, speed: float = 1, wet: bool = False, blade: str = "fine",
        teeth: Literal["wide", "narrow", 3] = "wide"):  # fmt: skip
    """A factory with an option of each type."""


DEFAULTS = {"depth": 2, "speed": 1.0, "wet": False, "blade": "fine", "teeth": "wide"}


def test_defaults_complete_what_is_given_in_the_order_of_the_signature():
    resolved = resolve("cut", cut, {"depth": 2})
    assert list(resolved.items()) == list(DEFAULTS.items())
    assert type(resolved["speed"]) is float
    assert resolve("cut", cut, DEFAULTS) == DEFAULTS
    assert changed(cut, {"depth": 7}) == {"depth": 7}
    defaults = {n: o.default for n, o in options_of(cut).items() if o.default is not o.empty}
    assert changed(cut, defaults) == {} and "wood" not in defaults


CONVERTED = [
    ("depth", "7", 7), ("depth", "-7", -7), ("speed", "1e-3", 0.001), ("speed", 2, 2.0),
    ("wet", "true", True), ("wet", "False", False), ("blade", "3", "3"),
    ("teeth", "narrow", "narrow"), ("teeth", "3", 3),
]  # fmt: skip


@pytest.mark.parametrize(("option", "text", "value"), CONVERTED)
def test_text_is_converted_to_the_annotated_type(option, text, value):
    resolved = resolve("cut", cut, {"depth": 2, option: text})[option]
    assert resolved == value and type(resolved) is type(value)


def takes_words(wood, *words: str, depth: int = 1): ...
def takes_options(wood, *, depth: int = 1, **rest: int): ...
def by_position(wood, depth: int = 1): ...
def bad_annotation(wood, *, depth: list[int] | None = None): ...
def no_annotation(wood, *, depth=1): ...
def postponed(wood, *, depth: "int" = 1, teeth: "Literal['wide']" = "wide"): ...
def bounded(wood, *, depth: Annotated[int, Field(ge=1, le=9)] = 1,
            speed: Annotated[float, Field(gt=0, lt=2)] = 1.0): ...  # fmt: skip


WRONG = {
    "depth": ("x", True, 1.5, 2.0, "1.5", "", None, str(2**63), str(-(2**63) - 1), 10**20),
    "speed": ("nan", float("-inf"), "inf", True, 10**400), "wet": ("maybe", 1),
    "blade": (3, True, "caf\udce9"), "teeth": ("broad", True, 3.0, "WIDE"),
}  # fmt: skip
UNUSABLE = [
    *((cut, {"depth": 2, name: value}, f"cut.{name}={value}")
      for name, values in WRONG.items() for value in values),
    (cut, {"depht": 2}, "'depht'"), (cut, {}, "cut.depth"), (takes_words, {}, "*words"),
    (takes_options, {}, "**rest"), (by_position, {}, "depth: int = 1"),
    (bad_annotation, {"depth": 1}, "list[int] | None"), (no_annotation, {}, "cut.depth"),
    *((bounded, {name: value}, f"cut.{name}={value}")
      for name, value in (("depth", "0"), ("depth", 10), ("speed", 0), ("speed", "2.5"))),
]  # fmt: skip


@pytest.mark.parametrize(("factory", "options", "named"), UNUSABLE)
def test_options_that_a_factory_cannot_take_are_rejected(factory, options, named):
    with one_line(named):
        resolve("cut", factory, options)


def test_bounds_and_postponed_annotations_are_evaluated():
    assert resolve("cut", bounded, {"depth": "9", "speed": "1e-3"}) == {"depth": 9, "speed": 1e-3}
    assert resolve("cut", postponed, {"depth": "3"}) == {"depth": 3, "teeth": "wide"}


OUT_OF_RANGE = [
    *(
        (name, {option: -9})
        for name, variant in variants.items()
        for option, parameter in options_of(variant).items()
        if isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool)
    ),
    ("gated-linear", {"chunk": 48}), ("gated-linear", {"temperature": 0}),
    ("nystrom", {"conv": "4"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), OUT_OF_RANGE)
def test_every_number_has_a_lower_bound_and_a_value_out_of_range_is_rejected(name, options):
    ((option, value),) = options.items()
    with one_line(f"{name}.{option}={value}"):
        resolve(name, variants.find(name), options)


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
    size = Size(dim=16, heads=2, max_len=20, causal=False, dropout=0.0)
    options = {"primal": {"rank": 5}, "nystrom": {"landmarks": 3}}
    body, *rest = build(("nystrom", "primal", "primal"), size, options)
    assert body.landmarks == 3 and [layer.scales.shape[-1] for layer in rest] == [5, 5]
    first, second = ({id(p) for p in layer.parameters()} for layer in rest)
    assert first and not first & second


def test_resolved_options_are_complete_and_changed_ones_differ_from_the_defaults():
    composition, options = Composition.parse("softmax+primal"), {"primal": {"rank": "5"}}
    actual = composition.resolve({**options, "nystrom": {}})
    assert actual.keys() == {"softmax", "primal"}
    assert actual["softmax"] == {"backend": "auto", "gate": "none"}
    assert (actual["primal"]["rank"], actual["primal"]["eta"]) == (5, 0.1)
    options["primal"]["eta"] = 0.1
    assert composition.changed(options) == {"softmax": {}, "primal": {"rank": 5}}


BAD = [
    "sofmax", "softmax+", "softmax+primal+softmax", "softmax*3+", "softmax*+primal", "softmax*0",
    "softmax*2000", "(softmax*40)*40", "softmax*2**3", "(softmax+primal", "softmax*2)", "()*2",
    "primal+primal", "softmax+primal", "primal*3+softmax",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_name_and_one_of_more_layers_than_there_are_is_rejected(text):
    with one_line():
        Composition.parse(text).layers(1)
