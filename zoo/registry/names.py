"""Registries: objects of one kind by name, built in or from plug-ins; no import of torch."""

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, TypeVar, get_origin

from zoo.registry.messages import UserError, in_one_line, unknown
from zoo.registry.options import check_options

T = TypeVar("T")
Registered = TypeVar("Registered")

NAME_RULE = "may contain letters, digits, '-' and '_' only"


class Registry(Generic[T]):
    """Finds objects of one kind by name.

    Built-in objects are in the modules of `packages`, registered with `@registry.register("name")`.
    Plug-ins name theirs in the entry-point group `group`. Both are imported at first use.
    """

    def __init__(
        self, kind: str, *packages: str, group: str, base: type = object, wrapper: str = ""
    ) -> None:
        # Plug-ins derive from `base`, and set its annotated class attributes; a `name` among them
        # is the name of the entry point. `wrapper` says in messages how a class with a method
        # `forward`, called NAME, becomes one.
        self.kind = kind
        self._base, self._wrapper = base, wrapper
        self._packages = packages
        self._group = group
        self._registered: dict[str, T] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[Registered], Registered]:
        if not _is_valid(name):
            raise UserError(f"{self.kind} name {name!r} {NAME_RULE}; choose another name")

        def decorate(registered: Registered) -> Registered:
            entry: Any = registered
            if self._registered.setdefault(name, entry) is not entry:
                raise UserError(f"{self.kind} {name!r} is registered already; choose another name")
            return registered

        return decorate

    def names(self) -> list[str]:
        """All names, sorted; plug-ins are listed without being imported."""
        return sorted({*self._built_in(), *self._entry_points()})

    def find(self, name: str) -> T:
        if not self._complete and name not in self._registered:
            self._import_modules(name.replace("-", "_"))
        if name in self._registered or name in self._built_in():
            return self._registered[name]
        if name in (points := self._entry_points()):
            return self._load(points[name])
        raise UserError(unknown(self.kind, name, {*self._registered, *points}))

    def items(self) -> list[tuple[str, T]]:
        """All pairs of name and object, sorted; a broken plug-in is left out with a warning."""
        pairs = dict(self._built_in())
        for name, point in self._entry_points().items():
            try:
                pairs[name] = self._load(point)
            except UserError as error:
                warnings.warn(str(error), stacklevel=2)
        return sorted(pairs.items())

    def built_in(self) -> list[tuple[str, T]]:
        """As `items`, without plug-ins: what a file for all users may name."""
        return sorted(self._built_in().items())

    def name_class(self, at: str) -> str:
        """Add the plug-in at `MODULE:CLASS` by the name of its class, or its own; return that."""
        # The processes that this one starts have it too: an environment variable names it.
        name, key = at.rpartition(":")[2], variable(self._group)
        if "name" in inspect.get_annotations(self._base):
            with suppress(Exception):  # raised again when it is loaded
                name = load_guarded(metadata.EntryPoint(name, at, self._group).load).name
        texts = os.environ.get(key, "").split()
        if (text := f"{name}={at}") in texts:
            return name
        if not _is_valid(name) or name in self.names():
            rule = "is taken" if _is_valid(name) else NAME_RULE
            raise UserError(f"{self.kind} {at!r}: the name {name!r} {rule}; rename the class")
        self._load(
            metadata.EntryPoint(name, at, self._group), "fix it, or give another MODULE:CLASS"
        )
        os.environ[key] = " ".join([*texts, text])
        return name

    def package(self, name: str) -> dict[str, str]:
        """Name and version of the package that defines the plug-in `name`; empty for others."""
        point = self._entry_points().get(name)
        return {point.dist.name: point.dist.version} if point and point.dist else {}

    def check(self, plug_in: Any) -> None:
        """Raise `TypeError` if it is of another kind, or does not set or define what it must."""
        if (base := self._base) is object:
            return
        if not (isinstance(plug_in, type) and issubclass(plug_in, base)):
            label = getattr(plug_in, "__name__", repr(plug_in))
            is_module = isinstance(plug_in, type) and hasattr(plug_in, "forward")
            wrapper = f"; wrap it: {self._wrapper.replace('NAME', label)}" if is_module else ""
            name = f"{base.__module__}.{base.__name__}"
            raise TypeError(f"{label} is not a subclass of {name}{wrapper}")
        label = plug_in.__name__
        for name, annotation in inspect.get_annotations(base).items():
            if get_origin(annotation) is ClassVar and not hasattr(plug_in, name):
                raise TypeError(f"{label} sets no class attribute {name!r}")
        if inspect.isabstract(plug_in):
            missing = ", ".join(sorted(plug_in.__abstractmethods__))
            raise TypeError(f"{label} does not define {missing}")
        check_options(label, plug_in)

    def _load(self, point: metadata.EntryPoint, remedy: str = "fix or uninstall that plug-in") -> T:
        try:
            plug_in = load_guarded(point.load)
            self.check(plug_in)
            if "name" in inspect.get_annotations(self._base) and plug_in.name != point.name:
                raise TypeError(f"the name of {plug_in.__name__} is {plug_in.name!r}")
        except Exception as error:
            absent = error.name if isinstance(error, ModuleNotFoundError) else ""
            # The module of a class that is named, and of no installed package.
            if absent == point.module.split(".")[0] and not point.dist:
                remedy = f"run in the folder of {absent}.py, or give another MODULE:CLASS"
            raise UserError(f"{self.kind} {point.name!r} cannot be loaded from {point.value}: "
                            f"{in_one_line(error)}; {remedy}") from error  # fmt: skip
        return plug_in

    def _built_in(self) -> dict[str, T]:
        if not self._complete:
            self._import_modules()
            self._complete = True
        return self._registered

    def _import_modules(self, name: str = "") -> None:
        # With a name only modules of that name: most objects are in one.
        for package in self._packages:
            paths = getattr(import_module(package), "__path__", ())  # a module has none
            for module in iter_modules(paths, prefix=f"{package}."):
                if not name or module.name == f"{package}.{name}":
                    import_module(module.name)

    def _entry_points(self) -> dict[str, metadata.EntryPoint]:
        points: dict[str, metadata.EntryPoint] = {}
        for point in entry_points(self._group):
            taken = point.name in self._built_in() or point.name in points
            if not taken and _is_valid(point.name):
                points[point.name] = point
                continue
            message = f"{self.kind} {point.name!r} from {point.value} is ignored"
            reason = "the name is taken" if taken else f"a name {NAME_RULE}"
            warnings.warn(f"{message}: {reason}; rename it", stacklevel=3)
        return points


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """The entry points of a group, of all installed packages and of `name_class`."""
    try:
        installed = metadata.entry_points(group=group)
    except Exception as error:  # the parser of the standard library has no error type
        raise UserError(
            f"the entry points of {_malformed()} cannot be read ({in_one_line(error)}); reinstall "
            "or uninstall that package"
        ) from error
    named = (text.partition("=") for text in os.environ.get(variable(group), "").split())
    return [*installed, *(metadata.EntryPoint(name, at, group) for name, _, at in named)]


def variable(group: str) -> str:
    # NAME=MODULE:CLASS, separated by spaces.
    return group.upper().replace(".", "_")


def _malformed() -> str:
    for distribution in metadata.distributions():
        try:
            _ = distribution.entry_points
        except Exception:
            with suppress(Exception):  # its metadata may be malformed too
                return distribution.metadata["Name"]
    return "an installed package"


def load_guarded(load: Callable[[], Any]) -> Any:
    """Import a plug-in by `load`, to stderr; what is no `Exception` is raised as `ImportError`."""
    try:
        with redirect_stdout(sys.stderr):
            return load()
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise ImportError(f"it exits on import, with {error.code!r}") from error
    except BaseException as error:
        raise ImportError(in_one_line(error)) from error


def build(label: str, make: Callable[[], T]) -> T:
    """Return the result of `make`; raise any error, which may be of a plug-in, as `UserError`."""
    try:
        return make()
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        message = f"{label} cannot be built ({in_one_line(error)}); fix it, or its options"
        raise UserError(message) from error


def _is_valid(name: str) -> bool:
    # For a command line, a composition and a file name.
    return name.replace("-", "").replace("_", "").isalnum()
