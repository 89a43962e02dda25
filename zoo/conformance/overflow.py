"""The cause of results that are not finite: the first operation that overflows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import currentframe
from pathlib import Path
from types import FrameType
from typing import Any

import jaxtyping
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name


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
