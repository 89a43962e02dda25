"""Layer norm with an output in bf16: equal to PyTorch's, rounded once."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from zoo.kernels.layer_norm import LayerNorm


def norms(width: int) -> tuple[LayerNorm, nn.LayerNorm]:
    """Ours and PyTorch's, with the same random parameters."""
    ours, theirs = LayerNorm(width), nn.LayerNorm(width)
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def exact(x: Tensor, layer: nn.LayerNorm, gradient: Tensor) -> list[Tensor]:
    inputs = [part.detach().double().requires_grad_() for part in (x, *layer.parameters())]
    y = F.layer_norm(inputs[0], layer.normalized_shape, *inputs[1:], layer.eps)
    return [y, *torch.autograd.grad(y, inputs, gradient.double())]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 127, 7), (2, 64, 64), (3, 43, 100), (5, 400, 64)])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_outputs_and_gradients_are_those_of_float64(shape, mean):
    layer, _ = norms(shape[-1])
    x = (mean + torch.randn(shape)).requires_grad_()
    gradient = torch.randn(shape).bfloat16()
    with autocast():
        y = layer(x)
    assert y.dtype is torch.bfloat16
    gradients = torch.autograd.grad(y, (x, *layer.parameters()), gradient)
    expected = exact(x, layer, gradient)
    torch.testing.assert_close(y.double(), expected[0], rtol=2**-8, atol=1e-4)
    for mine, other in zip(gradients, expected[1:], strict=True):
        assert mine.dtype is torch.float32
        tolerance = 1e-4 * max(1.0, other.abs().max().item())
        torch.testing.assert_close(mine.double(), other, rtol=1e-4, atol=tolerance)


def test_the_output_is_rounded_once():
    ours, theirs = norms(64)
    x = torch.randn(4, 500, 64)
    with autocast():
        y, expected = ours(x), theirs(x).bfloat16()
    # The last bit of fp32 may differ, and then seldom the last bit of bf16.
    assert (y != expected).double().mean() < 1e-3
    torch.testing.assert_close(y, expected, rtol=2**-7, atol=1e-6)


def test_results_do_not_depend_on_the_number_of_threads(set_threads):
    layer, _ = norms(64)
    x, results = torch.randn(5, 2000, 64, requires_grad=True), []
    for threads in (1, 2, 3):
        set_threads(threads)
        with autocast():
            y = layer(x)
        results.append([y, *torch.autograd.grad(y.float().square().sum(), (x, layer.weight))])
    for other in results[1:]:
        assert torch.equal(results[0][0], other[0])
        assert torch.equal(results[0][1], other[1])
        torch.testing.assert_close(results[0][2], other[2])


def test_views_of_any_strides_are_normalised():
    layer, _ = norms(6)
    x = torch.randn(6, 5, 4).transpose(0, 2)
    with autocast():
        assert torch.equal(layer(x), layer(x.contiguous()))
        constant = layer(x[:, :1].expand(4, 5, 6).requires_grad_())
    # The gradient of a sum has strides of zero.
    constant.sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((6,), 20.0))


def test_without_bf16_autocast_it_is_the_norm_of_pytorch(monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr("zoo.kernels.layer_norm._LayerNorm.apply", refuse)
    ours, theirs = norms(6)
    x = torch.randn(2, 5, 6)
    assert torch.equal(ours(x), theirs(x))
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(ours(x), theirs(x))
    with autocast():
        assert torch.equal(ours(x.bfloat16()), theirs(x.bfloat16()))
        assert torch.equal(torch.func.vmap(ours)(x), torch.func.vmap(theirs)(x))
        assert ours.to("meta")(x.to("meta")).is_meta
        with pytest.raises(AssertionError):
            norms(6)[0](x)
    assert torch.equal(norms(6)[0].double()(x.double()).isnan(), torch.zeros(2, 5, 6).bool())


@pytest.mark.parametrize("name", ["softmax", "gated-linear", "primal"])
def test_an_encoder_layer_in_bf16_is_close_to_the_one_in_fp32(name):
    """Each variant by itself is proved by the check `precisions`."""
    layer = zoo.EncoderLayer.create(name, dim=32, heads=2, max_len=64, feed_forward=48).eval()
    x = torch.randn(2, 64, 32, requires_grad=True)
    plain = layer(x).tokens
    with autocast():
        mixed = layer(x).tokens
    assert mixed.dtype is torch.float32
    assert (mixed - plain).norm() < 0.03 * plain.norm()
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (mixed, plain)]
    assert (gradients[0] - gradients[1]).norm() < 0.05 * gradients[1].norm()
