"""What the runs of one board share, as text: its title and its recipe.

Both are made from all fields of a specification: a field that is added to `RunSpec` is in the
recipe, in the CSV and, where boards differ by it, in their titles.
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
"""Text for fields whose names are not clear; other fields have their names."""

PARTS = {"model": "Model", "train": "Training by AdamW"}

Setting = dict[str, object]
"""Value of every field that the runs of a board share, by its path."""


def _paths() -> Iterator[str]:
    for name, field in RunSpec.model_fields.items():
        part = field.annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from (f"{name}.{own}" for own in part.model_fields)
        elif name not in VARYING:
            yield name


PATHS = tuple(_paths())
"""Paths of the fields that the runs of one board share: `budget`, `task.key`, `train.lr`, ..."""


def setting(spec: RunSpec) -> Setting:
    """The value of every field that the runs of one board share, by its path."""
    return {path: attrgetter(path)(spec) for path in PATHS}


def sort_key(shared: Setting, machine: str) -> tuple[str, ...]:
    """Equal for all runs of one board; boards sort by task, budget and machine."""
    first = (str(shared[path]) for path in ("task.key", "budget", "device"))
    return (*first, machine, json.dumps(shared, sort_keys=True))


def titles(identities: Sequence[tuple[Setting, str]]) -> list[str]:
    """The title of each setting and machine as plain text: task, budget, machine.

    The budget is followed by what a run changed in it. Where several have the same title, each is
    followed by every field in which they differ.
    """
    groups: dict[str, list[Setting]] = {}
    names = [_title(shared, machine) for shared, machine in identities]
    for name, (shared, _) in zip(names, identities, strict=True):
        groups.setdefault(name, []).append(shared)
    titled = []
    for name, (shared, _) in zip(names, identities, strict=True):
        others = groups[name]
        differing = [path for path in PATHS if any(one[path] != shared[path] for one in others)]
        titled.append("; ".join([name, *([_phrases(shared, differing)] if differing else [])]))
    return titled


def recipe(shared: Setting) -> str:
    """Every field of model and training; the options of the task are in its key."""
    sentences = [
        f"{name}: {_phrases(shared, [path for path in PATHS if path.startswith(f'{part}.')])}."
        for part, name in PARTS.items()
    ]
    return " ".join(sentences)


def _title(shared: Setting, machine: str) -> str:
    changes = f" with {_text(shared['overrides'])}" if shared["overrides"] else ""
    return (
        f"{shared['task.key']}, budget {shared['budget']}{changes}, {shared['device']}: {machine}"
    )


def _phrases(shared: Setting, paths: Sequence[str]) -> str:
    names = (WORDS.get(path, path.rpartition(".")[2].replace("_", " ")) for path in paths)
    return ", ".join(
        f"{name} {_text(shared[path])}" for name, path in zip(names, paths, strict=True)
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        # Eight digits identify a digest.
        pairs = (
            (name, str(one)[: 8 if len(str(one)) == 64 else None]) for name, one in value.items()
        )
        return ", ".join(f"{name}={one}" for name, one in sorted(pairs))
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value).removesuffix(".0")
