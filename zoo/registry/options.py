"""Options: the keyword-only parameters of what contributors add, and values for them.

Nothing here imports torch, so that looking at a signature stays cheap.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from zoo.registry.messages import UserError, unknown

Value = bool | int | float | str
"""What an option may hold: everything that survives a round trip through JSON and argv."""


def resolve(
    owner: str, factory: Callable[..., Any], given: Mapping[str, Value]
) -> dict[str, Value]:
    """Complete `given` by the defaults of `factory`, whose signature is the schema of its options.

    The keyword-only parameters of `factory` are its options. Text is converted to the annotated
    type, so that options may come from argv as they are.

    Raises:
        UserError: an option is unknown, ill-typed, or required and missing.
    """
    schema = options_of(factory)
    for name in given:
        if name not in schema:
            raise UserError(unknown(f"option of {owner}", name, schema))
    resolved: dict[str, Value] = {}
    for name, parameter in schema.items():
        if name not in given and parameter.default is parameter.empty:
            raise UserError(f"{owner} needs the option {name!r}; set {owner}.{name}=VALUE")
        value = given.get(name, parameter.default)
        resolved[name] = _convert(f"{owner}.{name}", value, parameter.annotation)
    return resolved


def options_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of `factory`: its keyword-only parameters, in order.

    Raises:
        UserError: the signature takes `*args` or `**kwargs`, which would swallow typing errors, or
            gives a default to what it takes by place, which no option could reach.
    """
    # eval_str: a plug-in may postpone the evaluation of its annotations.
    parameters = inspect.signature(factory, eval_str=True).parameters
    called = getattr(factory, "__qualname__", repr(factory))
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UserError(
                f"{called} takes {parameter}; name every option in the signature instead"
            )
        by_place = parameter.kind is not parameter.KEYWORD_ONLY
        if by_place and parameter.default is not parameter.empty:
            raise UserError(f"{called} takes {parameter} by its place; put a * before its options")
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def require_at_least(least: float, owner: str, why: str = "", /, **given: float) -> None:
    """Refuse options of `owner` that are below `least`; `why` says what that follows from.

    Raises:
        UserError: there is one.
    """
    rule = f"{least}, {why}" if why else f"{least}"
    for option, value in given.items():
        if value < least:
            raise UserError(f"{owner}.{option}={value} must be at least {rule}; raise it")


def require_readable(owner: str, factory: Callable[..., Any]) -> None:
    """Look at the options of `factory`, before a run gives one.

    Raises:
        UserError: the signature is none of options, or an option's type cannot be read from text, or
            its default is not of that type.
    """
    for name, option in options_of(factory).items():
        _require_annotated(f"{owner}.{name}", option.annotation)
        if option.default is not option.empty:
            _convert(f"{owner}.{name}", option.default, option.annotation)


_BOOLEANS = {"true": True, "false": False}

_GIVE = {
    bool: "true or false",
    int: "a whole number of 64 bits",
    float: "a finite number",
    str: "text",
}


def _require_annotated(name: str, annotation: Any) -> None:
    if get_origin(annotation) is Literal or annotation in _READERS:
        return
    wanted = getattr(annotation, "__name__", annotation)
    has = "not annotated" if annotation is inspect.Parameter.empty else f"annotated {wanted}"
    raise UserError(f"{name} is {has}; annotate it bool, int, float, str or Literal")


def _convert(name: str, value: Value, annotation: Any) -> Value:
    """Return `value` as the annotated type, reading text where argv gave text."""
    _require_annotated(name, annotation)
    if get_origin(annotation) is Literal:
        # By their text: argv gives text, and True must not pass for 1.
        choices = {str(choice): choice for choice in get_args(annotation)}
        if str(value) not in choices:
            raise UserError(f"{name}={value} is not one of {', '.join(choices)}; give one of them")
        return choices[str(value)]
    try:
        return _READERS[annotation](value)
    except (KeyError, TypeError, ValueError, OverflowError):
        give = f"give {_GIVE[annotation]}"
        raise UserError(f"{name}={value} is not of type {annotation.__name__}; {give}") from None


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
