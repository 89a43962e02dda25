"""Options: the keyword-only parameters of registered objects, and their values.

The annotation of an option is bool, int, float, str or a Literal, with bounds as pydantic writes
them: `Annotated[int, Field(ge=1)]`. Nothing here imports torch, and pydantic is imported when it is
needed, so that reading a signature is fast.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from zoo.registry.messages import UserError, unknown

# The types of an option that can be written as JSON and read from a command line.
Value = bool | int | float | str

_REMEDIES = {
    bool: "true or false",
    int: "a whole number of 64 bits",
    float: "a finite number",
    str: "text of Unicode",
}

# Messages by the type of a pydantic error.
_BOUNDS = {
    "greater_than_equal": "must be at least {ge}; raise it",
    "greater_than": "must be above {gt}; raise it",
    "less_than_equal": "must be at most {le}; lower it",
    "less_than": "must be below {lt}; lower it",
    "value_error": "{error}",
}


def resolve(
    owner: str, factory: Callable[..., Any], options: Mapping[str, Value]
) -> dict[str, Value]:
    """Complete `options` by the defaults of `factory`, and check every value."""
    # The keyword-only parameters of `factory` are its options. Text is converted to the annotated
    # type, so that options of a command line can be passed as they are.
    schema = options_of(factory)
    for name in options:
        if name not in schema:
            raise UserError(unknown(f"option of {owner}", name, schema))
    resolved: dict[str, Value] = {}
    for name, option in schema.items():
        if name not in options and option.default is option.empty:
            raise UserError(f"{owner} needs the option {name!r}; set {owner}.{name}=VALUE")
        value = options.get(name, option.default)
        resolved[name] = _validate(f"{owner}.{name}", value, option.annotation)
    return resolved


def changed(factory: Callable[..., Any], resolved: Mapping[str, Value]) -> dict[str, Value]:
    """The options of `resolved` that differ from the defaults of `factory`."""
    schema = options_of(factory)
    return {name: value for name, value in resolved.items() if value != schema[name].default}


def options_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of `factory`: its keyword-only parameters, in order."""
    # eval_str: a plug-in may postpone the evaluation of its annotations.
    parameters = inspect.signature(factory, eval_str=True).parameters
    label = getattr(factory, "__qualname__", repr(factory))
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UserError(f"{label} takes {parameter}; name every option in the signature")
        positional = parameter.kind is not parameter.KEYWORD_ONLY
        if positional and parameter.default is not parameter.empty:
            raise UserError(f"{label} takes {parameter} by position; put a * before its options")
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def check_options(owner: str, factory: Callable[..., Any]) -> None:
    for name, option in options_of(factory).items():
        label = f"{owner}.{name}"
        if option.default is option.empty:
            _base_type(label, option.annotation)
        else:
            _validate(label, option.default, option.annotation)


def require_at_least(minimum: float, owner: str, reason: str = "", /, **options: float) -> None:
    """Raise `UserError` if an option of `owner` is below `minimum`; `reason` explains the bound."""
    rule = f"{minimum}, {reason}" if reason else f"{minimum}"
    for option, value in options.items():
        if value < minimum:
            raise UserError(f"{owner}.{option}={value} must be at least {rule}; raise it")


def _base_type(label: str, annotation: Any) -> Any:
    base = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
    if get_origin(base) is Literal or base in _REMEDIES:
        return base
    problem = "not annotated" if base is inspect.Parameter.empty else f"annotated {base}"
    raise UserError(f"{label} is {problem}; annotate it bool, int, float, str or Literal")


def _validate(label: str, value: Value, annotation: Any) -> Value:
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    base = _base_type(label, annotation)
    if get_origin(base) is Literal:
        # Compared as text: a command line gives text only, and True is not 1.
        choices = {str(choice): choice for choice in get_args(base)}
        if str(value) not in choices:
            raise UserError(f"{label}={value} is not one of {', '.join(choices)}; give one of them")
        return choices[str(value)]
    text = isinstance(value, str)
    adapter = TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False, strict=not text))
    try:
        checked = (adapter.validate_strings if text else adapter.validate_python)(value)
        if text:
            value.encode()  # a path that is no UTF-8 could not be written to a record
        if base is not int or -(2**63) <= checked < 2**63:
            return checked
    except ValidationError as error:
        detail = error.errors()[0]
        if detail["type"] in _BOUNDS:
            rule = _BOUNDS[detail["type"]].format(**detail.get("ctx", {}))
            raise UserError(f"{label}={value} {rule}") from None
    except (OverflowError, UnicodeEncodeError):
        pass
    raise UserError(f"{label}={value} is not of type {base.__name__}; give {_REMEDIES[base]}")
