"""Wrong calls of the public functions and classes, each of which is a `UserError` of one line."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import harness
import tasks
import zoo
from zoo.registry import UserError

NAN, INF, HUGE = math.nan, math.inf, 10**30

SIZE: dict[str, Any] = {"dim": 16, "heads": 2, "max_len": 32}
CAUSAL = {**SIZE, "causal": True}
Q = torch.zeros(2, 2, 8, 4)
X, TOKEN = torch.zeros(2, 8, 16), torch.zeros(2, 16)
REAL = torch.ones(2, 8, dtype=torch.bool)

LAYER = zoo.create("softmax", **SIZE)
ENCODER = zoo.EncoderLayer(LAYER, feed_forward=8)
TASK = tasks.create("mqar", max_len=16, pairs=2, train=8, dev=8, test=8)

NO_TEXT = (None, "", 3, NAN, b"none", nn.Linear)
NO_BOOL = (None, 1, 0.0, "yes", NAN)
NO_COUNT = (None, "", "8", 0, -1, 8.0, NAN, INF, True, [8], HUGE)
NO_CHANCE = (None, "0", -1, 1, NAN, INF, True, [0])
NO_OPTION = (None, [3], {}, NAN, "x", -1)
NO_TOKENS = (
    None, "", 3, [[1.0]], X.numpy(), X[0], X[None], X[..., 1:], X[:, :0], X.long(), X.bool(),
    X.double(), torch.zeros(2, 33, 16), X.to("meta"),
)  # fmt: skip
NO_MASK = (
    3, "x", [[True]], REAL.float(), REAL.numpy(), REAL[:, 1:], REAL[:1], REAL[0],
    REAL[None, None, None], REAL.to("meta"),
)  # fmt: skip
NO_TOKEN = (None, "", 3, [1.0], X, TOKEN[0], TOKEN[:1], TOKEN[:, 1:], TOKEN.long(), TOKEN.double())
NO_HEADS = (None, "", 3, [1.0], Q.numpy(), Q[0], Q[None], Q[:1], Q[:, :1], Q.long(), Q.double())
NO_BATCH = (None, "", "2", -1, 2.0, NAN, True, [2])
NO_MODEL = (None, "", 3, [], X, nn.Linear, nn.Linear(3, 3))


def decoding(layer: Any) -> dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]]:
    state = layer.start(2)
    wrong = ((), 3, "s", [X], layer.start(3), state[:-1], state[0], (0,))
    name = type(getattr(layer, "attention", layer)).__name__
    name = f"{type(layer).__name__} {name}"
    return {
        f"{name}.start": (layer.start, {"batch": 2}, {"batch": NO_BATCH}),
        f"{name}.step": (
            layer.step, {"x": TOKEN, "state": layer.start(2)}, {"x": NO_TOKEN, "state": wrong}
        ),
        f"{name}.prefill": (
            layer.prefill, {"x": X},
            {"x": NO_TOKENS, "mask": NO_MASK, "state": (*wrong, (*state, TOKEN))},
        ),
    }  # fmt: skip


MHA = nn.Sequential(nn.MultiheadAttention(16, 2, batch_first=True))


def replaced(model: Any = MHA, **keywords: Any) -> Any:
    return zoo.replace(deepcopy(model), **keywords)


RUN = {
    "attention": "none", "task": "mqar", "seeds": [0], "budget": "smoke", "cost": False,
    "mqar": {"train": 32, "dev": 32, "test": 32, "max_len": 16, "pairs": 2},
    "model": {"depth": 1, "dim": 8, "heads": 1, "feed_forward": 8},
    "train": {"steps": 1, "batch": 4}, "precision": "fp32",
}  # fmt: skip

FACES: dict[str, tuple[Callable[..., Any], Mapping[str, Any], Mapping[str, tuple[Any, ...]]]] = {
    "zoo.create": (
        zoo.create, {"variant": "primal", **SIZE},
        {
            "variant": (*NO_TEXT, ["softmax"], LAYER, "softmax+primal", "nope"),
            "dim": (*NO_COUNT, 10**9),
            "heads": (*NO_COUNT, 3), "max_len": NO_COUNT, "causal": NO_BOOL, "rotary": NO_BOOL,
            "dropout": NO_CHANCE, "short_conv": (None, -1, "4", 1.5, NAN), "rank": NO_OPTION,
            "eta": (None, "a", NAN, INF, [0.1]), "sides": (None, 3), "feature_map": (None, 3, "x"),
            "nope": (3,),
        },
    ),
    "zoo.names": (zoo.names, {}, {"causal": NO_BOOL, "losses": (None, ["ksvd"], "x", (1,))}),
    "zoo.check": (lambda **given: zoo.check(**given), {}, {"variant": (*NO_TEXT, LAYER, ["none"])}),
    "zoo.uses": (
        zoo.uses, {"variant": "local"},
        {"variant": (*NO_TEXT, LAYER), "causal": NO_BOOL, "window": NO_OPTION},
    ),
    "zoo.EncoderLayer": (
        zoo.EncoderLayer, {"attention": LAYER, "feed_forward": 8},
        {
            "attention": (None, "softmax", nn.Linear(3, 3), type(LAYER)), "feed_forward": NO_COUNT,
            "dropout": NO_CHANCE, "recompute": (None, True, "all", []),
        },
    ),
    "zoo.EncoderLayer.create": (
        zoo.EncoderLayer.create, {"variant": "softmax", "feed_forward": 8, **SIZE},
        {
            "variant": NO_TEXT, "feed_forward": NO_COUNT, "dim": NO_COUNT,
            "attention_dropout": NO_CHANCE, "nope": (1,),
        },
    ),
    "zoo.TokensOnly": (zoo.TokensOnly, {"layer": LAYER}, {"layer": NO_MODEL}),
    "layer": (LAYER, {"x": X}, {"x": NO_TOKENS, "mask": NO_MASK, "context": NO_TOKENS[1:-1]}),
    "encoder layer": (ENCODER, {"x": X}, {"x": NO_TOKENS, "mask": NO_MASK}),
    "tokens only": (zoo.TokensOnly(ENCODER), {"x": X}, {"x": NO_TOKENS, "mask": NO_MASK}),
    **decoding(zoo.create("softmax", **CAUSAL)),
    **decoding(zoo.create("delta", **CAUSAL, short_conv=4)),
    **decoding(zoo.EncoderLayer.create("primal", feed_forward=8, **CAUSAL)),
    "zoo.functional.attention": (
        zoo.functional.attention, {"variant": "local", "query": Q, "key": Q, "value": Q},
        {
            "variant": (*NO_TEXT, ["local"], "primal"), "query": NO_HEADS, "key": NO_HEADS,
            "value": NO_HEADS,
            "attn_mask": (
                3, "x", [[True]], NAN, REAL.float(), REAL[:, 1:], REAL[None, None, None],
            ),
            "dropout_p": NO_CHANCE, "is_causal": NO_BOOL, "scale": (NAN, INF, "1", [1], True),
            "enable_gqa": NO_BOOL, "mask": NO_MASK, "max_len": (*NO_COUNT[1:], 4),
            "window": NO_OPTION, "nope": (1,),
        },
    ),
    "grouped heads": (
        zoo.functional.softmax, {"query": Q, "key": Q, "value": Q, "enable_gqa": True},
        {"key": (Q[:, :0], Q[:, :1]), "query": (Q[:, :1],)},
    ),
    "zoo.replace": (
        replaced, {"variant": "linear", "max_len": 8},
        {
            "model": NO_MODEL, "variant": (*NO_TEXT, ["linear"], "nope", "primal"),
            "max_len": NO_COUNT, "causal": NO_BOOL, "match": (None, "", 3, ["*"], NAN),
            "nope": (1,),
        },
    ),
    "zoo.transformers.register": (
        zoo.transformers.register, {}, {"variant": (None, 3, ["linear"], "nope", nn.Linear)}
    ),
    "tasks.create": (
        tasks.create, {"name": "mqar"},
        {"name": (*NO_TEXT, ["mqar"], "nope"), "pairs": (*NO_OPTION, HUGE), "nope": (3,)},
    ),
    "task.load": (TASK.load, {"split": "dev"}, {"split": (*NO_TEXT, "nope", ["train"])}),
    "harness.load": (
        harness.load, {},
        {"store": (*NO_TEXT, {}, [], ["nowhere"], [None], ["", "nowhere"], True, "nowhere")},
    ),
    "harness.advise": (
        harness.advise, {"needs": "recall", "length": 4096},
        {
            "needs": (*NO_TEXT, [], ["recall", 3], "nope", [""]), "length": NO_COUNT[:-1],
            "operation": (*NO_TEXT, "trian"), "memory": ("2GiB", -1, NAN, [1]),
            "suite": (*NO_TEXT, "nope"), "store": (3, "nowhere", [], NAN),
        },
    ),
    "harness.cost": (
        harness.cost, {"attention": "none"},
        {
            "attention": (*NO_TEXT, "prima"), "lengths": ([0], [8.5], "8"), "passes": (3, "trian"),
            "device": (None, 3, "tpu", ""),
        },
    ),
    "harness.check": (
        harness.check, {"name": "none", "only": ["lengths"]},
        {"name": (*NO_TEXT, "prima"), "only": (3, ["x"], "causality"), "fast": NO_BOOL},
    ),
    "harness.matrix": (
        harness.matrix, {},
        {"suite": (*NO_TEXT, "nope"), "store": ("", 3, [], "nowhere", ["nowhere"], NAN)},
    ),
    "harness.run": (
        harness.run, RUN,
        {
            "attention": (*NO_TEXT, [], ["none", 3], [None], {"none"}, [["none"]], "nope", [""]),
            "task": (None, 3, ["mqar", 3], [[]], "nope", NAN, [""]),
            "seeds": (
                3, "0", "0-2", [], [-1], [0.5], ["a"], [True], [2**40], range(0), {0: 1},
            ),
            "budget": (*NO_TEXT, "nope"), "positions": (None, 3, "nope", []),
            "precision": (None, 3, "nope", "", []), "device": (None, 3, "tpu", "", []),
            "store": (None, "", 3, [], NAN), "workers": (None, -1, NAN, "2", 1.5, True, HUGE, [1]),
            "threads": (None, -1, NAN, "2", 1.5, True, HUGE), "cost": (*NO_BOOL, "no", []),
            "train": (
                None, 3, "x", [], {"steps": None}, {"steps": -1}, {"steps": NAN}, {"steps": [1]},
                {"nope": 1}, {3: 1}, {"lr": NAN}, {"lr": "1,2"},
            ),
            "model": (None, {"dim": 3.5}, {"depth": True}), "mqar": ({"pairs": [2]},),
            "nope": ({"x": 1}, 3), "linear": ({"chunk": 8},),
        },
    ),
}  # fmt: skip
"""By name: what is called, arguments that it takes, and values that it rejects, by argument."""


@pytest.mark.parametrize(
    ("face", "argument"), [(face, name) for face, (*_, wrong) in FACES.items() for name in wrong]
)
def test_a_wrong_argument_is_one_line(face, argument, tmp_path, monkeypatch, no_type_checks):
    monkeypatch.chdir(tmp_path)
    function, valid, wrong = FACES[face]
    for value in wrong[argument]:
        try:
            function(**{**valid, argument: value})
        except UserError as error:
            assert len(str(error).splitlines()) == 1
        else:
            pytest.fail(f"{argument}={value!r} is accepted")
    assert not [*tmp_path.rglob("*.json")]


@pytest.mark.parametrize("face", sorted(FACES.keys() - {"harness.cost", "harness.matrix"}))
def test_the_other_arguments_of_the_table_are_right(face, tmp_path, monkeypatch, no_type_checks):
    function, valid, wrong = FACES[face]
    if not {"variant", "key"} & wrong.keys() - valid.keys():
        (tmp_path / "runs").mkdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HARNESS_DATA", str(tmp_path))
        function(**valid)


POSITIONAL = [
    *((name, (), {}, f"needs {argument};") for name, argument in (
        ("zoo.create", "variant"), ("zoo.EncoderLayer.create", "variant"), ("zoo.check", "variant"),
        ("zoo.functional.attention", "variant"), ("zoo.TokensOnly", "layer"),
        ("tasks.create", "name"), ("task.load", "split"), ("harness.run", "attention"),
        ("harness.advise", "needs"),
    )),
    ("zoo.create", ("softmax", 16, 2, 8), {}, "takes variant by position; give the others"),
    ("zoo.create", ("softmax",), {"variant": "softmax", **SIZE}, "one variant, not two"),
    ("harness.load", (), {"stor": "runs"}, "did you mean 'store'"),
]  # fmt: skip


@pytest.mark.parametrize(("face", "given", "keywords", "message"), POSITIONAL)
def test_a_missing_or_repeated_argument_is_named(face, given, keywords, message, no_type_checks):
    with pytest.raises(UserError, match=message):
        FACES[face][0](*given, **keywords)


def test_numbers_of_numpy_and_ranges_are_numbers_and_lists(tmp_path, monkeypatch, no_type_checks):
    sizes = {name: np.int64(number) for name, number in SIZE.items()}
    layer = FACES["zoo.create"][0]("softmax", **sizes)
    assert layer.size.dim == 16
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    for seeds in (range(2), np.arange(2), [*np.arange(2)]):
        runs = FACES["harness.run"][0](**RUN | {"seeds": seeds, "store": tmp_path / "runs"})
        assert [*runs["seed"]] == [0, 1]
