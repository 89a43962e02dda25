"""What a call of a layer could write to: attributes, inputs, classes, modules, functions."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

SHOWN = 5  # Names of what changed, at most, in the detail of a check

LIBRARIES = {torch.__name__, *sys.stdlib_module_names}


def state_of(
    layer: nn.Module, inputs: Mapping[str, Tensor | None] | None = None
) -> Iterator[tuple[str, Any]]:
    packages, seen = _packages(layer), set[int]()
    for name, value in {"layer": layer, **(inputs or {})}.items():
        yield from _entries(name, value, packages, seen)


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
        if _package(function) in LIBRARIES:
            continue
        defaults = {"defaults": (function.__defaults__, function.__kwdefaults__)}
        cells = enumerate(map(_content, function.__closure__ or ()))
        held = vars(function) | defaults | dict(cells)
        module = function.__globals__
        if id(module) not in namespaces:
            waiting += module.values()
        waiting += held.values()
        namespaces[id(function)] = function.__qualname__, held
        # A generated function may have a module without a name.
        namespaces[id(module)] = str(module.get("__name__", function.__module__)), module
    packages, seen = _packages(layer), set[int]()
    for name, namespace in namespaces.values():
        for key, value in _variables(namespace):
            yield from _entries(f"{name}.{key}", value, packages, seen)


def _packages(layer: nn.Module) -> set[str]:
    # Of the class and its bases, but for the zoo, and for a notebook, which has no file.
    classes = type(layer).__mro__
    files = {cls: getattr(sys.modules.get(cls.__module__), "__file__", None) for cls in classes}
    return {_package(cls) for cls, file in files.items() if file} - LIBRARIES - {"zoo"}


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _variables(namespace: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return [(key, value) for key, value in namespace.items() if not str(key).startswith("__")]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    def same(before: Any, after: Any) -> bool:
        if isinstance(before, Tensor) and isinstance(after, Tensor):
            return torch.equal(before, after)
        return before is after or (isinstance(before, bytes | int) and before == after)

    return sorted(k for k in before.keys() | after.keys() if not same(before.get(k), after.get(k)))


def listed(names: list[str]) -> str:
    others = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + f" and {others} others" * (others > 0) or "nothing"


def _entries(
    name: str, value: Any, packages: set[str], seen: set[int], depth: int = 20
) -> Iterator[tuple[str, Any]]:
    # `seen`: objects refer to each other, and a container may contain itself.
    parts = None if id(value) in seen or not depth else _parts(value, packages)
    if parts is not None:
        seen.add(id(value))
        for key, part in parts:
            yield from _entries(f"{name}.{key}", part, packages, seen, depth - 1)
    elif isinstance(value, Tensor):
        yield name, value.detach().clone()
    elif hasattr(type(value), "cache_info"):
        yield name, value.cache_info().currsize
    else:
        yield name, value.tobytes() if hasattr(type(value), "tobytes") else value


def _parts(value: Any, packages: set[str]) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(value, dict):
        return [*value.items()]
    if isinstance(value, list | tuple | set | deque):
        return enumerate([*value])
    followed = _package(value if isinstance(value, type) else type(value)) in packages
    if followed or isinstance(value, nn.Module | SimpleNamespace):
        return _variables(getattr(value, "__dict__", {}))
    return None
