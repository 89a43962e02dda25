"""What retention and gated linear attention share: padding, chunks, the future, precision."""

import jaxtyping
import pytest
import torch

from tests.zoo.oracle import (
    DIM,
    FORMS,
    FUTURES,
    PADDED,
    draw,
    gated,
    gradients,
    near_in_half_precision,
    projections_alone_are_halved,
    ragged,
    valid,
)
from zoo.variants.gated_linear import GatedLinear
from zoo.variants.retention import Retention

VARIANTS = pytest.mark.parametrize(
    "variant", [GatedLinear, Retention], ids=["gated-linear", "retention"]
)


@FORMS
@pytest.mark.parametrize(
    ("variant", "chunk"),
    [
        *((GatedLinear, chunk) for chunk in (1, 2, 64, 128, 1024)),
        *((Retention, chunk) for chunk in (1, 7, 99, 100, 1000)),
    ],
)
def test_the_size_of_a_chunk_does_not_matter(variant, chunk, causal):
    layer, x, mask = gated(variant, causal, chunk=16), draw(100), ragged(100)
    expected = layer(x, x, mask).tokens
    layer.chunk = chunk
    torch.testing.assert_close(layer(x, x, mask).tokens, expected, rtol=1e-9, atol=1e-11)


@VARIANTS
@pytest.mark.parametrize("cut", [1, 31, 32, 40, 99])
@FUTURES
def test_future_tokens_never_move_past_outputs_by_a_bit(variant, scale, cut):
    layer, x = gated(variant, True, chunk=32), draw(100)
    changed = torch.cat([x[:, :cut], scale * x[:, cut:]], 1)
    before, after = layer(x, x, None).tokens, layer(changed, changed, None).tokens
    assert torch.equal(before[:, :cut], after[:, :cut])
    assert not torch.equal(before[:, cut:], after[:, cut:])


@VARIANTS
@FORMS
def test_a_sample_of_padding_alone_leaves_finite_gradients_and_others_alone(variant, causal):
    layer, x, mask = gated(variant, causal, chunk=8), draw(20), ragged(20)
    before = layer(x, x, mask).tokens[1]
    mask[0] = False
    out = layer(x, x, mask).tokens
    assert torch.equal(out[1], before)
    assert out.isfinite().all()
    assert all(part.isfinite().all() for part in gradients(out, x, *layer.parameters()))


@VARIANTS
@FORMS
def test_padded_content_does_not_matter(variant, causal):
    layer, x, mask = gated(variant, causal, chunk=8), draw(40), ragged(40)
    other = torch.where(mask[..., None], x, 1e4)
    before, after = (valid(layer(one, one, mask).tokens, mask) for one in (x, other))
    torch.testing.assert_close(before, after, rtol=1e-12, atol=0)


@VARIANTS
@FORMS
def test_bf16_autocast_stays_near_fp32(variant, causal):
    near_in_half_precision(gated(variant, causal), 0.05)


@VARIANTS
@PADDED
def test_several_layers_run_at_once_under_vmap(monkeypatch, variant, padded):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layers, x = [gated(variant, chunk=8) for _ in range(3)], draw(20).detach()
    mask = ragged(20) if padded else None
    stacked = torch.func.stack_module_state(layers)
    run = torch.func.vmap(
        lambda state: torch.func.functional_call(layers[0], state, (x, x, mask)).tokens
    )
    expected = torch.stack([layer(x, x, mask).tokens for layer in layers])
    torch.testing.assert_close(run(stacked), expected)


PARAMETERS = ["query_key_value", "gate", "norm", "out"]


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        (GatedLinear, ["query_key_value", "forget", *PARAMETERS[1:]]),
        (Retention, PARAMETERS),
    ],
    ids=["gated-linear", "retention"],
)
def test_parameters_are_made_in_an_order_that_old_seeds_and_checkpoints_know(variant, names):
    found = (name.partition(".")[0] for name in gated(variant).state_dict())
    assert list(dict.fromkeys(found)) == names


@VARIANTS
@FORMS
def test_under_autocast_projections_alone_are_in_half_precision(variant, causal):
    layer, x = gated(variant, causal, chunk=16).float(), torch.randn(2, 40, DIM)
    projections_alone_are_halved(lambda: layer(x, x, ragged(40)))
