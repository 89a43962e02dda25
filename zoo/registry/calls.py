"""Checks the arguments of a public function against its annotations before the function runs."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

from zoo.registry.messages import UserError, unknown

P = ParamSpec("P")
T = TypeVar("T")

MOST_ITEMS = 10_000  # Items of a range that are checked: no list of seeds or lengths is longer

# The kind of error of pydantic for an argument that may be given by name only.
TOO_MANY = "unexpected_positional_argument"


def checked(function: Callable[P, T], like: Callable[..., Any] | None = None) -> Callable[P, T]:
    """Return `function`, which then rejects a call that does not match its annotations.

    Nothing is converted: True is no number, text is no list. Integers and arrays of NumPy count as
    those of Python. Arguments without annotation are not checked. The signature is that of `like`.
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
            rules = [each["msg"] for each in errors if each["loc"][0] == name]
            problem = _problem(first["type"], name, given.get(name), rules, signature)
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


def _problem(
    kind: str, name: int | str, value: Any, rules: list[str], signature: inspect.Signature
) -> str:
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
    if kind.startswith("missing"):
        return f"needs {name}; give it"
    # Of a union there is a rule for each type.
    rule = " or ".join(dict.fromkeys(rules)).replace(" or Input should be ", " or ")
    simple = bool | int | float | str | bytes | list | tuple | dict | set | range | None
    text = repr(value) if isinstance(value, simple) else f"a {type(value).__name__}"
    line = " ".join(text.split())
    line = line if len(line) <= 60 else f"{line[:59]}…"
    return f"got {name}={line}: {rule}; change it"
