"""What a call of a layer could write to: attributes, inputs, classes, modules, functions."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CellType, FunctionType, ModuleType
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
    # Of the classes, of the functions that they call, of the modules of these and of modules beside
    # the classes; not of PyTorch's.
    # A class of ABCMeta that `type` makes is of the module `abc`: all classes are looked at.
    classes = {cls for module in layer.modules() for cls in type(module).__mro__}
    packages = {_package(cls.__module__) for cls in classes}
    # A class of a notebook has no file: nothing is beside it.
    folders = {_folder(sys.modules.get(cls.__module__)) for cls in classes} - {Path()}
    waiting = [value for cls in classes for value in vars(cls).values()]
    namespaces: dict[int, tuple[str, Mapping[Any, Any]]] = {
        id(cls): (cls.__qualname__, vars(cls)) for cls in classes
    }
    while waiting:
        value = waiting.pop()
        value = getattr(value, "__func__", value)
        if id(value) in namespaces or not _is_followed(value, packages, folders):
            continue
        module = vars(value)
        if not isinstance(value, ModuleType):
            held = _held(value)
            waiting += held.values()
            namespaces[id(value)] = value.__qualname__, held
            module = getattr(value, "__globals__", module)
        if id(module) not in namespaces:
            waiting += module.values()
        # A generated function may have a module without a name.
        namespaces[id(module)] = str(module.get("__name__", value.__name__)), module
    for name, namespace in namespaces.values():
        for key, value in [*namespace.items()]:
            if not str(key).startswith("__"):
                yield from _entries(f"{name}.{key}", value)


def _is_followed(value: Any, packages: set[str], folders: set[Path]) -> bool:
    if isinstance(value, ModuleType):
        beside = _package(value.__name__) in packages or _folder(value) in folders
        return beside and not _is_of_library(value.__name__)
    is_function = isinstance(value, FunctionType) or hasattr(type(value), "cache_info")
    return is_function and not _is_of_library(value.__module__)


def _is_of_library(module: object) -> bool:
    return _package(module) in {torch.__name__, *sys.stdlib_module_names}


def _package(module: object) -> str:
    return str(module).partition(".")[0]


def _folder(module: ModuleType | None) -> Path:
    return Path(getattr(module, "__file__", None) or "").parent


def _held(function: Any) -> dict[Any, Any]:
    # Attributes, defaults, the variables of its closure, and the size of its cache.
    names = "__defaults__", "__kwdefaults__", "__closure__"
    defaults, named, cells = (getattr(function, name, None) for name in names)
    held = vars(function) | {"defaults": (defaults, named)}
    if hasattr(function, "cache_info"):
        held["cached"] = function.cache_info().currsize
    return held | dict(enumerate(map(_content, cells or ())))


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
    if depth and _is_object(value):
        value = vars(value)
    if depth and isinstance(value, dict | list | tuple | set | deque):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in [*items]:
            yield from _entries(f"{name}.{key}", entry, depth - 1)
    elif isinstance(value, Tensor):
        yield name, value.detach().clone()
    else:
        yield name, value.tobytes() if hasattr(type(value), "tobytes") else value


def _is_object(value: Any) -> bool:
    kinds = type | ModuleType | FunctionType | Tensor | nn.Module
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, kinds)
        and not _is_of_library(type(value).__module__)
    )


def _same(before: Any, after: Any) -> bool:
    both = isinstance(before, Tensor) and isinstance(after, Tensor)
    if both:
        return torch.equal(before, after)
    return before is after or (isinstance(before, bytes) and before == after)
