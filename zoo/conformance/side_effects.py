"""What a call of a layer could write to: attributes, inputs, classes, modules, closures."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

SHOWN = 5  # Names of what changed, at most, in the detail of a check


def state_of(
    layer: nn.Module, inputs: Mapping[str, Tensor | None] | None = None
) -> Iterator[tuple[str, Any]]:
    for path, module in layer.named_modules():
        yield from _entries(path or "layer", vars(module))
    for name, tensor in (inputs or {}).items():
        yield from _entries(name, tensor)


def shared_state(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    # Of the classes, of the functions that they call and of the modules of these; not of PyTorch's.
    # A class of ABCMeta that `type` makes is of the module `abc`: all classes are looked at.
    classes = {cls for module in layer.modules() for cls in type(module).__mro__}
    waiting = [value for cls in classes for value in vars(cls).values()]
    namespaces: dict[int, tuple[str, Mapping[Any, Any]]] = {
        id(cls): (cls.__qualname__, vars(cls)) for cls in classes
    }
    while waiting:
        value = waiting.pop()
        function = getattr(value, "__func__", value)
        if not isinstance(function, FunctionType) or id(function) in namespaces:
            continue
        package = str(function.__module__).partition(".")[0]
        if package == torch.__name__ or package in sys.stdlib_module_names:
            continue
        held = dict(enumerate(map(_content, function.__closure__ or ())))
        module = function.__globals__
        if id(module) not in namespaces:
            waiting += module.values()
        waiting += held.values()
        namespaces[id(function)] = function.__qualname__, held
        # A generated function may have a module without a name.
        namespaces[id(module)] = str(module.get("__name__", function.__module__)), module
    for name, namespace in namespaces.values():
        for key, value in [*namespace.items()]:
            if not str(key).startswith("__"):
                yield from _entries(f"{name}.{key}", value)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(k for k in before.keys() | after.keys() if not _same(before.get(k), after.get(k)))


def listed(names: list[str]) -> str:
    others = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + f" and {others} others" * (others > 0) or "nothing"


def _entries(name: str, value: Any, depth: int = 5) -> Iterator[tuple[str, Any]]:
    # A container may contain itself: `depth` ends that.
    if depth and isinstance(value, dict | list | tuple | set | deque):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in items:
            yield from _entries(f"{name}.{key}", entry, depth - 1)
    else:
        yield name, value.detach().clone() if isinstance(value, Tensor) else value


def _same(before: Any, after: Any) -> bool:
    both = isinstance(before, Tensor) and isinstance(after, Tensor)
    return torch.equal(before, after) if both else before is after
