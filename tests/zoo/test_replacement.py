"""`zoo.replace`: the attention layers of a model, replaced by variants."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import zoo

D, H, N = 32, 4, 9
PAD = torch.arange(N) >= torch.tensor([[N], [5], [7]])
FUTURE = nn.Transformer.generate_square_subsequent_mask(N)


class Attention(nn.Module):
    def __init__(self, *, scale=1.0, norm=False, drop=0.0, other_drop=None) -> None:
        super().__init__()
        self.num_heads, self.scale = H, scale
        self.qkv, self.proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.q_norm = nn.LayerNorm(D // H) if norm else nn.Identity()
        self.other = nn.Identity() if other_drop is None else nn.Dropout(other_drop)
        self.attn_drop, self.proj_drop = nn.Dropout(drop), nn.Dropout(0.5)

    def forward(self, x, attn_mask=None, is_causal=False):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        q = self.other(self.q_norm(q)) * self.scale
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=is_causal)
        return self.proj_drop(self.proj(heads.transpose(1, 2).flatten(2)))


def encoder(
    *, batch_first: bool = True, norm_first: bool = False, dropout: float = 0.0
) -> nn.Module:
    options = {"batch_first": batch_first, "norm_first": norm_first}
    layer = nn.TransformerEncoderLayer(D, H, 64, dropout, **options)
    nested = batch_first and not norm_first
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_softmax_in_an_encoder_of_pytorch_changes_nothing(batch_first, norm_first):
    model = encoder(batch_first=batch_first, norm_first=norm_first)
    causal, full = copy.deepcopy(model), copy.deepcopy(model)
    replaced = zoo.replace(full, "softmax", max_len=N)
    paths = [f"layers.{i}.self_attn" for i in range(2)]
    assert replaced == [(path, "MultiheadAttention", "softmax") for path in paths]
    zoo.replace(causal, "softmax", max_len=N, causal=True)
    local = copy.deepcopy(model)
    zoo.replace(local, "local", max_len=N)  # has no cross-attention
    assert local(torch.randn(N, N, D)).shape == (N, N, D)
    x = torch.randn(3, N, D) if batch_first else torch.randn(N, 3, D)
    real = ~PAD if batch_first else ~PAD.T
    added = torch.zeros(3, N).where(~PAD, -torch.inf)
    for other, options in (
        (full, {}),
        (full, {"src_key_padding_mask": PAD}),
        (causal, {"mask": FUTURE, "is_causal": True}),
        (causal, {"mask": FUTURE, "src_key_padding_mask": added}),
    ):
        torch.testing.assert_close(other(x, **options)[real], model(x, **options)[real])


ONE = [
    {}, {"key_padding_mask": PAD[1]}, {"attn_mask": FUTURE},
    {"attn_mask": FUTURE.expand(H, N, N), "key_padding_mask": PAD[1]},
]  # fmt: skip


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", ONE, ids="-".join)
def test_one_sequence_without_a_batch_gives_what_it_gives_in_pytorch(batch_first, options):
    model = nn.Sequential(nn.MultiheadAttention(D, H, batch_first=batch_first).eval())
    x, context = torch.randn(N, D), torch.randn(5, D)
    if "key_padding_mask" in options:  # of one type, as PyTorch asks for
        options = options | {"key_padding_mask": torch.zeros(N).where(~PAD[1], -torch.inf)}
    calls = [((x, x, x), options)] + [((x, context, context), {})] * (not options)
    expected = [model[0](*inputs, **keywords)[0] for inputs, keywords in calls]
    zoo.replace(model, "softmax", max_len=N, causal="attn_mask" in options)
    actual = [model[0](*inputs, **keywords)[0] for inputs, keywords in calls]
    torch.testing.assert_close(actual, expected)


def test_cross_attention_of_a_decoder():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, 64, 0.0, batch_first=True), 1)
    x, memory = torch.randn(3, N, D), torch.randn(3, 5, D)
    expected = model(x, memory, tgt_mask=FUTURE, memory_key_padding_mask=PAD[:, :5])
    zoo.replace(model, "softmax", max_len=N, causal=True, match="*.self_attn")
    zoo.replace(model, "softmax", max_len=N, match="*.multihead_attn")
    actual = model(x, memory, tgt_mask=FUTURE, memory_key_padding_mask=PAD[:, :5])
    torch.testing.assert_close(actual, expected)


def test_another_variant_takes_the_projections_and_trains():
    model = encoder()
    model.layers[1].self_attn.in_proj_weight.requires_grad_(False)
    old = copy.deepcopy(model.layers[0].self_attn)
    zoo.replace(model, "linear", max_len=N, chunk=4)
    layer = model.layers[0].self_attn.layer
    assert layer.name() == "linear" and layer.chunk == 4
    joint = torch.cat([layer.query.weight, layer.context.weight])
    assert torch.equal(joint, old.in_proj_weight)
    assert torch.equal(layer.out.bias, old.out_proj.bias)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert [name.split("layer.")[-1] for name in frozen] == ["query.weight", "context.weight"]
    model.train()(torch.randn(3, N, D), src_key_padding_mask=PAD).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_timms_attention_is_replaced(timm):
    x, mask = torch.randn(3, N, D), ~PAD[:, None, None]
    for options in ({}, {"qkv_bias": True, "proj_drop": 0.5}):
        for causal in (False, True):
            given = {"is_causal": True} if causal else {"attn_mask": mask}
            model = nn.Sequential(timm.layers.Attention(D, H, **options)).eval()
            expected = model[0](x, **given)
            replaced = zoo.replace(model, "softmax", max_len=N, causal=causal)
            assert replaced == [("0", "Attention", "softmax")]
            torch.testing.assert_close(model[0](x, **given), expected)
            assert not options or not torch.equal(model.train()[0](x, **given), expected)
        with pytest.raises(zoo.Unsupported):
            model[0](x, attn_mask=mask)


class Classes(Attention):
    def forward(self, x):
        return super().forward(x)[:, :1]


MULTIHEAD = partial(nn.MultiheadAttention, D, H)
REFUSED = [
    (Attention(), "primal", {}), (Attention(), "reformer", {}), (Attention(drop=0.1), "linear", {}),
    (Attention(scale=0.5), "linear", {}), (Attention(norm=True), "linear", {}),
    (Attention(other_drop=0.1), "linear", {}), (Classes(), "linear", {}),
    (MULTIHEAD(kdim=5), "linear", {}), (MULTIHEAD(add_zero_attn=True), "linear", {}),
    (MULTIHEAD(add_bias_kv=True), "linear", {}), (Attention(), "taylor", {"feature_dim": 3}),
    (Attention(), "local", {"match": "encoder.*"}), (Attention(), "local", {"windw": 3}),
]  # fmt: skip
"""Other projections, dropout, scales, norms, queries, widths or keys, and wrong options."""


@pytest.mark.parametrize(("module", "variant", "options"), REFUSED)
def test_what_cannot_be_honoured_leaves_the_model_as_it_was(module, variant, options):
    model = nn.Sequential(Attention(), module)
    before = list(model)
    with pytest.raises(zoo.UserError):
        zoo.replace(model, variant, max_len=N, **options)
    assert all(new is old for new, old in zip(model, before, strict=True))
    assert zoo.replace(model[:1], "taylor", max_len=N, feature_dim=D // H)


CALLS = [
    lambda model, x: model(x, x, x.clone()), lambda model, x: model(x, x, x, attn_mask=FUTURE),
    lambda model, x: model(x, x, x, attn_mask=torch.ones(N, N)),
    lambda model, x: model(x, x, x, attn_mask=torch.eye(N, dtype=torch.bool)),
    lambda model, x: model(*[torch.cat([x, x], 1)] * 3),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_cannot_be_honoured_are_refused(call):
    model, x = nn.Sequential(nn.MultiheadAttention(D, H, batch_first=True)), torch.randn(3, N, D)
    zoo.replace(model, "linear", max_len=N)
    out, weights = model[0](x, x, x)
    assert out.shape == (3, N, D) and weights is None
    with pytest.raises(zoo.UserError):
        call(model[0], x)


def test_a_causal_layer_in_two_places_is_one_layer_and_refuses_to_attend_to_all():
    shared = Attention()
    model = nn.Sequential(shared, nn.Sequential(shared))
    zoo.replace(model, "linear", max_len=N, causal=True)
    assert model[0] is model[1][0] and not isinstance(model[0], Attention)
    assert model(torch.randn(3, 1, D)).shape == (3, 1, D)
    with pytest.raises(zoo.Unsupported):
        model(torch.randn(3, N, D))
