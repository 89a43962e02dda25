"""`zoo.functional`: variants under the signature of PyTorch's attention."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.functional import WITH_PADDING, build
from zoo.variants import variants

B, H, N, E = 2, 4, 13, 8
REAL = torch.arange(N) >= torch.tensor([[0], [5]])
PAST = torch.ones(N, N, dtype=torch.bool).tril()
WINDOW = PAST & ~PAST.tril(-3)
PER_HEAD = torch.stack([PAST, PAST, PAST, PAST.mT])[None]


def heads(count: int = 3, h: int = H, n: int = N) -> list[torch.Tensor]:
    return list(torch.randn(count, B, h, n, E))


def forms() -> list[tuple[str, bool]]:
    """The registered variants that are functions of q, k and v, in each of their forms."""
    found = []
    for name in variants.names():
        for causal in (False, True):
            try:
                build(name, (), (H, E, N), 0.0, False, torch.device("cpu"), causal)
            except zoo.Unsupported:
                continue
            found.append((name, causal))
    return found


FORMS = forms()


@pytest.mark.parametrize(("name", "causal"), FORMS)
def test_a_function_equals_the_layer(name, causal):
    torch.manual_seed(0)  # for random features
    layer = zoo.create(name, dim=H * E, heads=H, max_len=N, causal=causal).eval()
    x, attend = torch.randn(B, N, H * E), getattr(zoo.functional, name.replace("-", "_"))
    if layer.query.out_features != H * E:
        with pytest.raises(zoo.UserError):
            attend(*heads(), is_causal=causal)
        return
    padded = not {*WITH_PADDING} & {*layer.expected_failures_of(causal=causal)}
    for mask in (None, REAL) if padded else (None,):
        out = attend(*layer._project(x, x, mask), mask=mask, is_causal=causal)
        real = ... if mask is None else mask
        torch.testing.assert_close(layer._merge(out)[real], layer(x, mask=mask).tokens[real])


def test_there_are_forms_of_both_kinds():
    assert {("linear", True), ("linear", False), ("nystrom", False)} <= set(FORMS)
    assert not {"primal", "reformer", "linformer", "cosine"} & {name for name, _ in FORMS}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.3},
        {"is_causal": True},
        {"attn_mask": REAL[:, None, None]},
        {"attn_mask": PAST},
        {"attn_mask": PAST & REAL[:, None, None]},
        {"attn_mask": (PAST & REAL[:, None, None]).expand(B, H, N, N)},
    ],
)
def test_softmax_equals_sdpa(options):
    q, k, v = heads()
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(zoo.functional.softmax(q, k, v, **options), expected)
    grouped = [part[:, :2] for part in (k, v)]
    expected = F.scaled_dot_product_attention(q, *grouped, enable_gqa=True, **options)
    actual = zoo.functional.softmax(q, *grouped, enable_gqa=True, **options)
    torch.testing.assert_close(actual, expected)


def test_queries_may_attend_to_another_sequence():
    q, (k, v) = heads(1, n=3)[0], heads(2)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=REAL[:, None, None])
    torch.testing.assert_close(zoo.functional.softmax(q, k, v, mask=REAL), expected)


def test_options_and_gradients_reach_the_variant():
    q, k, v = (part.requires_grad_() for part in heads())
    out = zoo.functional.local(q, k, v, is_causal=True, window=2)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, attn_mask=WINDOW))
    out.sum().backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in (q, k, v))


def test_an_option_of_the_width_is_that_of_the_queries():
    torch.manual_seed(0)
    layer = zoo.create("taylor", dim=H * E, heads=H, max_len=N, feature_dim=E).eval()
    x = torch.randn(B, N, H * E)
    out = zoo.functional.taylor(*layer._project(x, x, None), feature_dim=E)
    torch.testing.assert_close(layer._merge(out), layer(x).tokens)


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
    results = []
    for padding in (0.0, float("nan")):
        q, k, v = heads_from(0)
        inputs = [q, *(part.masked_fill(~REAL[:, None, :, None], padding) for part in (k, v))]
        inputs = [part.requires_grad_() for part in inputs]
        out = getattr(zoo.functional, name)(*inputs, mask=REAL)
        gradients = torch.autograd.grad(out.transpose(1, 2)[REAL].sin().sum(), inputs)
        results.append([out.transpose(1, 2)[REAL], *gradients])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def heads_from(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return heads()


def test_a_backward_pass_inside_of_autocast_rounds_no_more_than_one_outside():
    gradients = []
    for inside in (False, True):
        inputs = [part.requires_grad_() for part in heads_from(0)]
        with torch.autocast("cpu", torch.bfloat16):
            loss = zoo.functional.taylor(*inputs, feature_dim=E).sin().sum()
            if inside:
                loss.backward()
                assert torch.is_autocast_enabled("cpu")
        if not inside:
            loss.backward()
        gradients.append([part.grad for part in inputs])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["nystrom-lib", "performer-lib"])
def test_a_variant_that_is_known_to_treat_padding_wrongly_refuses_masks(name):
    with pytest.raises(zoo.Unsupported, match="give no mask"):
        zoo.functional.attention(name, *heads(), mask=REAL)
    assert zoo.functional.attention(name, *heads()).isfinite().all()


def test_half_precision_is_rounded_once():
    q, k, v = (part.bfloat16() for part in heads())
    expected = zoo.functional.linear(q.float(), k.float(), v.float()).bfloat16()
    assert torch.equal(zoo.functional.linear(q, k, v), expected)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("primal", {}),
        ("reformer", {}),  # one projection for queries and keys
        ("linformer", {}),  # learned E and F
        ("cosine", {}),  # a learned power
        ("nystrom", {"conv": 3}),
        ("nystrom", {"is_causal": True}),
        ("performer-lib", {"is_causal": True}),  # a known leak
        ("performer-lib", {"mask": REAL}),
        ("linear", {"dropout_p": 0.1}),
        ("softmax", {"attn_mask": WINDOW}),
        ("softmax", {"attn_mask": PER_HEAD}),
        ("softmax", {"attn_mask": torch.zeros(N, N)}),
        ("softmax", {"is_causal": True, "n": 3}),
        ("local", {"n": 3}),
    ],
)
def test_what_cannot_be_honoured_is_refused(name, options):
    q = heads(1, n=options.pop("n", N))[0]
    with pytest.raises(zoo.Unsupported):
        getattr(zoo.functional, name.replace("-", "_"))(q, *heads(2), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"mask": REAL, "attn_mask": PAST},
        {"mask": REAL[:1]},
        {"mask": REAL.long()},
        {"attn_mask": PAST[:, :5]},
        {"max_len": 5},
        {"windw": 3},
    ],
)
def test_invalid_arguments_are_user_errors(options):
    with pytest.raises(zoo.UserError):
        zoo.functional.local(*heads(), **options)


def test_heads_of_another_shape_and_unknown_names():
    q, k, v = heads()
    for inputs in ((q, k[:, :2], v[:, :2]), (q, k, v[..., :4]), (q[0], k[0], v[0])):
        with pytest.raises(zoo.UserError):
            zoo.functional.softmax(*inputs)
    with pytest.raises(AttributeError):
        zoo.functional.lineal  # noqa: B018
