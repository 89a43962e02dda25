"""Published packages as variants: their outputs, and the expected failures with their values."""

import sys

import pytest
import torch

from tests.zoo.oracle import HEADS, WIDTH, figures, ragged
from zoo.conformance import configurations
from zoo.conformance.tensors import random_tokens
from zoo.contract import Size, Unsupported
from zoo.packages import load
from zoo.variants import variants
from zoo.variants.nystrom_lib import NystromLib
from zoo.variants.performer_lib import PerformerLib
from zoo.variants.reformer_lib import ReformerLib

PACKAGES = {
    "performer-lib": ("performer-pytorch", "performer_pytorch"),
    "nystrom-lib": ("nystrom-attention", "nystrom_attention"),
    "reformer-lib": ("reformer-pytorch", "reformer_pytorch"),
}
every_package = pytest.mark.parametrize("name", PACKAGES)


def size(**changes) -> Size:
    base = {"dim": 8, "heads": HEADS, "max_len": 300, "causal": False, "dropout": 0.0}
    return Size(**{**base, **changes})


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_performer_attends_as_the_layer_of_its_package(causal):
    ours = PerformerLib(size(causal=causal), features=16).double()
    package = load("tests", "performer_pytorch", "performer-pytorch")
    theirs = package.SelfAttention(
        8, heads=HEADS, dim_head=WIDTH, nb_features=16, causal=causal, qkv_bias=True
    ).double()
    theirs.fast_attention.load_state_dict(ours.inner.state_dict())
    theirs.to_q, theirs.to_out = ours.query, ours.out
    key, value = ours.context.weight.chunk(2)
    for layer, weight, bias in zip(
        (theirs.to_k, theirs.to_v), (key, value), ours.context.bias.chunk(2), strict=True
    ):
        layer.weight.data, layer.bias.data = weight.data, bias.data
    x, mask = torch.randn(2, 63, 8).double(), ragged(63)
    # Without gradients: the package's layer fills its values in place.
    with torch.no_grad():
        same(ours(x, x, mask).tokens, theirs(x, mask=mask))
        same(ours(x, x, None).tokens, theirs(x))


@pytest.mark.parametrize("conv", [0, 3])
@pytest.mark.parametrize("n", [64, 100])
def test_nystrom_attends_as_the_layer_of_its_package(n, conv):
    ours = NystromLib(size(), landmarks=16, iterations=4, conv=conv).double()
    package = load("tests", "nystrom_attention", "nystrom-attention")
    theirs = package.NystromAttention(
        8,
        dim_head=WIDTH,
        heads=HEADS,
        num_landmarks=16,
        pinv_iterations=4,
        residual=conv > 0,
        residual_conv_kernel=3,
    ).double()
    with torch.no_grad():
        # The projections of the package have no bias.
        ours.query.bias.zero_()
        ours.context.bias.zero_()
        theirs.to_qkv.weight.copy_(torch.cat([ours.query.weight, ours.context.weight]))
    theirs.to_out = ours.out
    if conv:
        theirs.res_conv = ours.inner.res_conv
    x, mask = torch.randn(2, n, 8).double(), ragged(n)
    same(ours(x, x, mask).tokens, theirs(x, mask=mask))
    same(ours(x, x, None).tokens, theirs(x, mask=torch.ones_like(mask)))


@pytest.mark.parametrize("n", [10, 16, 17, 100, 128])
def test_reformer_attends_as_the_layer_of_its_package(n):
    ours = ReformerLib(size(), bucket=16, hashes=3).double()
    package = load("tests", "reformer_pytorch", "reformer-pytorch")
    inner = package.LSHSelfAttention(8, heads=HEADS, bucket_size=16, n_hashes=3).double()
    theirs = package.Autopadder(inner)
    with torch.no_grad():
        # The projections of the package have no bias.
        ours.query.bias.zero_()
        ours.context.bias.zero_()
    inner.toqk, inner.tov, inner.to_out = ours.query, ours.context, ours.out
    x = torch.randn(2, n, 8).double()
    for mask in (ragged(n), None):
        real = torch.ones(2, n, dtype=torch.bool) if mask is None else mask
        torch.manual_seed(3)
        actual = ours(x, x, mask).tokens[real]
        torch.manual_seed(3)
        same(actual, theirs(x, input_mask=mask)[real])


def test_the_derivatives_of_performer_lib_have_the_error_that_it_states():
    (configuration, _) = configurations("performer-lib", PerformerLib)
    layer, mask = configuration.layer(max_len=8, dim=4).eval(), torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    # Five times as large as in the check.
    x = 5 * 0.7 * random_tokens(2, 6, dim=4)

    def real(tokens):
        return layer(tokens, tokens, mask).tokens[mask].flatten()

    claimed = torch.autograd.functional.jacobian(real, x).flatten(1)
    nudges = 1e-6 * torch.eye(x.numel()).double().unflatten(1, x.shape)
    with torch.no_grad():
        actual = torch.stack([(real(x + d) - real(x - d)) / 2e-6 for d in nudges], dim=1)
    wrong = ((claimed - actual).norm() / actual.norm()).item()
    assert any(
        wrong == pytest.approx(stated, rel=0.1)
        for stated in figures(layer.expected_failures["gradients"])
    )


@every_package
def test_a_missing_package_is_named_with_the_remedy(name, monkeypatch):
    package, module = PACKAGES[name]
    for imported in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, imported)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=f"{name} needs {package}, .*pip install {package}$"):
        variants.find(name)(size())


def test_a_causal_performer_prints_nothing_about_its_missing_kernel(capsys):
    PerformerLib(size(causal=True))
    assert capsys.readouterr().out == ""
