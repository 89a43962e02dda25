"""Lengths, precisions and scales of the input; the first operation that overflows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import currentframe
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import jaxtyping
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, Setting, all_finite
from zoo.conformance.tensors import (
    LONG,
    SCATTERED,
    distance,
    output,
    random_tokens,
    relative_error,
    with_gradients,
)

# Around the block sizes in use, up to the largest that the layer is built for.
LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 160, LONG)

# Settings, and the relative errors allowed of outputs and of gradients.
# Correct variants differ by up to 0.02 and 0.1 in bf16, where rounding changes a hash or the sign
# before a ReLU, and by up to 0.006 and 0.03 elsewhere.
LOW_PRECISIONS = (
    (Setting(dtype=torch.float32), 1e-4, 1e-3),
    (Setting(dtype=torch.bfloat16), 0.05, 0.15),
    (Setting(dtype=torch.float32, autocast=torch.bfloat16), 0.05, 0.15),
)

# Tensors of the same values, if all samples are equal, not contiguous or a part of a larger one.
LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "strided": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x[:1].expand_as(x),
    "sequence first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda x: torch.stack([torch.zeros_like(x), x])[1],
}


def check_lengths(configuration: Configuration) -> Outcome:
    """Every length gives an output of the right shape, finite, with finite gradients."""
    bad = []
    for n in LENGTHS:
        layer, x = configuration.layer(max_len=max(n, 160)), random_tokens(2, n).requires_grad_()
        mask = torch.arange(n) < torch.tensor([[n], [(n + 1) // 2]])
        for training, padding in ((True, None), (False, mask)):
            result = layer.train(training)(x, mask=padding)
            if (
                result.tokens.shape != x.shape
                or not all_finite(with_gradients(layer, x, result, padding)).passed
            ):
                bad.append(n)
                break
    return Outcome(not bad, f"lengths {LENGTHS}: {f'failed at {bad}' if bad else 'all pass'}")


def check_precisions(configuration: Configuration) -> Outcome:
    """fp32 and bf16 modules keep their dtype; they, and autocast, agree with fp64."""
    x, passed, details = random_tokens(2), True, []
    for (setting, bound, _), short_conv in product(LOW_PRECISIONS, (0, 4)):
        exact = output(configuration.layer(short_conv=short_conv).eval(), x)
        tokens = setting.run(configuration.layer_for(setting, short_conv=short_conv), x).tokens
        error = relative_error(tokens.double(), exact)
        keeps = setting.autocast or tokens.dtype == setting.dtype
        passed &= keeps and error <= bound
        other = "" if keeps else f" with an output of {tokens.dtype}"
        taps = f" with {short_conv} taps" * bool(short_conv)
        details.append(f"{setting.precision}{taps} differs by {error:.1g}{other}")
    return Outcome(passed, ", ".join(details).replace("torch.", ""))


def check_layouts(configuration: Configuration) -> Outcome:
    """Outputs and gradients are the same for any layout of tokens, mask and gradient in memory."""
    layer, setting = configuration.layer(), Setting(training=True)
    tokens, gradient = (random_tokens(1, seed=seed).repeat(3, 1, 1) for seed in (2, 7))
    mask = SCATTERED[:1].repeat(3, 1)

    def results(x: Tensor, real: Tensor | None, slope: Tensor) -> list[Tensor]:
        inputs = [x.detach().requires_grad_(), *layer.parameters()]
        outputs = setting.run(layer, inputs[0], real).tokens
        gradients = torch.autograd.grad(outputs, inputs, slope, materialize_grads=True)
        return [outputs if real is None else outputs[real], *gradients]

    real = gradient * mask[..., None]
    plain, padded = results(tokens, None, gradient), results(tokens, mask, real)
    ones = torch.ones_like(tokens)
    sums = (results(tokens, None, slope) for slope in (ones, ones[:1, :1, :1].expand_as(ones)))
    worst = max(map(distance, *sums)), "the gradient of a sum"
    for layout, change in LAYOUTS.items():
        for name, expected, actual in (
            ("tokens", plain, results(change(tokens), None, gradient)),
            ("padded tokens", padded, results(change(tokens), mask, real)),
            ("mask", padded, results(tokens, change(mask), real)),
            ("gradient", plain, results(tokens, None, change(gradient))),
        ):
            worst = max(worst, (max(map(distance, actual, expected)), f"{layout} {name}"))
    detail = f"differ by {worst[0]:.2g} with {worst[1]}, at most {ROUNDING:.0e} allowed"
    return Outcome(worst[0] <= ROUNDING, detail)


def check_large_inputs(configuration: Configuration) -> Outcome:
    """Inputs a thousand times larger give finite outputs and gradients in fp32."""
    layer = configuration.layer().float()
    x = (1e3 * random_tokens(2)).float().requires_grad_()

    def results() -> list[Tensor]:
        return with_gradients(layer, x, layer(x))

    outcome = all_finite(results())
    return outcome if outcome.passed else outcome._replace(detail=outcome.detail + cause(results))


def cause(call: Callable[[], object]) -> str:
    # The largest number is the one of the dtype of the result; a backward pass has no lines.
    with _FirstOverflow() as found:
        call()
    return found.text or "; every operation of the forward pass is finite, not all of the backward"


class _FirstOverflow(TorchFunctionMode):
    text = ""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        kwargs = kwargs or {}
        # Before the call, which may write to them.
        given = [not _overflows(part) for part in _tensors((args, kwargs))]
        result = func(*args, **kwargs)
        bad = next((part for part in _tensors(result) if _overflows(part)), None)
        name = (resolve_name(func) or func.__name__).rpartition(".")[2]
        # What memory holds at first, or is filled with, is no result.
        chosen = "empty" in name or "fill" in name or not given
        if bad is None or self.text or chosen or not all(given):
            return result
        largest = f"{torch.finfo(bad.dtype).max:.3g}"
        self.text = (
            f"; {name} in {_caller(currentframe())} gives infinity or NaN from numbers, where "
            f"the largest of its precision is {largest}: limit its arguments, or compute it in "
            "another form or in fp32"
        )
        return result


def _overflows(x: Tensor) -> bool:
    return x.is_floating_point() and bool((x.isnan() | (x == torch.inf)).any())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value.detach()
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _caller(frame: FrameType | None) -> str:
    # The checks of shapes, if any, are around each function.
    skipped = __file__, *(str(Path(str(of.__file__)).parent) for of in (torch, jaxtyping))
    while frame and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    if frame is None:
        return "PyTorch"
    path = Path(frame.f_code.co_filename)
    return f"{frame.f_code.co_name} ({path.name}, line {frame.f_lineno})"
