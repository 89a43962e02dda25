"""What is registered: variants and tasks with their options, and the names of the budgets.

Without plug-ins that is the content of `list.json`, since the import of the variants imports torch,
which takes seconds. `python -m harness.cli.pages` writes that file.
"""

import inspect
import json
import re
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo.registry import UserError, entry_points, options_of

BUILT_IN = Path(__file__).with_name("list.json")

BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
"""The bounds of a number in a JSON schema."""

Entry = dict[str, Any]
"""A variant or a task."""


def described() -> dict[str, list[Any]]:
    """Every variant and task with its options, and the names of the budgets."""
    if any(map(entry_points, ("zoo.variants", "tasks.tasks"))):
        return registered(plug_ins=True)
    return json.loads(BUILT_IN.read_text("utf-8"))


def registered(plug_ins: bool) -> dict[str, list[Any]]:
    """As `described`, made from everything that is registered, or without the plug-ins."""
    from harness import budgets
    from tasks.registry import tasks
    from zoo.variants import variants

    kinds = [
        registry.items() if plug_ins else registry.built_in() for registry in (variants, tasks)
    ]
    return {
        "variants": [_variant(name, variant) for name, variant in kinds[0]],
        "tasks": [entry for name, task in kinds[1] if (entry := _task(name, task))],
        "budgets": budgets.names(),
    }


def meanings(factory: type) -> dict[str, str]:
    """What the docstrings of a class and of its bases say of each parameter.

    That is an entry of a section, `name: text`, or a first line that begins with its name.
    """
    texts: dict[str, str] = {}
    for owner in reversed(factory.__mro__):
        for documented in (owner, vars(owner).get("__init__")):
            docstring = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
            found = re.findall(r"^ {4}(\w[\w, ]*): (.+(?:\n {8}.+)*)", docstring, re.MULTILINE)
            found += re.findall(r"\A`(\w+)`: (.+)", docstring)
            for names, text in found:
                texts |= dict.fromkeys(names.split(", "), " ".join(text.split()).rstrip("."))
    return texts


def _variant(name: str, variant: Any) -> Entry:
    from harness.cli import models

    return {
        "name": name,
        **models.described(name, variant),
        "formula": models.formula_of(variant),
        "family": variant.family,
        **asdict(variant.traits),
        "requires": variant.requires,
        "options": _options(variant),
    }


def _task(name: str, factory: Any) -> Entry | None:
    """What is known of a task; None, with a warning, where it cannot be built."""
    from tasks import create

    title = (factory.__doc__ or "").partition("\n")[0].rstrip(".")
    entry = {"name": name, "version": factory.version, "title": title}
    options = _options(factory)
    size: Entry = dict.fromkeys(("classes", "length", "causal"))
    # Without a value of each option, the size is unknown.
    if all(option["default"] is not None for option in options):
        try:
            task = create(name)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            return None
        size = {"classes": task.classes, "length": task.max_len, "causal": task.causal}
    return {**entry, **size, "requires": factory.packages, "options": options}


def _options(factory: Any) -> list[Entry]:
    """Name, type, default and meaning of every option; the default is None where it is required."""
    texts = meanings(factory)
    return [
        {
            "name": name,
            "type": _type(option.annotation),
            "default": None if option.default is option.empty else option.default,
            "meaning": texts.get(name, ""),
        }
        for name, option in options_of(factory).items()
    ]


def _type(annotation: Any) -> str:
    """The type of an option with its bounds, or its choices."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(annotation).json_schema()
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(map(str, choices))
    names = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
    bounds = [f"{sign} {schema[bound]:g}" for bound, sign in BOUNDS.items() if bound in schema]
    return " ".join([names[schema["type"]], *bounds])
