"""Softmax attention against its formula, by xformers, in simple cases, and in blocks of tiles."""

import sys
from functools import partial
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.oracle import DIM, FORMS, HEADS, PADDED, agree, create, qkv, ragged, size
from zoo.contract import Unsupported
from zoo.cost import peak_bytes
from zoo.variants import moba, softmax
from zoo.variants.softmax import Softmax, naive, sdpa, xformers, xformers_failure


@pytest.mark.parametrize("attend", [sdpa, naive])
def test_huge_scores_give_the_value_of_the_best_key(attend):
    q, k, v = (part.detach().float() for part in qkv(4, 9))
    out = attend(1e4 * q, 1e4 * k, v, None, False, 0.0)
    best = (q @ k.mT).argmax(-1)[..., None].expand_as(q)
    torch.testing.assert_close(out, v.gather(2, best))


class LowerTriangularMask:
    pass


@pytest.fixture
def calls(monkeypatch):
    arguments = []

    def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0):
        arguments.append({"query": query, "key": key, "attn_bias": attn_bias, "p": p})
        q, k, v = (part.transpose(1, 2) for part in (query, key, value))
        if isinstance(attn_bias, LowerTriangularMask):
            return naive(q, k, v, None, True, p).transpose(1, 2)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if attn_bias is None else scores + attn_bias).softmax(-1)
        return (F.dropout(weights, p) @ v).transpose(1, 2)

    package, ops = ModuleType("xformers"), ModuleType("xformers.ops")
    ops.memory_efficient_attention = memory_efficient_attention
    ops.LowerTriangularMask = LowerTriangularMask
    monkeypatch.setitem(sys.modules, "xformers", package)
    monkeypatch.setitem(sys.modules, "xformers.ops", ops)
    return arguments


@FORMS
@PADDED
@pytest.mark.parametrize("n", [8, 13])
def test_xformers_equals_the_literal_form_and_gets_an_aligned_bias(n, padded, causal, calls):
    inputs, mask = qkv(n, n), ragged(n) if padded else None
    if padded:
        mask[0] = False
    actual, literal = (by(*inputs, mask, causal, 0.0) for by in (xformers, naive))
    agree(actual, literal, *inputs, slopes=(1e-10, 1e-12))
    bias = calls[0]["attn_bias"]
    assert calls[0]["query"].shape == (2, n, HEADS, 4)
    assert isinstance(bias, LowerTriangularMask) is (causal and not padded)
    if padded:
        assert bias.shape == (2, HEADS, n, n) and bias.dtype == torch.float64
        assert all(stride % 8 == 0 for stride in bias.stride()[:-1]) and bias.stride()[-1] == 1
    xformers(*inputs, None, causal, 0.25)
    assert calls[1]["p"] == 0.25


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_bias_of_xformers_is_finite_in_base_two(dtype):
    q = torch.zeros(1, 1, 1, 4, dtype=dtype)
    bias = softmax.additive_bias(torch.zeros(1, 1, 1, 1, dtype=torch.bool), q, q)
    # exp(x) is computed as 2^(x log2 e), in fp32.
    assert (bias.float() * 1.4427).isfinite().all() and bias.float().exp() == 0


def test_xformers_by_name_is_rejected_where_it_cannot_run(calls, monkeypatch):
    x = torch.randn(2, 9, DIM)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    layer = Softmax(size(), backend="xformers")
    with pytest.raises(Unsupported, match="the tokens are on cpu"):
        layer(x, x, None)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(Unsupported, match="needs a CUDA device"):
            Softmax(size(), backend="xformers")
    monkeypatch.setitem(sys.modules, "xformers.ops", None)
    with pytest.raises(Unsupported, match="pip install xformers"):
        Softmax(size(), backend="xformers")
    assert calls == []


@pytest.mark.parametrize("works", [True, False])
def test_auto_uses_xformers_only_if_a_trial_succeeds(works, calls, monkeypatch):
    monkeypatch.setattr(softmax, "xformers_failure", lambda *_: "" if works else "no kernel")
    layer, x = Softmax(size()), torch.randn(2, 9, DIM)
    layer(x, x, None)
    assert len(calls) == works and layer.backend_for(x) == ("xformers" if works else "sdpa")
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: 1 / 0)
    reason = xformers_failure.__wrapped__(torch.device("cuda"), torch.float32, 4)
    assert reason == "ZeroDivisionError: division by zero"


layer_of = partial(create, "moba", dim=12, causal=True)


def test_dropped_weights_have_the_mean_of_all(monkeypatch):
    monkeypatch.setattr(moba, "DENSE", 0)
    layer = layer_of(max_len=40, block=4, topk=3)
    q, k, v = (torch.randn(1, 2, 40, 6, dtype=torch.float64) for _ in range(3))
    expected = layer.attend(q, k, v, None)
    monkeypatch.setattr(type(layer), "dropout", 0.5)
    torch.manual_seed(1)
    draws = torch.stack([layer.attend(q, k, v, None) for _ in range(600)])
    errors = (draws.mean(0) - expected).abs() / (draws.std(0) / 600**0.5).clamp_min(1e-9)
    assert draws.std(0).mean() > 0.1 and errors.square().mean() < 1.3


def test_memory_grows_with_the_tokens_and_not_with_their_square():
    peaks = []
    for n in (2048, 8192):
        layer, x = layer_of(max_len=n).float(), torch.randn(1, n, 12, requires_grad=True)
        call = lambda layer=layer, x=x: layer(x).tokens.sum().backward()  # noqa: E731
        call()
        peaks.append(peak_bytes(call, torch.device("cpu")))
    # The scores of all blocks, of which a few are chosen, are a small part.
    assert peaks[1] < 6 * peaks[0]
