"""What the runs of one board share, as text: its title and its recipe.

Both are made from all fields of a specification: a field that is added to `RunSpec` is in the
recipe, in the CSV and, where boards differ by it, in their titles.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.records.spec import RunSpec, field_at
from harness.records.tuning import Value, point

VARYING = frozenset({"attention", "layers", "options", "seed"})
"""Fields of a specification by which the runs of one board differ."""

WORDS = {
    "model.dim": "width",
    "model.feed_forward": "feed-forward width",
    "model.head": "classifier width",
    "model.short_conv": "taps of short convolutions",
    "train.warmup": "warm-up steps",
    "train.lr": "learning rate",
    "train.evaluations": "validation evaluations",
}
"""Text for fields whose names are not clear; other fields have their names."""

PARTS = {"model": "Model", "train": "Training"}

CHOSEN = "of the row"
"""In place of the value of a field that was chosen for each row."""

MATCHED = "model.feed_forward"
"""The field that is chosen for each row where models are matched."""

PRECISION = "train.precision"
"""The field in which rows of one board may differ: each has the precision in which it is faster."""

Setting = dict[str, object]
"""Value of every field that the runs of a board share, by its path."""


def _fields() -> Iterator[tuple[str, FieldInfo]]:
    for name, field in RunSpec.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        models = [kind for kind in kinds if _is_model(kind)] if field.is_required() else []
        for kind in models:
            parts = kind.model_fields.items()
            yield from ((f"{name}.{own}", one) for own, one in parts if own != "kind")
        if not models and name not in VARYING:
            yield name, field


def _is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


FIELDS = dict(_fields())
"""By their path: the fields that the runs of one board share, of all kinds of models."""

PATHS = tuple(FIELDS)
"""Paths of the fields that the runs of one board share: `budget`, `task.key`, `train.lr`, ..."""


def setting(spec: RunSpec) -> Setting:
    """The value of every field that the runs of one board share, by its path.

    Tuned runs share the grid, and not the values that were chosen from it; runs of matched models
    do not share their widths; no runs share their precision, see `with_precision`.
    """
    chosen = chosen_fields(spec)
    own = {
        **dict.fromkeys((*chosen, PRECISION), CHOSEN),
        "overrides": {
            path: v
            for path, v in spec.overrides.items()
            if path not in chosen and path.partition(".")[0] in PARTS
        },
        "tuning": spec.tuning.grid if spec.tuning else None,
    }
    return {path: own[path] if path in own else _plain(field_at(spec, path)) for path in PATHS}


def _plain(value: object) -> object:
    return value.model_dump() if isinstance(value, BaseModel) else value


def with_precision(shared: Setting, specs: Sequence[RunSpec]) -> Setting:
    """The setting of runs with their precision, if all have the same."""
    names = {spec.train.precision for spec in specs}
    return {**shared, PRECISION: names.pop()} if len(names) == 1 else shared


def precision_text(spec: RunSpec, shared: Setting) -> str:
    """The precision of a run where the rows of its board differ, as ` [bf16]`; else empty."""
    return f" [{spec.train.precision}]" if shared[PRECISION] == CHOSEN else ""


def sort_key(shared: Setting, machine: str) -> tuple[str, ...]:
    """Equal for all runs of one board; boards sort by task, budget and machine."""
    first = (str(shared[path]) for path in ("task.key", "budget", "device"))
    return (*first, machine, json.dumps(shared, sort_keys=True))


def titles(settings: Sequence[Setting], machines: Sequence[str]) -> list[str]:
    """The title of each setting on its machine as plain text: task, budget, machine.

    The budget is followed by what a run changed in it, and by the grid of its tuned rows. Where
    several have the same title, each is followed by every field in which they differ.
    """
    names = list(map(_title, settings, machines))
    titled = []
    for name, shared in zip(names, settings, strict=True):
        same = [other for own, other in zip(names, settings, strict=True) if own == name]
        differing = [path for path in PATHS if any(other[path] != shared[path] for other in same)]
        titled.append(f"{name}; {_phrases(shared, differing)}" if differing else name)
    return titled


def recipe(shared: Setting) -> str:
    """Every field of model and training, without flags that are off and fields not set."""
    values = ((path, shared[path]) for path in PATHS)
    on = [
        path
        for path, own in values
        if own is not False and own is not None and own != FIELDS[path].default
    ]
    fields = {part: [path for path in on if path.startswith(f"{part}.")] for part in PARTS}
    return " ".join(f"{PARTS[part]}: {_phrases(shared, own)}." for part, own in fields.items())


def _title(shared: Setting, machine: str) -> str:
    changes = f" with {_text(shared['overrides'])}" if shared["overrides"] else ""
    if shared["match"]:
        changes += f", {shared['match']} matched"
    if shared["tuning"]:
        changes += f" tuned over {grid_text(shared['tuning'])}"
    task, budget, device = (shared[path] for path in ("task.key", "budget", "device"))
    return f"{task}, budget {budget}{changes}, {device}: {machine}"


def grid_text(grid: object) -> str:
    """The values of each tuned field of a grid, as `learning rate 0.001, 0.003`."""
    fields = grid.items() if isinstance(grid, Mapping) else ()
    return "; ".join(f"{field_text(path)} {', '.join(map(str, own))}" for path, own in fields)


def field_text(path: str) -> str:
    """A field of model or train in words."""
    return WORDS.get(path, path.rpartition(".")[2].replace("_", " "))


def chosen_fields(spec: RunSpec) -> Mapping[str, Value]:
    """The values that were chosen for a row, by their path; none for a run of one recipe."""
    return {**point(spec), **({MATCHED: spec.model.feed_forward} if spec.match else {})}


def chosen_text(spec: RunSpec) -> str:
    """The values that were chosen for a row, as ` [lr=0.001]`; empty for a run of one recipe."""
    texts = [f"{path.partition('.')[2]}={value}" for path, value in chosen_fields(spec).items()]
    return f" [{', '.join(texts)}]" if texts else ""


def _phrases(shared: Setting, paths: Sequence[str]) -> str:
    return ", ".join(f"{field_text(path)} {_text(shared[path])}" for path in paths)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        # Eight digits identify a digest.
        texts = {name: str(part) for name, part in sorted(value.items())}
        return ", ".join(f"{n}={t[:8] if len(t) == 64 else t}" for n, t in texts.items())
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value).removesuffix(".0")
