"""Names for things that contributors add.

Nothing here imports torch, so that looking up a name stays cheap.
"""

import inspect
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, TypeVar, get_origin

from zoo.registry.messages import UserError, in_one_line, unknown
from zoo.registry.options import require_readable

T = TypeVar("T")

NAMES = "may hold letters, digits, '-' and '_' only"


class Registry(Generic[T]):
    """Finds things of one kind by name.

    Built-in things live in the modules of `packages`, one or several a module, and enrol with
    `@registry.register("name")`. Outsiders name theirs in the entry-point group `group`. Both are
    imported on first use only.
    """

    def __init__(self, kind: str, *packages: str, group: str, base: type = object) -> None:
        """Describe the registry; nothing is imported yet.

        Args:
            kind: what the things are called in messages.
            packages: the modules, or packages of modules, that hold the built-in things.
            group: the entry-point group of the plug-ins.
            base: the class that plug-ins derive from, whose bare class attributes they must set;
                where `name` is one of them, it is the name that they are found by.
        """
        self.kind = kind
        self._base = base
        self._packages = packages
        self._group = group
        self._own: dict[str, T] = {}
        self._absent: dict[str, str] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enrols its argument under `name`.

        Raises:
            UserError: the name is taken, or holds a character that argv or a composition needs.
        """
        if not _usable(name):
            raise UserError(f"{self.kind} name {name!r} {NAMES}; choose another name")

        def decorate(thing: T) -> T:
            if name in self._own:
                raise UserError(f"{self.kind} {name!r} is registered already; choose another name")
            self._own[name] = thing
            return thing

        return decorate

    def withhold(self, name: str, reason: str) -> None:
        """Leave `name` out of every list; who asks for it gets `reason`, remedy included."""
        self._absent[name] = reason

    def names(self) -> list[str]:
        """Every name that can be asked for, sorted; plug-ins are listed without being imported."""
        return sorted({*self._built_in(), *self._plug_ins()})

    def find(self, name: str) -> T:
        """Return the thing called `name`.

        Raises:
            UserError: nothing is called so (the nearest name is offered), it cannot run on this
                machine, or its plug-in is broken.
        """
        built_in = self._built_in()
        if name in built_in:
            return built_in[name]
        if name in self._absent:
            raise UserError(f"{self.kind} {name!r} cannot run here: {self._absent[name]}")
        plug_ins = self._plug_ins()
        if name not in plug_ins:
            raise UserError(unknown(self.kind, name, {*built_in, *plug_ins}))
        return self._load(plug_ins[name])

    def items(self) -> list[tuple[str, T]]:
        """Every usable (name, thing), sorted; a broken plug-in is left out with a warning."""
        found = dict(self._built_in())
        for name, point in self._plug_ins().items():
            try:
                found[name] = self._load(point)
            except UserError as error:
                warnings.warn(str(error), stacklevel=2)
        return sorted(found.items())

    def package(self, name: str) -> dict[str, str]:
        """The version of the package that `name` is a plug-in from, by the package's name."""
        point = self._plug_ins().get(name)
        return {point.dist.name: point.dist.version} if point and point.dist else {}

    def _load(self, point: metadata.EntryPoint) -> T:
        try:
            found = foreign(point.load)
            self.require(found)
            if "name" in inspect.get_annotations(self._base) and found.name != point.name:
                raise TypeError(f"{found.__name__} calls itself {found.name!r}")
        except Exception as error:
            # Whatever a plug-in raises on import is its owner's to read.
            raise UserError(
                f"{self.kind} {point.name!r} cannot be loaded from {point.value}: "
                f"{in_one_line(error)}; mend or uninstall that plug-in"
            ) from error
        return found

    def require(self, found: Any) -> None:
        """Look at what comes from outside, before anybody trips over it.

        Raises:
            TypeError: it is not of this registry's kind, or does not set or define what it must.
            UserError: its options are none that a run could give; see `zoo.registry.options`.
        """
        base = self._base
        if base is object:
            return
        if not (isinstance(found, type) and issubclass(found, base)):
            called = getattr(found, "__name__", repr(found))
            raise TypeError(f"{called} is not a subclass of {base.__module__}.{base.__name__}")
        for name, annotation in inspect.get_annotations(base).items():
            if get_origin(annotation) is ClassVar and not hasattr(found, name):
                raise TypeError(f"{found.__name__} sets no class attribute {name!r}")
        if inspect.isabstract(found):
            missing = ", ".join(sorted(found.__abstractmethods__))
            raise TypeError(f"{found.__name__} does not define {missing}")
        require_readable(found.__name__, found)

    def _built_in(self) -> dict[str, T]:
        if not self._complete:
            for package in self._packages:
                paths = getattr(import_module(package), "__path__", ())  # none of a module
                for module in iter_modules(paths, prefix=f"{package}."):
                    import_module(module.name)
            self._complete = True
        return self._own

    def _plug_ins(self) -> dict[str, metadata.EntryPoint]:
        found: dict[str, metadata.EntryPoint] = {}
        for point in metadata.entry_points(group=self._group):
            taken = point.name in self._built_in() or point.name in found
            if taken or not _usable(point.name):
                message = f"{self.kind} {point.name!r} from {point.value} is ignored"
                why = "the name is taken" if taken else f"a name {NAMES}"
                warnings.warn(f"{message}: {why}; rename it", stacklevel=3)
                continue
            found[point.name] = point
        return found


def foreign(load: Callable[[], Any]) -> Any:
    """What `load` imports: foreign code, which may neither write to stdout nor end the process.

    Raises:
        ImportError: it tried to exit.
    """
    try:
        with redirect_stdout(sys.stderr):
            return load()
    except SystemExit as error:
        raise ImportError(f"it exits on import, with {error.code!r}") from error


def built(what: str, make: Callable[[], T]) -> T:
    """What `make` builds.

    Raises:
        UserError: it raised something; whatever that is, in one line.
    """
    try:
        return make()
    except UserError:
        raise
    except Exception as error:
        reason = in_one_line(error)
        raise UserError(f"{what} cannot be built ({reason}); mend it, or its options") from error


def _usable(name: str) -> bool:
    """Whether argv, a composition and the name of a file can hold `name`."""
    return name.replace("-", "").replace("_", "").isalnum()
