"""Computation in single precision at least, whatever the dtype of the input and of autocast."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn import functional as F

TINY = 1e-12  # Smaller norms are replaced by this one, so that the zero vector has the feature zero


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def product_dtype(x: Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    # Where autocast is disabled already, there is no context: a graph with one cannot be saved.
    kind = x.device.type
    enabled = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if enabled else nullcontext()


@contextmanager
def full_precision(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    with without_autocast(tensors[0]):
        yield tuple(tensor.to(at_least_fp32(tensor.dtype)) for tensor in tensors)


def rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    # In fp32 at least: `x` may be too large for the dtype of the norm.
    with full_precision(x, norm.weight) as (wide, weight):
        return F.rms_norm(wide, norm.normalized_shape, weight, norm.eps).to(norm.weight.dtype)


def backward_without_autocast(outputs: Iterable[Tensor], inputs: Iterable[Tensor]) -> None:
    # The backward pass from `outputs` to `inputs` disables autocast where it is called inside: it
    # would round products of `full_precision`. A compiler has its own setting.
    if torch.compiler.is_compiling():
        return
    ends = {x.grad_fn for x in inputs}
    for output in outputs:
        kind, node = output.device.type, output.grad_fn
        if node and torch.is_autocast_enabled(kind):
            _disable_from(node, kind, ends)


def _disable_from(node: Node, kind: str, ends: set[Node | None]) -> None:
    # Up to `ends`, once it runs inside.
    # A hook that holds its own node would keep it alive.
    after = [following for following, _ in node.next_functions]

    def prepare(_: object) -> None:
        found = {*ends}
        while after and torch.is_autocast_enabled(kind):
            following = after.pop()
            # The nodes that add up the gradients of parameters outlive the graph.
            if following and following not in found and not hasattr(following, "variable"):
                found.add(following)
                _disable_in(following, kind)
                after.extend(further for further, _ in following.next_functions)

    node.register_prehook(prepare)
    _disable_in(node, kind)


def _disable_in(node: Node, kind: str) -> None:
    entered: list[torch.autocast] = []

    def enter(_: object) -> None:
        if torch.is_autocast_enabled(kind):
            entered.append(torch.autocast(kind, enabled=False))
            entered[-1].__enter__()

    def leave(*_: object) -> None:
        if entered:
            entered.pop().__exit__(None, None, None)

    node.register_prehook(enter)
    node.register_hook(leave)
