"""Names for things that contributors add, and the checking of the options those things take.

Nothing here imports torch, so that looking up a name stays cheap.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin

from zoo.messages import in_one_line, unknown

T = TypeVar("T")

Value = bool | int | float | str
"""What an option may hold: everything that survives a round trip through JSON and argv."""


NAMES = "may hold letters, digits, '-' and '_' only"


class Refused(ValueError):
    """Bad input. The message is one line that names the value, the rule and the remedy."""


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
            packages: the packages whose modules hold the built-in things.
            group: the entry-point group of the plug-ins.
            base: the class that plug-ins derive from, whose bare class attributes they must set.
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
            Refused: the name is taken, or holds a character that argv or a composition needs.
        """
        if not _usable(name):
            raise Refused(f"{self.kind} name {name!r} {NAMES}; choose another name")

        def enrol(thing: T) -> T:
            if name in self._own:
                raise Refused(f"{self.kind} {name!r} is registered already; choose another name")
            self._own[name] = thing
            return thing

        return enrol

    def withhold(self, name: str, reason: str) -> None:
        """Leave `name` out of every list; who asks for it gets `reason`, remedy included."""
        self._absent[name] = reason

    def names(self) -> list[str]:
        """Every name that can be asked for, sorted; plug-ins are listed without being imported."""
        return sorted({*self._built_in(), *self._plug_ins()})

    def find(self, name: str) -> T:
        """Return the thing called `name`.

        Raises:
            Refused: nothing is called so (the nearest name is offered), it cannot run on this
                machine, or its plug-in is broken.
        """
        built_in = self._built_in()
        if name in built_in:
            return built_in[name]
        if name in self._absent:
            raise Refused(f"{self.kind} {name!r} cannot run here: {self._absent[name]}")
        plug_ins = self._plug_ins()
        if name not in plug_ins:
            raise Refused(unknown(self.kind, name, {*built_in, *plug_ins}))
        return self._load(plug_ins[name])

    def items(self) -> list[tuple[str, T]]:
        """Every usable (name, thing), sorted; a broken plug-in is left out with a warning."""
        found = dict(self._built_in())
        for name, point in self._plug_ins().items():
            try:
                found[name] = self._load(point)
            except Refused as error:
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
        except Exception as error:
            # Whatever a plug-in raises on import is its owner's to read.
            raise Refused(
                f"{self.kind} {point.name!r} cannot be loaded from {point.value}: "
                f"{in_one_line(error)}; mend or uninstall that plug-in"
            ) from error
        return found

    def require(self, found: Any) -> None:
        """Look at what comes from outside, before anybody trips over it.

        Raises:
            TypeError: it is not of this registry's kind, or does not set or define what it must.
            Refused: its options, or their defaults, are none that a run could give.
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
        for name, option in options_of(found).items():
            if option.default is not option.empty:
                _convert(f"{found.__name__}.{name}", option.default, option.annotation)

    def _built_in(self) -> dict[str, T]:
        if not self._complete:
            for package in self._packages:
                for module in iter_modules(import_module(package).__path__, prefix=f"{package}."):
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
        Refused: it raised something; whatever that is, in one line.
    """
    try:
        return make()
    except Refused:
        raise
    except Exception as error:
        reason = in_one_line(error)
        raise Refused(f"{what} cannot be built ({reason}); mend it, or its options") from error


def _usable(name: str) -> bool:
    """Whether argv, a composition and the name of a file can hold `name`."""
    return name.replace("-", "").replace("_", "").isalnum()


def resolve(
    owner: str, factory: Callable[..., Any], given: Mapping[str, Value]
) -> dict[str, Value]:
    """Complete `given` by the defaults of `factory`, whose signature is the schema of its options.

    The keyword-only parameters of `factory` are its options. Text is converted to the annotated
    type, so that options may come from argv as they are.

    Raises:
        Refused: an option is unknown, ill-typed, or required and missing.
    """
    schema = options_of(factory)
    for name in given:
        if name not in schema:
            raise Refused(unknown(f"option of {owner}", name, schema))
    resolved: dict[str, Value] = {}
    for name, parameter in schema.items():
        if name not in given and parameter.default is parameter.empty:
            raise Refused(f"{owner} needs the option {name!r}; set {owner}.{name}=VALUE")
        value = given.get(name, parameter.default)
        resolved[name] = _convert(f"{owner}.{name}", value, parameter.annotation)
    return resolved


def options_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of `factory`: its keyword-only parameters, in order.

    Raises:
        Refused: the signature takes `*args` or `**kwargs`, which would swallow typing errors, or
            gives a default to what it takes by place, which no option could reach.
    """
    # eval_str: a plug-in may postpone the evaluation of its annotations.
    parameters = inspect.signature(factory, eval_str=True).parameters
    called = getattr(factory, "__qualname__", repr(factory))
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Refused(f"{called} takes {parameter}; name every option in the signature instead")
        by_place = parameter.kind is not parameter.KEYWORD_ONLY
        if by_place and parameter.default is not parameter.empty:
            raise Refused(f"{called} takes {parameter} by its place; put a * before its options")
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def require_at_least(least: float, owner: str, **given: float) -> None:
    """Refuse options of `owner` that are below `least`.

    Raises:
        Refused: there is one.
    """
    for option, value in given.items():
        if value < least:
            raise Refused(f"{owner}.{option}={value} must be at least {least}; raise it")


_BOOLEANS = {"true": True, "false": False}

_GIVE = {
    bool: "true or false",
    int: "a whole number of 64 bits",
    float: "a finite number",
    str: "text",
}


def _convert(name: str, value: Value, annotation: Any) -> Value:
    """Return `value` as the annotated type, reading text where argv gave text."""
    if get_origin(annotation) is Literal:
        # By their text: argv gives text, and True must not pass for 1.
        choices = {str(choice): choice for choice in get_args(annotation)}
        if str(value) not in choices:
            raise Refused(f"{name}={value} is not one of {', '.join(choices)}; give one of them")
        return choices[str(value)]
    wanted = getattr(annotation, "__name__", annotation)
    if annotation not in _READERS:
        has = "not annotated" if annotation is inspect.Parameter.empty else f"annotated {wanted}"
        raise Refused(f"{name} is {has}; annotate it bool, int, float, str or Literal")
    try:
        return _READERS[annotation](value)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Refused(f"{name}={value} is not of type {wanted}; give {_GIVE[annotation]}") from None


def _whole(value: Value) -> int:
    if isinstance(value, bool | float):
        raise ValueError
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _real(value: Value) -> float:
    number = float("nan") if isinstance(value, bool) else float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError
    return number


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _boolean(value: Value) -> bool:
    return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]


_READERS: dict[Any, Callable[[Value], Value]] = {
    bool: _boolean,
    int: _whole,
    float: _real,
    str: _text,
}
