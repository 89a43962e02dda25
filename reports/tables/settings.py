"""What the runs of one board share: title, recipe, and differences from boards of the same title.

All of it is read from the fields of a specification, whatever they are: a field that is added to a
specification is in the recipe, in the CSV and, where boards differ by it, in their titles.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from pydantic import BaseModel

from harness.records.spec import RunSpec

VARYING = frozenset({"attention", "options", "seed"})
"""Fields of a specification by which the runs of one board differ."""

WORDS = {
    "model.dim": "width",
    "model.feed_forward": "feed-forward width",
    "model.head": "classifier width",
    "train.warmup": "warm-up steps",
    "train.lr": "learning rate",
    "train.evaluations": "validation evaluations",
}
"""Words for fields whose names say too little; the others go by their names."""

PARTS = {"model": "Model", "train": "Training by AdamW"}

Setting = Mapping[str, object]
"""Value of every field that the runs of a board share, by its path."""


def _paths() -> Iterator[str]:
    for name, field in RunSpec.model_fields.items():
        part = field.annotation
        if name in VARYING:
            continue
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from (f"{name}.{own}" for own in part.model_fields)
        else:
            yield name


PATHS = tuple(_paths())
"""Paths of the fields that the runs of one board share: `budget`, `task.key`, `train.lr`, ..."""


def setting(spec: RunSpec) -> Setting:
    """The value of every field that the runs of one board share, by its path."""
    return {path: attrgetter(path)(spec) for path in PATHS}


def sort_key(of: Setting, machine: str) -> tuple[str, ...]:
    """Equal for all runs of one board; boards sort by task, budget and machine."""
    first = (str(of[path]) for path in ("task.key", "budget", "device"))
    return (*first, machine, json.dumps(of, sort_keys=True))


def place(of: Setting, machine: str) -> str:
    """Budget, what a run changed in it, and machine, as plain text."""
    changes = _text(of["overrides"])
    recipe = f"budget {of['budget']}{f' with {changes}' if changes else ''}"
    return f"{recipe}, {of['device']}: {machine}"


def titles(settings: Sequence[Setting], machines: Sequence[str]) -> list[str]:
    """The title of each board as plain text: task, budget, machine, and what else differs."""
    names = [f"{of['task.key']}, {place(of, m)}" for of, m in zip(settings, machines, strict=True)]
    rest = differences(names, settings)
    return [f"{name}; {more}" if more else name for name, more in zip(names, rest, strict=True)]


def recipe(of: Setting) -> str:
    """Every field of model and training; the options of the task are in its key."""
    sentences = [
        f"{name}: "
        + ", ".join(_phrase(path, of[path]) for path in PATHS if path.startswith(f"{part}."))
        for part, name in PARTS.items()
    ]
    return ". ".join(sentences) + "."


def differences(names: Sequence[str], settings: Sequence[Setting]) -> list[str]:
    """For each setting, every field by which it differs from another of the same name, in words.

    Empty for a setting that alone has its name.
    """
    groups: dict[str, list[Setting]] = {}
    for name, of in zip(names, settings, strict=True):
        groups.setdefault(name, []).append(of)
    differing = {
        name: [path for path in PATHS if any(one[path] != group[0][path] for one in group)]
        for name, group in groups.items()
    }
    return [
        ", ".join(_phrase(path, of[path]) for path in differing[name])
        for name, of in zip(names, settings, strict=True)
    ]


def _phrase(path: str, value: object) -> str:
    name = path.rpartition(".")[2].replace("_", " ")
    if path == "task.digests" and isinstance(value, Mapping):
        value = {split: str(digest)[:8] for split, digest in value.items()}
    return f"{WORDS.get(path, name)} {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={of}" for name, of in sorted(value.items()))
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value).removesuffix(".0")
