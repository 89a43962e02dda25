"""What a board was run with, in words: its title, its recipe, and what tells it from its likes.

Everything here is read off the fields of a specification, whatever they are: a field that a
specification gets is in the recipe, in the table of figures and, where boards differ by it, in
their titles.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from pydantic import BaseModel

from harness.records.spec import RunSpec

WITHIN = frozenset({"attention", "options", "seed"})
"""Fields of a specification by which the runs of one board differ."""

WORDS = {
    "model.dim": "width",
    "model.feed_forward": "feed-forward width",
    "model.head": "classifier width",
    "train.warmup": "warm-up steps",
    "train.lr": "learning rate",
    "train.evaluations": "readings of dev",
}
"""What fields are called whose names say too little; the others go by their names."""

PARTS = {"model": "Model", "train": "Training by AdamW"}

Setting = Mapping[str, object]


def _paths() -> Iterator[str]:
    for name, field in RunSpec.model_fields.items():
        part = field.annotation
        if name in WITHIN:
            continue
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from (f"{name}.{own}" for own in part.model_fields)
        else:
            yield name


PATHS = tuple(_paths())
"""Where the fields that the runs of one board share stand: `budget`, `task.key`, `train.lr`, ..."""


def setting(spec: RunSpec) -> dict[str, object]:
    """The value of every field that the runs of one board share, by its path."""
    return {path: attrgetter(path)(spec) for path in PATHS}


def group(of: Setting, machine: str) -> tuple[str, ...]:
    """The same for all runs that may be compared, and in order of task, budget and machine."""
    first = (str(of[path]) for path in ("task.key", "budget", "device"))
    return (*first, machine, json.dumps(of, sort_keys=True))


def title(of: Setting, machine: str) -> str:
    """Task, budget and machine: what a board is called, unless others are called the same."""
    return f"{of['task.key']}, budget `{of['budget']}`, {of['device']}: {machine}"


def recipe(of: Setting) -> str:
    """Every field of every part of a setting; those of the task are in its key."""
    parts = dict.fromkeys(path.partition(".")[0] for path in PATHS if "." in path)
    sentences = [
        f"{PARTS.get(part, part)}: "
        + ", ".join(_worded(path, of[path]) for path in PATHS if path.startswith(f"{part}."))
        for part in parts
        if part != "task"
    ]
    return ". ".join(sentences) + "."


def apart(titles: Sequence[str], settings: Sequence[Setting]) -> list[str]:
    """For each setting every field by which it differs from another of the same title, in words.

    Empty for a setting whose title is its own.
    """
    alike: dict[str, list[Setting]] = {}
    for name, of in zip(titles, settings, strict=True):
        alike.setdefault(name, []).append(of)
    differ = {
        name: [path for path in PATHS if any(one[path] != group[0][path] for one in group)]
        for name, group in alike.items()
    }
    return [
        ", ".join(_worded(path, of[path]) for path in differ[name])
        for name, of in zip(titles, settings, strict=True)
    ]


def _worded(path: str, value: object) -> str:
    name = path.rpartition(".")[2].replace("_", " ")
    return f"{WORDS.get(path, name)} {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={of}" for name, of in sorted(value.items()))
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value).removesuffix(".0")
