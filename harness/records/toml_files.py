"""Files of recipes and suites: TOML, read with one clear line for every error."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from harness.records.fields import Frozen
from zoo.registry import UserError, unknown

DEPTH = 6  # Levels of a file, at most: tasks, TASK, variants, VARIANT, OPTION, values of a list
MOST_BYTES = 2**18  # Size of a file, at most
# A dotted key of more than 16 names: parsing takes quadratic time.
DEEP_KEY = re.compile(r"(?:[^\s.,=\[\]{}]{1,64}\s*\.\s*){16}")
Table = dict[str, Any]
Parts = Mapping[str, type[Frozen]]
F = TypeVar("F", bound=Frozen)


def read_toml(path: Path, label: str, remedy: str) -> Table:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", path.stem):
        raise UserError(
            f"{label}: a {label.split()[0]}'s name holds up to 64 letters, digits, '-', '_' and "
            "'.'; rename the file"
        )
    try:
        if not path.is_file():
            raise UserError(f"{label} is not a file; {remedy}")
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        text = path.read_text("utf-8")
        if DEEP_KEY.search(text):
            raise ValueError("it has a key of more than 16 names")
        tables = tomllib.loads(text)
        _require_small(tables)
    except UserError:
        raise
    except (OSError, RecursionError, ValueError) as error:  # of UTF-8, of TOML, of long numbers
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{label} cannot be read ({reason}); correct the file") from error
    return tables


def _require_small(value: Any, levels: int = DEPTH) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("it has an integer of more than 64 bits")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inner and not levels:
        raise ValueError(f"it has tables of more than {DEPTH} levels")
    for item in inner:
        _require_small(item, levels - 1)


def merged(base: Table, table: Table) -> Table:
    found = {**base, **table}
    for name in base.keys() & table.keys():
        if isinstance(base[name], dict) and isinstance(table[name], dict):
            found[name] = merged(base[name], table[name])
    return found


def validated(
    kind: type[F], values: Table, label: str, *, what: str = "part", parts: Parts | None = None,
    strict: bool = False,
) -> F:  # fmt: skip
    # Without `strict`, text is read as a number where one is needed, as on a command line.
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        # pydantic takes a boolean for a number.
        field = kind.model_fields.get(name)
        takes_boolean = field is None or "bool" in repr(field.annotation)
        if any(isinstance(item, bool) for item in items) and not takes_boolean:
            raise UserError(f"{label}{name}={value} is a boolean; give another value")
    try:
        if strict:
            # As JSON: its lists count as tuples.
            text = to_json(values, inf_nan_mode="constants")
            return kind.model_validate_json(text, strict=True)
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{label}{_first_error(error, kind, what, parts or {})}") from error


def _first_error(error: ValidationError, kind: type[Frozen], what: str, parts: Parts) -> str:
    first = error.errors(include_url=False)[0]
    path = [str(step) for step in first["loc"]]
    field = ".".join(path)
    if first["type"] == "extra_forbidden":
        fields = (parts.get(path[0], kind) if len(path) > 1 else kind).model_fields
        return unknown(what, path[-1], set(fields) - {"name", "question"})
    if first["type"] == "missing":
        return f"{field} is missing; set it"
    message = first["msg"].removeprefix("Value error, ")
    if not field:
        return message
    rule = message[:1].lower() + message[1:].partition(", unable")[0]
    return f"{field}={' '.join(str(first['input']).split())}: {rule}; give another value"
