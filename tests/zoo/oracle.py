"""Inputs, padding and comparisons of the tests that compare a variant with its formula.

Heads are few and narrow, so that formulas may hold all weights in memory, or loop.
"""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import zoo
from zoo.contract import Attention, Size, variants

HEADS, WIDTH = 2, 4
DIM = HEADS * WIDTH

FORMS = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def qkv(n: int, m: int | None = None, scale: float = 1.0, shift: float = 0.0) -> list[Tensor]:
    lengths = (n, m or n, m or n)
    inputs = [torch.randn(2, HEADS, length, WIDTH).double() for length in lengths]
    return [(scale * x + shift).requires_grad_() for x in inputs]


def complex_rotation(x: torch.Tensor) -> torch.Tensor:
    n, pairs = x.shape[-2], x.shape[-1] // 2
    theta = 10_000.0 ** -(torch.arange(pairs).double() / pairs)
    rotation = torch.polar(torch.ones(n, pairs).double(), torch.arange(n).double()[:, None] * theta)
    actual = torch.complex(x[..., :pairs], x[..., pairs : 2 * pairs]) * rotation
    return torch.cat([actual.real, actual.imag, x[..., 2 * pairs :]], dim=-1)


def draw(n: int) -> Tensor:
    return torch.randn(2, n, DIM).double().requires_grad_()


def size(*, max_len: int = 1000, causal: bool = False, rotary: bool = False) -> Size:
    return Size(dim=DIM, heads=HEADS, max_len=max_len, causal=causal, dropout=0.0, rotary=rotary)


def create(
    name: str, *, causal: bool = False, dim: int = DIM, max_len: int = 1000, **options
) -> Attention:
    causal = causal or not variants.find(name).traits.bidirectional
    sizes = {"dim": dim, "heads": HEADS, "max_len": max_len, "causal": causal}
    return zoo.create(name, **sizes, **options).double()


def decode(layer, x: Tensor, state=None) -> tuple[Tensor, object]:
    state, outputs = layer.start(x.shape[0]) if state is None else state, []
    for token in x.unbind(1):
        output, state = layer.step(token, state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def ragged(n: int, first: int = 0) -> Tensor:
    mask = torch.ones(2, n, dtype=torch.bool)
    mask[0, n - n // 3 :] = False
    mask[1, first::5] = False
    return mask


def valid(out: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return out
    return out * (mask[:, None, :, None] if out.ndim == 4 else mask[..., None])


def by_sample(formula: Callable[[Tensor], Tensor], x: Tensor, mask: Tensor | None) -> Tensor:
    out = torch.zeros_like(x)
    for b in range(len(x)):
        real = torch.arange(x.shape[1]) if mask is None else mask[b].nonzero()[:, 0]
        if len(real):
            out[b, real] = formula(x[b, real])
    return out


def gradients(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * ramp).sum(), inputs, materialize_grads=True)


def agree(
    out: Tensor,
    expected: Tensor,
    *inputs: Tensor,
    outputs: tuple[float, float] = (1e-10, 1e-12),
    slopes: tuple[float, float] = (1e-9, 1e-12),
) -> None:
    torch.testing.assert_close(out, expected, rtol=outputs[0], atol=outputs[1])
    if not inputs:
        return
    pairs = zip(gradients(out, *inputs), gradients(expected, *inputs), strict=True)
    for slope, other in pairs:
        torch.testing.assert_close(slope, other, rtol=slopes[0], atol=slopes[1])


def figures(text: str) -> list[float]:
    """The numbers in a text, without those in names such as fp32."""
    return [float(number) for number in re.findall(r"\b\d+(?:\.\d+)?(?:e-?\d+)?", text)]


class HalfPrecision(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm", "baddbmm") and args[-1].dtype == torch.bfloat16:
            self.products.append((name, [tuple(arg.shape) for arg in args]))
        return func(*args, **(kwargs or {}))


def in_half_precision(call: Callable[[], object]) -> list[tuple[str, list[tuple[int, ...]]]]:
    with torch.autocast("cpu", dtype=torch.bfloat16), HalfPrecision() as record:
        call()
    return record.products


def projections_alone_are_halved(call: Callable[[], object]) -> None:
    actual = {name for name, _ in in_half_precision(call)}
    # Products of the projections have two axes, products of heads a third.
    assert actual & {"mm", "addmm"}
    assert not actual & {"bmm", "baddbmm"}
