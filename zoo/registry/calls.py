"""Checks the arguments of a public function against its annotations before the function runs."""

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from zoo.registry.messages import UserError, unknown
from zoo.registry.options import Value

P = ParamSpec("P")
T = TypeVar("T")

MOST_ITEMS = 10_000  # Items of a range that are checked: no list of seeds or lengths is longer

# The kind of error of pydantic for an argument that may be given by name only.
TOO_MANY = "unexpected_positional_argument"

WORDS: Mapping[Any, str] = {
    bool: "True or False", int: "a whole number", float: "a finite number", str: "text",
    type(None): "None", Path: "a path", Value: "a bool, a finite number or text",
}  # fmt: skip

LIMITS = {"ge": "of at least {}", "gt": "above {}", "le": "of at most {}", "lt": "below {}"}


def checked(function: Callable[P, T], like: Callable[..., Any] | None = None) -> Callable[P, T]:
    """Return `function`, which then rejects a call that does not match its annotations.

    Nothing is converted: True is no number, text is no list. Integers and arrays of NumPy count as
    those of Python. Arguments without annotation are not checked.

    Args:
        function: is called with the arguments as they are given.
        like: the function whose signature counts; None for `function`.
    """

    @cache
    def validator() -> tuple[Callable[..., Any], inspect.Signature, type[ValueError]]:
        # Imported at the first call: decorating a function is fast.
        from pydantic import ConfigDict, ValidationError, validate_call

        @wraps(like or function)
        def accept(*_: Any, **__: Any) -> None: ...

        # The type of the result may be one that only a type checker imports.
        hints = accept.__annotations__
        accept.__annotations__ = {name: hints[name] for name in hints if name != "return"}
        config = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
        signature = inspect.signature(accept)
        return validate_call(config=config)(accept), signature, ValidationError

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        accept, signature, rejection = validator()
        try:
            accept(*map(_plain, arguments), **{n: _plain(value) for n, value in options.items()})
        except rejection as error:
            errors = cast(Any, error).errors(include_url=False)
            # Arguments that are given by position are not missing.
            first = min(errors, key=lambda each: each["type"] != TOO_MANY)
            name, given = first["loc"][0], {**dict(enumerate(arguments)), **options}
            problem = _problem(first["type"], name, given.get(name), signature)
            package = function.__module__.partition(".")[0]
            label = f"{package}.{function.__qualname__.removesuffix('.__init__')}"
            raise UserError(f"{label} {problem}") from None
        return function(*arguments, **options)

    return call


def _plain(value: Any) -> Any:
    if isinstance(value, range):
        return [*value[: MOST_ITEMS + 1]]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)] if isinstance(value, list) else tuple(map(_plain, value))
    return value.tolist() if type(value).__module__ == "numpy" else value


def _problem(kind: str, name: int | str, value: Any, signature: inspect.Signature) -> str:
    parameters = signature.parameters
    names = [n for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
    positional = [n for n in names if parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY]
    if kind == TOO_MANY:
        return f"takes {', '.join(positional) or 'nothing'} by position; give the others by name"
    if isinstance(name, int):
        name = positional[name]
    if kind == "unexpected_keyword_argument":
        return f"takes no {name}: {unknown('argument', name, names)}"
    if kind == "multiple_argument_values":
        return f"takes one {name}, not two; give it by position or by name"
    # A name that is no parameter is one of `**options`, which come last.
    parameter = parameters[name] if name in parameters else [*parameters.values()][-1]
    expected = described(parameter.annotation)
    if kind.startswith("missing"):
        return f"needs {name}: {expected}; give it"
    return f"takes {expected} as {name}, not {_short(value)}; change it"


def described(annotation: Any) -> str:
    if words := WORDS.get(annotation):
        return words
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        bounds = [bound for field in inner[1:] for bound in field.metadata]
        limits = [
            text.format(getattr(bound, name))
            for bound in bounds
            for name, text in LIMITS.items()
            if hasattr(bound, name)
        ]
        words = described(inner[0])
        if any(hasattr(bound, "min_length") for bound in bounds):
            words = f"a non-empty {words[2:]}" if words.startswith("a ") else f"non-empty {words}"
        return " ".join([words, " and ".join(limits)]).strip()
    if kind in (Union, types.UnionType):
        return " or ".join(map(described, inner))
    if kind is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if kind is type:
        return f"a subclass of {inner[0].__name__}"
    if kind is not None and issubclass(kind, Mapping):
        return f"a dict, each value {described(inner[1])}"
    if kind is not None and issubclass(kind, Sequence):
        return f"a {'tuple' if kind is tuple else 'list'}, each item {described(inner[0])}"
    return f"{'an' if annotation.__name__[0] in 'AEIOU' else 'a'} {annotation.__name__}"


def _short(value: Any) -> str:
    # On one line, of at most 60 characters.
    simple = bool | int | float | str | bytes | list | tuple | dict | set | range | None
    text = repr(value) if isinstance(value, simple) else f"a {type(value).__name__}"
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"
