"""Options: completed by the signature, converted from text, checked against types and bounds."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from zoo.registry import OMITTED_IF_DEFAULT, UserError, options_of, require_at_least, resolve
from zoo.variants import variants


def cut(
    wood,
    *,
    depth: int,
    speed: float = 1,
    wet: bool = False,
    blade: str = "fine",
    teeth: Literal["wide", "narrow", 3] = "wide",
):
    """A factory with an option of each type."""


DEFAULTS = {"depth": 2, "speed": 1.0, "wet": False, "blade": "fine", "teeth": "wide"}


def test_defaults_complete_what_is_given_in_the_order_of_the_signature():
    resolved = resolve("cut", cut, {"depth": 2})
    assert list(resolved.items()) == list(DEFAULTS.items())
    assert type(resolved["speed"]) is float


def test_resolved_options_resolve_to_themselves():
    assert resolve("cut", cut, DEFAULTS) == DEFAULTS


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("depth", "7", 7),
        ("depth", "-7", -7),
        ("speed", "1e-3", 0.001),
        ("speed", 2, 2.0),
        ("wet", "true", True),
        ("wet", "False", False),
        ("blade", "3", "3"),
        ("teeth", "narrow", "narrow"),
        ("teeth", "3", 3),
    ],
)
def test_text_is_converted_to_the_annotated_type(option, text, value):
    resolved = resolve("cut", cut, {"depth": 2, option: text})[option]
    assert resolved == value
    assert type(resolved) is type(value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("depth", "x"),
        ("depth", True),
        ("depth", 1.5),
        ("depth", 2.0),
        ("depth", "1.5"),
        ("depth", ""),
        ("depth", None),
        ("speed", float("nan")),
        ("speed", "nan"),
        ("speed", float("-inf")),
        ("speed", "inf"),
        ("speed", True),
        ("speed", 10**400),
        ("speed", [1.0]),
        ("wet", "maybe"),
        ("wet", 1),
        ("blade", 3),
        ("blade", True),
    ],
)
def test_a_value_of_another_type_is_rejected_with_value_and_type(option, value):
    with pytest.raises(UserError) as error:
        resolve("cut", cut, {"depth": 2, option: value})
    expected = {
        "depth": "int; give a whole number of 64 bits",
        "speed": "float; give a finite number",
        "wet": "bool; give true or false",
        "blade": "str; give text",
    }[option]
    assert str(error.value) == f"cut.{option}={value} is not of type {expected}"


@pytest.mark.parametrize("value", ["broad", True, 3.0, "WIDE"])
def test_another_choice_is_rejected_with_the_list(value):
    with pytest.raises(UserError) as error:
        resolve("cut", cut, {"depth": 2, "teeth": value})
    expected = f"cut.teeth={value} is not one of wide, narrow, 3; give one of them"
    assert str(error.value) == expected


def test_the_error_of_an_unknown_option_gives_the_most_similar_one():
    with pytest.raises(UserError) as error:
        resolve("cut", cut, {"depht": 2})
    assert str(error.value) == "unknown option of cut 'depht'; did you mean 'depth'?"


def test_a_missing_option_is_named():
    with pytest.raises(UserError, match=r"cut needs the option 'depth'; set cut.depth=VALUE"):
        resolve("cut", cut, {})


def takes_words(wood, *words: str, depth: int = 1): ...


def takes_options(wood, *, depth: int = 1, **rest: int): ...


@pytest.mark.parametrize("factory", [takes_words, takes_options])
def test_a_signature_that_accepts_any_option_is_rejected(factory):
    with pytest.raises(UserError, match="name every option in the signature"):
        resolve("cut", factory, {})


@pytest.mark.parametrize("depth", [str(2**63), str(-(2**63) - 1), 10**20])
def test_a_number_beyond_64_bits_is_rejected(depth):
    with pytest.raises(
        UserError, match=f"cut.depth={depth} is not of type int; give a whole number"
    ):
        resolve("cut", cut, {"depth": depth})


def extended(
    wood, *, depth: int = 1, teeth: Annotated[Literal["wide", "fine"], OMITTED_IF_DEFAULT] = "wide"
): ...


def test_an_option_that_was_added_later_is_left_out_where_it_has_its_default():
    assert resolve("cut", extended, {}) == {"depth": 1}
    assert resolve("cut", extended, {"teeth": "wide"}) == {"depth": 1}
    assert resolve("cut", extended, {"teeth": "fine"}) == {"depth": 1, "teeth": "fine"}


def bad_annotation(wood, *, depth: list[int] | None = None): ...


def no_annotation(wood, *, depth=1): ...


@pytest.mark.parametrize(
    ("factory", "has"), [(bad_annotation, "annotated .*"), (no_annotation, "not annotated")]
)
def test_an_option_without_a_supported_annotation_is_rejected(factory, has):
    with pytest.raises(UserError, match=rf"cut.depth is {has}; annotate it bool, int"):
        resolve("cut", factory, {"depth": 1})


def postponed(wood, *, depth: "int" = 1, teeth: "Literal['wide']" = "wide"): ...


def bounded(
    wood,
    *,
    depth: Annotated[int, Field(ge=1, le=9)] = 1,
    speed: Annotated[float, Field(gt=0, lt=2)] = 1.0,
): ...


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("depth", "0", "must be at least 1; raise it"),
        ("depth", 10, "must be at most 9; lower it"),
        ("speed", 0, "must be above 0.0; raise it"),
        ("speed", "2.5", "must be below 2.0; lower it"),
        ("depth", "x", "is not of type int; give a whole number of 64 bits"),
    ],
)
def test_a_value_out_of_bounds_is_rejected_with_the_bound(option, value, rule):
    with pytest.raises(UserError) as error:
        resolve("cut", bounded, {option: value})
    assert str(error.value) == f"cut.{option}={value} {rule}"


def test_values_within_bounds_are_accepted():
    assert resolve("cut", bounded, {"depth": "9", "speed": "1e-3"}) == {"depth": 9, "speed": 1e-3}


def test_postponed_annotations_are_evaluated():
    assert resolve("cut", postponed, {"depth": "3"}) == {"depth": 3, "teeth": "wide"}


def test_positional_parameters_are_not_options():
    assert "wood" not in options_of(cut)


def test_an_option_below_its_bound_is_rejected():
    require_at_least(1, "cut", depth=1, speed=2)
    with pytest.raises(UserError) as error:
        require_at_least(1, "cut", depth=1, speed=0)
    assert str(error.value) == "cut.speed=0 must be at least 1; raise it"


DEFAULT_OPTIONS = {
    "agf": {"degree": 5, "a": 2.0, "b": -1.0, "reg": 0.01},
    "conv": {"taps": 16},
    "cosformer": {"chunk": 128},
    "cosine": {"chunk": 128},
    "differential": {"version": "v2", "depth": 0},
    "flowformer": {},
    "fox": {},
    "gated-linear": {"gate_rank": 16, "temperature": 16.0, "chunk": 64},
    "linear": {"chunk": 128},
    "linformer": {"rank": 256, "sharing": "headwise"},
    "local": {"window": 64},
    "log-linear": {"levels": 15, "temperature": 16.0, "chunk": 64},
    "longformer": {"window": 64, "global_tokens": 1, "separate": True},
    "mesa": {"chunk": 16},
    "moba": {"block": 64, "topk": 3},
    "none": {},
    "nystrom": {"landmarks": 64, "iterations": 6, "conv": 0},
    "nystrom-lib": {"landmarks": 64, "iterations": 6, "conv": 0},
    "performer": {"features": 256, "orthogonal": True, "redraw": False, "chunk": 128},
    "performer-lib": {"features": 256},
    "primal": {
        "rank": 30,
        "rank_multi": 10,
        "eta": 0.1,
        "projections": "auto",
        "trace": "weights",
        "ksvd_mean": "batch",
        "backend": "auto",
        "feature_map": "cosine",
        "sides": "both",
        "lambda_form": "squared",
        "initialisation": "published",
        "initial_scale": 1.0,
    },
    "reformer": {"bucket": 64, "hashes": 2},
    "reformer-lib": {"bucket": 64, "hashes": 2},
    "retention": {"chunk": 128},
    "rwkv7": {"rank": 32, "chunk": 32},
    "sinks": {"window": 64, "tokens": 4, "learned": False},
    "soft": {"landmarks": 64, "iterations": 20},
    "softmax": {"backend": "auto"},
    "taylor": {"feature_dim": 16, "chunk": 64},
    "yoso": {"tau": 8, "gradient": "exact"},
}
"""Records contain every option: another default makes other runs."""


@pytest.mark.parametrize("name", sorted(DEFAULT_OPTIONS.keys() & {*variants.names()}))
def test_defaults_do_not_change(name):
    defaults = {option: p.default for option, p in options_of(variants.find(name)).items()}
    assert defaults == DEFAULT_OPTIONS[name]
