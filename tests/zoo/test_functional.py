"""`zoo.functional`: variants under the signature of PyTorch's attention."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.contract import WITH_PADDING
from zoo.functional import build
from zoo.variants import variants

B, H, N, E = 2, 4, 13, 8
REAL = torch.arange(N) >= torch.tensor([[0], [5]])
PAST = torch.ones(N, N, dtype=torch.bool).tril()
WINDOW = PAST & ~PAST.tril(-3)
PER_HEAD = torch.stack([PAST, PAST, PAST, PAST.mT])[None]


def heads(count: int = 3, n: int = N) -> list[torch.Tensor]:
    return list(torch.randn(count, B, H, n, E))


def can(name: str, causal: bool) -> bool:
    try:
        build(name, (), (H, E, N), 0.0, False, torch.device("cpu"), causal)
    except zoo.Unsupported:
        return False
    return True


@pytest.mark.parametrize(("name", "causal"), [
    (name, causal) for name in variants.names() for causal in (False, True) if can(name, causal)
])  # fmt: skip
def test_a_function_equals_the_layer(name, causal):
    torch.manual_seed(0)  # for random features
    layer = zoo.create(name, dim=H * E, heads=H, max_len=N, causal=causal).eval()
    x, attend = torch.randn(B, N, H * E), getattr(zoo.functional, name.replace("-", "_"))
    if layer.query.out_features != H * E:
        with pytest.raises(zoo.UserError):
            attend(*heads(), is_causal=causal)
        layer = zoo.create(name, dim=H * E, heads=H, max_len=N, causal=causal, feature_dim=E).eval()
        attend = partial(attend, feature_dim=E)
    padded = not {*WITH_PADDING} & {*layer.expected_failures_of(causal=causal)}
    for mask in (None, REAL) if padded else (None,):
        out = attend(*layer._project(x, x, mask), mask=mask, is_causal=causal)
        real = ... if mask is None else mask
        torch.testing.assert_close(layer._merge(x, out)[real], layer(x, mask=mask).tokens[real])


@pytest.mark.parametrize("options", [
    {}, {"scale": 0.3}, {"is_causal": True}, {"attn_mask": REAL[:, None, None]},
    {"attn_mask": PAST}, {"attn_mask": PAST & REAL[:, None, None]},
    {"attn_mask": (PAST & REAL[:, None, None]).expand(B, H, N, N)},
])  # fmt: skip
def test_softmax_equals_sdpa(options):
    q, k, v = heads()
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(zoo.functional.softmax(q, k, v, **options), expected)
    grouped = [part[:, :2] for part in (k, v)]
    expected = F.scaled_dot_product_attention(q, *grouped, enable_gqa=True, **options)
    actual = zoo.functional.softmax(q, *grouped, enable_gqa=True, **options)
    torch.testing.assert_close(actual, expected)
    if not {"is_causal", "attn_mask"} & options.keys():  # queries of another sequence
        expected = F.scaled_dot_product_attention(q[:, :, :3], k, v, **options)
        torch.testing.assert_close(zoo.functional.softmax(q[:, :, :3], k, v, **options), expected)


def test_random_features_are_fixed_and_leave_the_generator():
    build.cache_clear()
    q, k, v = heads()
    state = torch.get_rng_state()
    with torch.inference_mode():
        first = zoo.functional.performer(q, k, v)
    assert torch.equal(torch.get_rng_state(), state)
    core = build("performer", (), (H, E, N), 0.0, False, q.device, False)
    assert not core.get_buffer("projection").is_inference()  # it may be used in training next
    build.cache_clear()
    assert torch.equal(first, zoo.functional.performer(q, k, v))


@pytest.mark.parametrize("name", ["softmax", "nystrom", "yoso"])
def test_padded_keys_and_values_are_not_read(name):
    (q, k, v), results = heads(), []
    for padding in (0.0, float("nan")):
        inputs = [q, *(part.masked_fill(~REAL[:, None, :, None], padding) for part in (k, v))]
        inputs = [part.requires_grad_() for part in inputs]
        out = getattr(zoo.functional, name)(*inputs, mask=REAL)
        gradients = torch.autograd.grad(out.transpose(1, 2)[REAL].sin().sum(), inputs)
        results.append([out.transpose(1, 2)[REAL], *gradients])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_half_precision_is_rounded_once_also_by_a_backward_pass_inside_of_autocast():
    parts, gradients = heads(), []
    expected = zoo.functional.linear(*(part.bfloat16().float() for part in parts)).bfloat16()
    assert torch.equal(zoo.functional.linear(*(part.bfloat16() for part in parts)), expected)
    for inside in (False, True):
        inputs = [part.clone().requires_grad_() for part in parts]
        with torch.autocast("cpu", torch.bfloat16):
            loss = zoo.functional.taylor(*inputs, feature_dim=E).sin().sum()
            if inside:
                loss.backward()
                assert torch.is_autocast_enabled("cpu")
        if not inside:
            loss.backward()
        gradients.append([part.grad for part in inputs])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


REFUSED = [
    ("primal", {}), ("reformer", {}), ("linformer", {}), ("cosine", {}), ("nystrom", {"conv": 3}),
    ("nystrom", {"is_causal": True}), ("performer-lib", {"is_causal": True}),
    ("performer-lib", {"mask": REAL}), ("nystrom-lib", {"mask": REAL}),
    ("linear", {"dropout_p": 0.1}), ("softmax", {"attn_mask": WINDOW}),
    ("softmax", {"attn_mask": PER_HEAD}), ("softmax", {"attn_mask": torch.zeros(N, N)}),
    ("softmax", {"is_causal": True, "n": 3}), ("local", {"n": 3}),
]  # fmt: skip
"""Shared or learned projections, masks that are no padding, leaks and what a variant lacks."""


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_what_cannot_be_honoured_is_refused(name, options):
    q = heads(1, n=options.get("n", N))[0]
    options = {key: value for key, value in options.items() if key != "n"}
    with pytest.raises(zoo.Unsupported):
        getattr(zoo.functional, name.replace("-", "_"))(q, *heads(2), **options)
    if "mask" in options:
        assert zoo.functional.attention(name, *heads()).isfinite().all()


@pytest.mark.parametrize("options", [{"mask": REAL, "attn_mask": PAST}, {"attn_mask": PAST[:, :5]}])
def test_two_masks_and_masks_of_another_shape_are_errors(options):
    with pytest.raises(zoo.UserError):
        zoo.functional.local(*heads(), **options)
