"""Variants as attention implementations of transformers: tiny models with random weights."""

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import zoo
from zoo.contract import variants
from zoo.functional import padded, single, way_of_last
from zoo.transformers import attend, padding_mask, register

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs the extra 'transformers'"
)
N = 13
IDS = torch.arange(3 * N).reshape(3, N) * 7 % 59 + 1
PADDED = (torch.arange(N) >= torch.tensor([[0], [4], [9]])).long()
SIZES = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
GPT_OSS = GROUPED | {
    "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def library(transformers) -> ModuleType:
    register("local", window=1)
    register("softmax", backend="naive")
    register()
    return transformers


@pytest.fixture
def make(library):
    def build(name: str, reference: str = "sdpa", **settings) -> nn.Module:
        config = getattr(library, name.split("For")[0].removesuffix("Model") + "Config")
        torch.manual_seed(0)
        model = getattr(library, name)(config(attn_implementation=reference, **settings))
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                nn.init.normal_(parameter)
        return model.eval()

    return build


MODELS = [
    ("LlamaForCausalLM", "sdpa", GROUPED), ("GptOssForCausalLM", "eager", GPT_OSS),
    ("BertModel", "sdpa", SIZES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reference", "settings"), MODELS)
def test_softmax_equals_the_attention_of_the_model(make, name, reference, settings):
    model = make(name, reference, **settings)
    for mask in (PADDED, PADDED.flip(1), None):
        outputs = []
        for implementation in (reference, "zoo-softmax", "zoo-softmax[backend=naive]"):
            model.set_attn_implementation(implementation)
            outputs.append(model(input_ids=IDS, attention_mask=mask)[0])
        real = torch.ones_like(PADDED) if mask is None else mask
        expected, *actual = (output[real.bool()] for output in outputs)
        if name != "GptOssForCausalLM":
            model.set_attn_implementation("zoo-local[window=1]")
            other = model(input_ids=IDS, attention_mask=mask)[0][real.bool()]
            assert (other - expected).abs().max() > 1e-3
        for output in actual:
            torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("name", "reference", "settings", "options"), [
    (*MODELS[0], {"cache_implementation": "static"}), (*MODELS[1], {"num_beams": 2}),
])  # fmt: skip
def test_generation_is_equal_token_for_token(make, name, reference, settings, options):
    model = make(name, reference, **settings)
    tokens = []
    for implementation in (reference, "zoo-softmax"):
        model.set_attn_implementation(implementation)
        tokens.append(model.generate(
            IDS, attention_mask=PADDED, max_new_tokens=15, do_sample=False, **options
        ))  # fmt: skip
    assert torch.equal(*tokens) and tokens[0].shape == (3, N + 15)


def can(name: str) -> bool:
    try:
        way_of_last(name, (), (4, 8, 64), True)
    except zoo.UserError:
        return False
    return True


@pytest.mark.parametrize("name", [*filter(can, variants.names())])
def test_a_cache_changes_no_output(make, name):
    model = make("LlamaForCausalLM", f"zoo-{name}", **GROUPED)
    expected = model(input_ids=IDS, attention_mask=PADDED, use_cache=False).logits
    cache, outputs = None, []
    for part in (slice(0, 9), slice(9, 12), slice(12, 13)):  # the last alone
        inputs = {"input_ids": IDS[:, part], "attention_mask": PADDED[:, : part.stop]}
        output = model(**inputs, cache=cache, use_cache=True)
        cache = output.cache
        outputs.append(output.logits)
    actual, real = torch.cat(outputs, 1), PADDED.bool()
    torch.testing.assert_close(actual[real], expected[real], rtol=0, atol=1e-5)


def test_a_single_query_is_cheap_where_no_weight_depends_on_positions():
    for way, names in {single: ("linear", "softmax"), padded: ("cosformer", "local")}.items():
        assert {way_of_last(name, (), (4, 8, 64), True) for name in names} == {way}


def test_gradients_and_dropout_reach_the_variant(make):
    model = make("LlamaForCausalLM", "zoo-linear", **GROUPED).train()
    model(input_ids=IDS, attention_mask=PADDED, labels=IDS).loss.backward()
    assert all(p.grad.any() for p in model.model.layers[0].self_attn.parameters())
    dropping = make("LlamaForCausalLM", "zoo-softmax", attention_dropout=0.5, **GROUPED).train()
    assert not torch.equal(*(dropping(input_ids=IDS).logits for _ in range(2)))
    dropping.set_attn_implementation("zoo-linear")
    with pytest.raises(zoo.Unsupported):  # linear drops no weights
        dropping(input_ids=IDS)


def test_cross_attention_is_computed_or_refused(make):
    settings = {
        "vocab_size": 60, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40, "max_position_embeddings": 64, "pad_token_id": 0,
    }  # fmt: skip
    model = make("BartModel", **settings)
    inputs = {"input_ids": IDS, "attention_mask": PADDED, "decoder_input_ids": IDS[:, :5]}
    expected = model(**inputs)[0]
    model.set_attn_implementation("zoo-softmax")
    torch.testing.assert_close(model(**inputs)[0], expected, rtol=0, atol=1e-6)
    model.set_attn_implementation("zoo-local")
    for length in (5, N):  # as many queries as keys, too
        with pytest.raises(zoo.Unsupported):
            model(**inputs | {"decoder_input_ids": IDS[:, :length]})


PACKED = torch.tensor([[*range(5), *range(7), 0], [*range(9), *range(4)], [*range(13)]])


def separate(model, inputs=IDS, positions=PACKED) -> torch.Tensor:
    """The logits of every sequence alone, in its place."""
    rows = []
    for row, at in zip(inputs, positions, strict=True):
        parts = row.tensor_split([*(at == 0).nonzero()[1:, 0]])
        rows.append(torch.cat([model(part[None], use_cache=False).logits[0] for part in parts]))
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("name", "reference", "settings", "variant"),
    [(*model, "softmax") for model in MODELS[:2]]
    + [(*MODELS[0], variant) for variant in ("linear", "local[window=1]")],
)
def test_packed_position_ids_are_sequences_with_a_cache_or_without(
    make, name, reference, settings, variant
):
    model = make(name, f"zoo-{variant}", **settings)
    expected, mask = separate(model), torch.ones_like(IDS)
    outputs = [
        model(IDS, position_ids=PACKED, use_cache=cache, attention_mask=given).logits
        for cache in (False, True)
        for given in (None, mask)
    ]
    if variant == "softmax" and reference == "sdpa":  # GPT-OSS gives no positions to its masks
        model.set_attn_implementation(reference)
        outputs.append(model(IDS, position_ids=PACKED, use_cache=False).logits)
    for output in outputs:
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)


def test_a_packed_prompt_is_continued_from_a_state_and_not_from_a_cache_of_keys(make, replaced):
    cached = make("LlamaForCausalLM", "zoo-softmax", **GROUPED)
    cache = cached(IDS, position_ids=PACKED, use_cache=True).cache
    after = PACKED[:, -1:] + 1
    for ids, positions in ((IDS[:, :1], after), (IDS[:, :2], torch.tensor([[1, 0]]).expand(3, 2))):
        with pytest.raises(zoo.Unsupported, match="a cache of packed sequences"):
            cached(ids, position_ids=positions, cache=cache, use_cache=True)
    model = replaced("gated-delta", short_conv=4)
    output = model(IDS, position_ids=PACKED, use_cache=True)
    torch.testing.assert_close(output.logits, separate(model), rtol=0, atol=1e-5)
    # The first row continues and has another sequence; the second begins anew; the third continues.
    positions = torch.tensor([[1, 0, 1], [0, 1, 2], [13, 14, 15]])
    every = model(IDS[:, :3], position_ids=positions, cache=output.cache, use_cache=True).logits
    expected = separate(model, torch.cat([IDS, IDS[:, :3]], 1), torch.cat([PACKED, positions], 1))
    torch.testing.assert_close(every, expected[:, N:], rtol=0, atol=1e-5)
    # Padding has a position of its own.
    hidden, positions = PADDED.clone(), torch.where(PADDED.bool(), PACKED, 1)
    output = model(IDS, attention_mask=hidden, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(output[1, 9:], separate(model)[1, 9:], rtol=0, atol=1e-5)


def prefix(batch, head, query, key):
    return key < 3


def vectorised(batch, head, query, key):
    return torch.stack([query, key]).amax() == query


BLOCKS, POSITIONS = torch.arange(N).expand(3, N) // 5, torch.arange(N)[None] % 7


@pytest.mark.parametrize(("mask", "options", "named"), [
    ("sliding_window_causal", {}, "sliding_window_overlay"),
    ("chunked_causal", {}, "chunked_overlay"), ("causal", {"or_mask_function": prefix}, "prefix"),
    ("causal", {"block_sequence_ids": BLOCKS}, "blockwise_overlay"),
    ("sliding_window_causal", {"position_ids": POSITIONS}, "packed_sequence_mask_function"),
    ("causal", {"and_mask_function": vectorised}, ""),
])  # fmt: skip
def test_masks_that_are_no_padding_are_refused_by_name(library, mask, options, named):
    windows = {"sliding_window": 4, "attention_chunk_size": 4}
    config = library.LlamaConfig(attn_implementation="zoo-softmax", **GROUPED, **windows)
    create, x = getattr(library.masking_utils, f"create_{mask}_mask"), torch.zeros(3, N, 32)
    if not named:  # A function of the user that is causal is honoured.
        assert torch.equal(create(config, x, PADDED, cache=None, **options), PADDED.bool())
        return
    with pytest.raises(zoo.Unsupported, match=named):
        create(config, x, None, cache=None, **options)
    if not options:  # What hides no key is no window.
        assert create(config, x[:, :4], None, cache=None).all()


PAST = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
TREE = PAST.clone()
TREE[..., 9:, 5:9] = False
TREE |= torch.eye(N, dtype=torch.bool)


def test_prepared_masks_are_refused_unless_they_are_causal(make):
    model = make("LlamaForCausalLM", "zoo-softmax", **GROUPED)
    for mask in (TREE, torch.zeros(1, 1, N, N), torch.cat([PAST, PAST, PAST, PAST.mT], 1)):
        with pytest.raises(zoo.Unsupported):
            model(input_ids=IDS, attention_mask=mask)
    mask = PAST & PADDED.bool()[:, None, None]
    actual, expected = (model(input_ids=IDS, attention_mask=m).logits for m in (mask, PADDED))
    torch.testing.assert_close(actual[PADDED.bool()], expected[PADDED.bool()], rtol=0, atol=1e-6)


@pytest.mark.parametrize("arguments", [
    {"softcap": 30.0}, {"s_aux": torch.zeros(2)}, {"position_bias": torch.zeros(1, 2, 5, 5)},
    {"cu_seq_lens_q": torch.tensor([0, 5])}, {"output_attentions": True}, {"sliding_window": 3},
    {"dropout": 0.1}, {"attention_mask": object()},
], ids=lambda arguments: next(iter(arguments)))  # fmt: skip
def test_arguments_of_attention_are_refused(arguments):
    heads = torch.randn(3, 1, 2, 5, 8)
    inputs = {"attention_mask": None, "position_ids": torch.arange(5)[None]}
    attend("linear", (), nn.Identity(), *heads, **inputs)
    with pytest.raises(zoo.Unsupported):
        attend("linear", (), nn.Identity(), *heads, **inputs | arguments)


def test_queries_without_a_known_position_and_too_many_tokens_are_refused():
    k = torch.randn(1, 2, 5, 8)
    for q in (k[:, :, :3], k[:, :, :1]):  # a mask, or the number of positions, is missing
        with pytest.raises(zoo.Unsupported):
            attend("linear", (), nn.Identity(), q, k, k, None)
    with pytest.raises(zoo.Unsupported):  # a cache that has dropped keys
        padding_mask(1, 1, 16, q_offset=17, kv_offset=2)
    module = nn.Identity()
    module.config = SimpleNamespace(max_position_embeddings=4)
    with pytest.raises(zoo.UserError):
        attend("linear", (), module, k, k, k, None)


def test_what_is_no_function_of_q_k_and_v_is_not_registered(library, monkeypatch):
    registered = register()
    for name in ("primal", "linformer", "cosine", "reformer"):
        assert f"zoo-{name}" not in registered
        with pytest.raises(zoo.Unsupported):
            register(name)
    with pytest.raises(zoo.UserError):
        register("local", windw=3)
    monkeypatch.setitem(sys.modules, "transformers.modeling_utils", None)
    with pytest.raises(zoo.Unsupported, match="pip install transformers"):
        register()


@pytest.mark.parametrize(("variant", "remedy"), [
    ("ssd", r"zoo\.transformers\.replace\(model, 'ssd'\)"), ("linformer", "choose another"),
])  # fmt: skip
def test_a_model_with_what_is_no_function_of_q_k_and_v_names_the_way(make, variant, remedy):
    model = make("LlamaForCausalLM", f"zoo-{variant}", **GROUPED)
    with pytest.raises(zoo.Unsupported, match=remedy):
        model(IDS)


@pytest.fixture
def replaced(make):
    def build(name: str, **options) -> nn.Module:
        torch.manual_seed(0)
        model = make("LlamaForCausalLM", **GROUPED).eval()
        assert len(zoo.transformers.replace(model, name, **options)) == 2
        return model

    return build


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", ["gated-delta", "cosine", "primal-moments", "taylor"])
def test_a_replaced_decoder_generates_from_its_state_what_it_generates_without(name, replaced):
    model = replaced(name, short_conv=4)
    length = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    settings, ids = {"attention_mask": PADDED, **length}, IDS * PADDED
    for beams in (1, 3):
        expected = model.generate(ids, use_cache=False, num_beams=beams, **settings)
        assert torch.equal(model.generate(ids, num_beams=beams, **settings), expected)
    alone, together = model.generate(ids[2:, 9:], **length), model.generate(ids, **settings)
    assert torch.equal(alone[0, 4:], together[2, N:])
    assert torch.equal(model.train().generate(ids, **settings), together)


def test_a_replaced_decoder_trains_unless_a_loss_would_be_dropped(replaced):
    model = replaced("gated-delta").train()
    model(IDS, labels=IDS).loss.backward()
    assert all(p.grad is not None for p in model.model.layers[0].self_attn.parameters())
    with pytest.raises(zoo.Unsupported, match="auxiliary loss ksvd"):
        replaced("primal-moments").train()(IDS, labels=IDS)
    with pytest.raises(zoo.UserError, match="does not decode"):
        replaced("nystrom")
    with pytest.raises(zoo.UserError, match="matches 'nothing'"):
        replaced("delta", match="nothing")


def test_a_replaced_decoder_is_saved_by_its_state_alone(replaced, tmp_path):
    model, other = (replaced("ssd", short_conv=4) for _ in range(2))
    for part in (model, model.model):
        with pytest.raises(zoo.Unsupported, match=r"model\.state_dict"):
            part.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    for parameter in other.parameters():
        parameter.data.add_(1.0)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(IDS).logits, other(IDS).logits)
