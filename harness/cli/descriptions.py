"""What a task's card says of its data, read from the splits."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from harness import pictures
from harness.plan import Request, task_of
from tasks import Task
from tasks.answers import Classes, Number
from tasks.baselines import evaluate
from tasks.contract import SPLITS, Split, SplitName
from tasks.data.sources import CachedTask, GeneratedTask
from tasks.registry import tasks
from zoo.registry import resolve

SHOWN = 3
"""Examples that a card shows: the first of train."""

SHARES = 10
"""Classes up to which each has a share of its own on the card."""

ON_SHEET = 18
"""Examples on the sheet of a task of pictures: the first of train."""


class Part(NamedTuple):
    """One split.

    Attributes:
        examples: how many there are.
        sequences: how many are stored.
        lengths: tokens of a document: least, median, mean and most.
        targets: what is known of the targets, by the name of its column.
        digest: see `Split.digest`.
    """

    examples: int
    sequences: int
    lengths: tuple[float, float, float, float]
    targets: Mapping[str, str]
    digest: str


class Example(NamedTuple):
    """One example.

    Attributes:
        sequences: as a person would read them; none where they are pictures.
        pictures: the documents as PNG files; none where they are text.
        answer: what is right.
    """

    sequences: Sequence[str]
    pictures: Sequence[bytes]
    answer: str


class Facts(NamedTuple):
    """A task at one setting.

    Attributes:
        task: the task.
        answer: what is to be answered.
        parts: its splits, in their order.
        repeated: how many documents of test stand token by token in train, too.
        baselines: test accuracies in [0, 1] that need no attention, by name.
        examples: the first few of train.
        sheet: more of them in one picture, where documents are pictures.
        missing: how to get the data; then there are no parts, floors and examples. Empty where they
            are there.
    """

    task: Task
    answer: str
    parts: Mapping[SplitName, Part]
    repeated: int
    baselines: Mapping[str, float]
    examples: Sequence[Example]
    sheet: Example | None
    missing: str


def settings(name: str) -> list[Task]:
    """The task as it is by default, and as the laptop budget sets it where that differs."""
    request = Request(
        attention="none", task=name, budget="laptop", seed=0, device="cpu", precision="fp32",
        compiled=False,
    )  # fmt: skip
    task = tasks.find(name)
    laptop = task_of(request)
    usual = task(**resolve(name, task, {}))
    return [usual, laptop] if usual.key != laptop.key else [usual]


def gather(task: Task, generate: bool) -> Facts:
    """Read all splits, one after the other.

    Args:
        task: the task at one setting.
        generate: whether data that are only to be generated count as there.

    Raises:
        UserError: the data are damaged, or do not meet the task's options.
    """
    missing = _remedy(task, generate)
    if missing:
        answer = f"one of {task.classes:,} classes" if task.classes > 1 else "a number"
        return Facts(task, answer, {}, 0, {}, [], None, missing)
    parts: dict[SplitName, Part] = {}
    learned: set[bytes] = set()
    repeated = 0
    examples, sheet, answer = [], None, ""
    splits = {name: task.load(name) for name in SPLITS}
    for name, split in splits.items():
        parts[name] = _part(task, split)
        if name == "train":
            learned = set(_hashes(split))
            answer = _question(task, split)
            examples = [_example(task, split, i) for i in range(min(SHOWN, len(split)))]
            sheet = _sheet(task, split) if task.images else None
        elif name == "test":
            repeated = sum(one in learned for one in _hashes(split))
    digests = {name: part.digest for name, part in parts.items()}
    accuracies = evaluate(task, splits, digests)
    return Facts(task, answer, parts, repeated, accuracies, examples, sheet, "")


def _remedy(task: Task, generate: bool) -> str:
    """How to get the data; empty where they are there, or are made when they are loaded."""
    if not isinstance(task, CachedTask) or (isinstance(task, GeneratedTask) and generate):
        return ""
    return "" if task.is_there() else task.remedy()


def _part(task: Task, split: Split) -> Part:
    lengths = split.lengths.numpy()
    spread = (lengths.min(), np.median(lengths), lengths.mean(dtype=np.float64), lengths.max())
    least, median, mean, most = map(float, spread)
    return Part(
        examples=len(split),
        sequences=len(split.sequences),
        lengths=(least, median, mean, most),
        targets=_targets(task, split),
        digest=split.digest(),
    )


def _hashes(split: Split) -> list[bytes]:
    """Of each document what only the same tokens give, padding apart."""
    return [
        hashlib.blake2b(document[:length], digest_size=16).digest()
        for some, lengths in split.chunks()
        for document, length in zip(some.numpy().astype("<i4"), lengths.tolist(), strict=True)
    ]


def _targets(task: Task, split: Split) -> dict[str, str]:
    if not isinstance(split.answers, Classes):
        numbers = split.targets.double()
        spread = numbers.std(correction=0).item()
        return {"mean": f"{numbers.mean().item():.3f}", "standard deviation": f"{spread:.3f}"}
    counts = split.targets.flatten().bincount(minlength=task.classes)
    shares = [f"{100 * share:.2f} %" for share in (counts / counts.sum()).tolist()]
    if task.classes <= SHARES:
        return {task.label(target): share for target, share in enumerate(shares)}
    return {
        "classes that occur": f"{int((counts > 0).sum()):,}",
        "share of the rarest class": shares[int(counts.argmin())],
        "of the commonest": shares[int(counts.argmax())],
    }


def _question(task: Task, split: Split) -> str:
    answers = split.answers
    if isinstance(answers, Number):
        found = f"a number, right where it is less than {answers.tolerance:g} off"
    else:
        found = f"one of {task.classes:,} classes"
    if split.target_positions is None:
        return f"{found}, for the whole"
    many = split.target_positions.shape[1]
    return f"{found}, at {'one position' if many == 1 else f'each of {many} positions'}"


def _example(task: Task, split: Split, number: int) -> Example:
    shown = [] if task.images else task.show(split, number)
    files = [pictures.png(one) for one in split.tokens(number)] if task.images else []
    return Example(shown, files, _answer(task, split, number))


def _sheet(task: Task, split: Split) -> Example:
    numbers = range(min(ON_SHEET, len(split)))
    file = pictures.sheet([one for number in numbers for one in split.tokens(number)])
    return Example([], [file], "; ".join(_answer(task, split, number) for number in numbers))


def _answer(task: Task, split: Split, number: int) -> str:
    targets = split.targets[number].flatten().tolist()
    exact = isinstance(split.answers, Classes)
    found = [task.label(target) if exact else f"{target:g}" for target in targets]
    if split.target_positions is not None:
        places = split.target_positions[number].tolist()
        found = [f"{one} at {place}" for one, place in zip(found, places, strict=True)]
    return ", ".join(found)
