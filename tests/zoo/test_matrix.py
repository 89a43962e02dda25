"""The attention matrix of a layer, against its formula, and the variants that have none."""

import pytest
import torch

import zoo
from zoo.contract import Unsupported
from zoo.variants import variants

MASK = torch.tensor([[True] * 5 + [False] * 2, [True] * 7])
WITHOUT = {
    "conv", "delta", "gated-delta", "gated-linear", "gdn2", "hgrn2", "kda", "log-linear",
    "longformer", "mamba2", "mesa", "none", "retention", "rwkv7", "ssd", "yoso",
}  # fmt: skip


def layer_of(name: str, *, causal: bool = False, **options):
    causal = causal or not variants.find(name).traits.bidirectional
    return zoo.create(name, dim=8, heads=2, max_len=7, causal=causal, **options).eval().double()


def test_the_matrix_of_primal_is_the_kernel_that_it_decomposes():
    layer, x = layer_of("primal"), torch.randn(2, 7, 8).double()
    q, k = layer.query_key(x).unflatten(-1, (2, 2, 4)).unbind(-3)
    q, k = (one / one.norm(dim=-1, keepdim=True) for one in (q, k))
    kernel = torch.einsum("nihp,njhp->nhij", q, k)
    assert torch.allclose(layer.matrix(x, x, None), kernel)


WITH = sorted({name for name, variant in variants.items() if not variant.unchecked} - WITHOUT)


@pytest.mark.parametrize("name", WITH)
def test_no_variant_attends_to_padding(name):
    layer, x = layer_of(name), torch.randn(2, 7, 8).double()
    matrix = layer.matrix(x, x, MASK)
    assert matrix.shape == (2, 2, 7, 7) and matrix[:, :, :5].abs().amax() > 0
    assert (matrix[0, :, :5, 5:] == 0).all()


OF_OTHER_HEADS = {"primal", "primal-moments", "reformer-lib"}


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("name", sorted({*WITH} - OF_OTHER_HEADS))
def test_the_product_with_the_values_gives_the_outputs(name, rotary):
    mask = torch.tensor([[True, False, False, True, True, False, True], [True] * 7])
    layer, x = layer_of(name, rotary=rotary), torch.randn(2, 7, 8).double()
    values = getattr(layer, "context", None) or layer.left_right_value
    v = values(x)[..., -8:].unflatten(-1, (2, 4)).transpose(1, 2)
    outputs = layer.out((layer.matrix(x, x, mask) @ v).transpose(1, 2).flatten(-2))
    assert torch.allclose(outputs[mask], layer(x, x, mask).tokens[mask])


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_a_variant_that_is_no_product_with_its_values_has_no_matrix(name):
    with pytest.raises(Unsupported, match=f"{name} has no attention matrix"):
        layer_of(name).matrix(*[torch.randn(2, 7, 8).double()] * 2, MASK)
