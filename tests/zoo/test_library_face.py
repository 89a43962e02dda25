"""The public names of `zoo`: `create`, `names`, `check` and `EncoderLayer`."""

import warnings
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from torch import nn

import zoo
import zoo.conformance
from tests.conftest import ROOT, one_line
from zoo.composition import build
from zoo.library import PLACES
from zoo.post_norm import PostNormLayer
from zoo.registry import resolve
from zoo.variants import variants

DIM, HEADS, LENGTH = 16, 2, 40
SIZE = zoo.Size(dim=DIM, heads=HEADS, max_len=LENGTH, causal=False, dropout=0.0)


def sizes_of(variant, keywords) -> dict:
    causal = variant in zoo.names(bidirectional=False)
    return {"dim": DIM, "heads": HEADS, "max_len": LENGTH, "causal": causal, **keywords}


def create(name: str, **keywords) -> zoo.Attention:
    return zoo.create(name, **sizes_of(name, keywords))


def encoder_layer(name: str, **keywords) -> zoo.EncoderLayer:
    return zoo.EncoderLayer.create(name, feed_forward=24, **sizes_of(name, keywords))


def names(_: str, **traits) -> list[str]:
    return zoo.names(**traits)


def tokens(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, DIM, dtype=dtype)


def ragged() -> torch.Tensor:
    return torch.arange(LENGTH) < torch.tensor([[LENGTH], [7], [25]])


def test_every_public_name_is_found_and_listed_and_packages_have_type_annotations():
    assert all((ROOT / name / "py.typed").is_file() for name in ("zoo", "tasks", "harness"))
    assert set(zoo.__all__) <= set(dir(zoo))
    for name in zoo.__all__:
        public = getattr(zoo, name)
        module = public.__name__ if isinstance(public, ModuleType) else public.__module__
        assert module.startswith("zoo.")
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'cretae'"):
        _ = zoo.cretae


def test_create_builds_the_layer_that_the_class_builds_and_shows_its_options():
    options = resolve("primal", variants.find("primal"), {})
    torch.manual_seed(3)
    expected = variants.find("primal")(SIZE, **options).state_dict()
    torch.manual_seed(3)
    layer = create("primal")
    torch.testing.assert_close(layer.state_dict(), expected, rtol=0, atol=0)
    shown = {f"{option}={value!r}" for option, value in options.items()} | {f"heads={HEADS}"}
    assert shown <= set(layer.extra_repr().split(", "))
    assert build(("primal",), SIZE, {})[0].extra_repr() == layer.extra_repr()


def test_dropout_without_an_effect_is_a_warning_that_names_it():
    with pytest.warns(UserWarning, match="dropout=0.1 of attention weights has no effect on prim"):
        create("primal", dropout=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create("softmax", dropout=0.1)
        create("primal")


def test_layers_in_a_sequential_pass_their_tokens_on_and_a_dropped_loss_is_a_warning():
    layers = [encoder_layer("softmax"), create("linear"), encoder_layer("primal").eval()]
    x = expected = tokens(3, LENGTH)
    for layer in layers:
        expected = layer(expected).tokens
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x.bfloat16()).tokens.isfinite().all()
    model = nn.Sequential(*map(zoo.TokensOnly, layers))
    torch.testing.assert_close(model(x), expected)
    mask = ragged()
    torch.testing.assert_close(model[0](x, mask), layers[0](x, mask).tokens)
    with pytest.warns(UserWarning, match="TokensOnly drops the auxiliary losses ksvd"):
        zoo.TokensOnly(encoder_layer("primal"))


@pytest.mark.parametrize(("build", "name", "keywords", "named"), [
    (create, "agf", {"a": -1.0, "b": -1.0}, "agf.a=-1.0"),
    (create, "primal", {"projections": "dependent", "causal": True}, "projections=dependent"),
    (create, "retention", {"dim": 6}, "dim=6"),
    (create, "mamba3", {"min_step": 1.0}, "mamba3.min_step=1.0"),
    (create, "differential", {"dim": 6, "version": "v1"}, "dim=6"),
    (create, "softmax", {"nhead": 2, "flash": 1}, "nhead is heads, flash is backend"),
    (encoder_layer, "none", {"dim_feedforward": 8}, "dim_feedforward is feed_forward"),
    (names, "", {"casual": True}, "'casual'"),
])  # fmt: skip
def test_what_cannot_be_built_is_rejected_by_name(build, name, keywords, named, no_type_checks):
    with one_line(named):
        build(name, **keywords)


@pytest.mark.parametrize("traits", [{"causal": True, "linear": False}, {"losses": ("ksvd",)}])
def test_names_filters_by_traits(traits):
    every = variants.items()
    expected = [name for name, variant in every if traits.items() <= vars(variant.traits).items()]
    assert zoo.names(**traits) == expected and zoo.names() == variants.names()
    assert 0 < len(expected) < len(variants.names())


class Noisy(variants.find("linear")):
    traits = replace(variants.find("linear").traits, causal=False, recurrent=False)

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + torch.rand(())


USES = [
    ("softmax", True, {"layer", "transformers", "replace", "export", "gpu"}),
    ("linear", False, {"layer", "transformers", "replace", "export"}),
    ("primal", False, {"layer", "export"}),
    ("primal", True, {"layer", "transformers", "export"}),
    ("gated-delta", True, {"layer", "transformers", "export"}), ("fla-gla", True, {"layer", "gpu"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "causal", "works"), USES)
def test_uses_tell_where_a_variant_works_and_why_not_elsewhere(name, causal, works):
    uses = zoo.uses(name, causal=causal)
    assert tuple(uses) == PLACES and all(use.detail for use in uses.values())
    assert {place for place, use in uses.items() if use.works} == works
    with pytest.raises(zoo.Unsupported):
        zoo.uses("delta", causal=False)


def test_check_runs_the_checks_on_a_name_or_a_class_with_options(no_type_checks, monkeypatch):
    chosen = {"eval is deterministic", "rejects non-boolean mask"}
    few = [check for check in zoo.conformance.CHECKS if check.name in chosen]
    monkeypatch.setattr("zoo.conformance.CHECKS", few)
    results = zoo.check("none")
    assert [result.variant for result in results] == ["none"] * 2 + ["none, causal"] * 2
    assert all(result.passed for result in results)
    with one_line("'rank'"):
        zoo.check("none", rank=3)
    failed = [result.check for result in zoo.check(Noisy, chunk=3) if not result.passed]
    assert failed == ["eval is deterministic"]


@pytest.mark.parametrize("kind", [zoo.EncoderLayer, PostNormLayer])
@pytest.mark.parametrize("call", ["__call__", "prefill"])
def test_an_encoder_layer_reads_no_padding(kind, call):
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    layer, x, results = kind(create("linear", causal=True), feed_forward=24), tokens(2, 6), []
    for padding in (0.0, float("nan")):
        inputs = x.masked_fill(~mask[..., None], padding).requires_grad_()
        every, _ = getattr(layer, call)(inputs, mask)
        gradients = torch.autograd.grad(every[mask].sin().sum(), [inputs, *layer.parameters()])
        results.append([every, *gradients])
    torch.testing.assert_close(*results, rtol=0, atol=0)
