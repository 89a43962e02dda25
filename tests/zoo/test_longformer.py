"""Window and global tokens against a formula with all n x n weights."""

import pytest
import torch

from tests.zoo.oracle import DIM, HEADS, PADDED, agree, by_sample, draw, ragged, valid
from zoo.contract import Size
from zoo.kernels.rotary import apply_rotary
from zoo.variants.local import Local
from zoo.variants.longformer import Longformer

SEPARATE = pytest.mark.parametrize("separate", [True, False], ids=["separate", "shared"])


def longformer(dropout: float = 0.0, *, rotary: bool = False, **options) -> Longformer:
    size = Size(
        dim=DIM, heads=HEADS, max_len=1000, causal=False, dropout=dropout, rotary=rotary
    )  # fmt: skip
    return Longformer(size, **options).double()


def by_the_formula(layer, x, mask):
    """One sample at a time, with padded tokens removed; zero at padded tokens."""
    return by_sample(lambda real: layer.out(without_padding(layer, real)), x, mask)


def rotated(layer, part):
    """Queries or keys (n, e), with rotary positions if the layer has them."""
    return apply_rotary(part[None, None])[0, 0] if layer.size.rotary else part


def without_padding(layer, x):
    q, k, v = layer.local(x).chunk(3, -1)
    q_all, k_all, v_all = q, k, v
    if layer.global_query is not None:
        q_all = layer.global_query(x)
        k_all, v_all = layer.global_context(x).chunk(2, -1)
    position, g = torch.arange(len(x)), layer.global_tokens
    allowed = ((position[:, None] - position).abs() <= layer.window) | (position < g)
    heads = []
    for part in torch.arange(DIM).chunk(HEADS):
        scale = len(part) ** 0.5
        local = rotated(layer, q[:, part]) @ rotated(layer, k[:, part]).T / scale
        local = local.masked_fill(~allowed, -torch.inf).softmax(-1)
        full = rotated(layer, q_all[:, part]) @ rotated(layer, k_all[:, part]).T / scale
        heads.append(torch.cat([full[:g].softmax(-1) @ v_all[:, part], (local @ v[:, part])[g:]]))
    return torch.cat(heads, -1)


@SEPARATE
@PADDED
@pytest.mark.parametrize("tokens", [1, 10])
@pytest.mark.parametrize("n", [1, 7, 8, 65, 130])
def test_output_and_gradients_are_those_of_the_formula(n, tokens, padded, separate):
    layer = longformer(window=7, global_tokens=tokens, separate=separate)
    x, mask = draw(n), ragged(n) if padded else None
    out, expected = valid(layer(x, x, mask).tokens, mask), by_the_formula(layer, x, mask)
    # Up to `tokens` the window has no queries, and its parameters no gradient.
    inputs = [x, *layer.parameters()] if n > tokens else []
    agree(out, expected, *inputs, slopes=(1e-9, 1e-11))


@SEPARATE
@PADDED
def test_rotary_positions_rotate_queries_and_keys_of_both_kinds(padded, separate):
    layer = longformer(window=7, global_tokens=3, separate=separate, rotary=True)
    x, mask = draw(64), ragged(64) if padded else None
    agree(valid(layer(x, x, mask).tokens, mask), by_the_formula(layer, x, mask))


def test_without_global_tokens_it_is_local_attention():
    layer, x = longformer(window=5, global_tokens=0), draw(40)
    local = Local(layer.size, window=5).double()
    weights = [*layer.local.weight.chunk(3), *layer.local.bias.chunk(3)]
    state = {
        "query.weight": weights[0],
        "query.bias": weights[3],
        "context.weight": torch.cat(weights[1:3]),
        "context.bias": torch.cat(weights[4:6]),
        **{f"out.{name}": value for name, value in layer.out.state_dict().items()},
    }
    local.load_state_dict(state)
    mask = ragged(40)
    expected = valid(local(x, x, mask).tokens, mask)
    torch.testing.assert_close(valid(layer(x, x, mask).tokens, mask), expected)


def test_all_tokens_attend_to_a_global_token():
    layer, x = longformer(window=4, global_tokens=2), draw(60).detach()
    before = layer(x, x, None).tokens
    for token, expected in [(1, range(60)), (30, [0, 1, *range(26, 35)])]:
        changed = x.clone()
        changed[:, token] *= -10
        differs = (layer(changed, changed, None).tokens != before).any(-1).any(0)
        assert differs.nonzero()[:, 0].tolist() == list(expected)


def test_the_first_real_tokens_are_the_global_ones():
    layer, x = longformer(window=4, global_tokens=1), draw(60).detach()
    mask = torch.ones(2, 60, dtype=torch.bool)
    mask[:, :3] = False
    changed = x.clone()
    changed[:, 3] *= -10
    differs = layer(changed, changed, mask).tokens != layer(x, x, mask).tokens
    assert differs[:, 3:].any(-1).all()


def test_dropout_applies_to_weights_in_training_only():
    layer, x = longformer(dropout=0.5, window=4), draw(30)
    expected = by_the_formula(layer, x, None)
    dropped = layer(x, x, None).tokens
    assert not torch.allclose(dropped[:, 0], expected[:, 0])
    assert not torch.allclose(dropped[:, 1:], expected[:, 1:])
    torch.testing.assert_close(layer.eval()(x, x, None).tokens, expected)
