"""What the card of a task shows: sizes, digests, targets, baselines and examples."""

import hashlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from PIL import Image

from harness.data import Data
from harness.records.baselines import TaskBaselines, missing
from harness.records.spec import TaskSpec
from tasks import Split, Task
from tasks.answers import Classes, NextTokens, Number
from tasks.data.sources import CachedTask

EXAMPLES = 3
"""Examples on a card: the first of train."""

SHARES = 10
"""The largest number of classes for which a card has the share of each."""

SHEET, SHEET_COLUMNS = 18, 6
"""Images on the sheet of a task of images, the first of train, and how many in a row."""

SCALE = 4
"""Pixels of a file along each side of one pixel of an image."""


class Example(NamedTuple):
    """One example, or the sheet of many: its sequences as text or as PNG files by name."""

    texts: Sequence[str]
    images: Mapping[str, bytes]
    targets: str


class Description(NamedTuple):
    """A task at one setting.

    Attributes:
        task: the task.
        target: what is predicted.
        missing: how to get the data if they are missing; then there are no tables and examples.
        tables: rows as cells by column.
        examples: the first of train by title, the sheet last.
    """

    task: Task
    target: str
    missing: str = ""
    tables: Sequence[Sequence[Mapping[str, str]]] = ()
    examples: Mapping[str, Example] = MappingProxyType({})


def describe(task: Task, baselines_of: Callable[[TaskSpec], TaskBaselines | None]) -> Description:
    """Load all splits of a task that are in the cache or need none, and describe them.

    `baselines_of` gives its baselines, None where they are not known.

    Raises:
        UserError: the data are damaged.
    """
    if isinstance(task, CachedTask) and not task.is_cached():
        target = f"one of {task.classes:,} classes" if task.classes > 1 else "a number"
        return Description(task, target, task.how_to_get())
    data, setting = Data.of(task), {"setting": f"`{task.key}`"}
    rows = {name: {**setting, "split": name} for name in data.splits}
    train, test = data.splits["train"], data.splits["test"]
    train_hashes = set(_hashes(train))
    repeated = sum(digest in train_hashes for digest in _hashes(test))
    spec = spec_of(task, data)
    found = baselines_of(spec)
    if found is None:
        return Description(task, "", f"no baselines; {missing(spec)}")
    share = f"{repeated:,} of {len(test.sequences):,}"
    tables = [
        [rows[name] | _sizes(split) for name, split in data.splits.items()],
        [rows[name] | {"SHA-256": f"`{digest}`"} for name, digest in data.digests.items()],
        [{**setting, "sequences of test that are in train": share}],
        [rows[name] | _targets(task, split) for name, split in data.splits.items()],
        [setting | {name: found.metric.sentence(v) for name, v in found.scores.items()}],
    ]
    target, examples = _target(task, train), _examples(task, train)
    return Description(task, target, tables=tables, examples=examples)


def spec_of(task: Task, data: Data) -> TaskSpec:
    """The specification of a task and its data."""
    digests = {**data.digests}
    return TaskSpec(name=task.name, key=task.key, options=task.options, block=0, digests=digests)


def png(rows: Sequence[Sequence[Sequence[int]]]) -> bytes:
    """A PNG file of rows of square grey images of one size, each as 0 to 255 in raster order.

    A last row of fewer images is filled with black.
    """
    side = math.isqrt(len(rows[0][0]))
    grid = np.zeros((len(rows), len(rows[0]), side, side), np.uint8)
    for i, row in enumerate(rows):
        grid[i, : len(row)] = np.array(row, np.uint8).reshape(-1, side, side)
    pixels = grid.transpose(0, 2, 1, 3).reshape(len(rows) * side, -1)
    file = io.BytesIO()
    Image.fromarray(pixels.repeat(SCALE, axis=0).repeat(SCALE, axis=1)).save(file, "PNG")
    return file.getvalue()


def _sizes(split: Split) -> dict[str, str]:
    lengths = split.lengths.numpy()
    return {
        "examples": f"{len(split):,}",
        "sequences": f"{len(split.sequences):,}",
        "shortest": f"{lengths.min():,}",
        "median": f"{np.median(lengths):,.1f}",
        "mean": f"{lengths.mean(dtype=np.float64):,.1f}",
        "longest": f"{lengths.max():,}",
    }


def _hashes(split: Split) -> list[bytes]:
    """A hash of the real tokens of each sequence."""
    kind = "<f4" if split.sequences.is_floating_point() else "<i4"
    return [
        hashlib.blake2b(sequence[:length], digest_size=16).digest()
        for sequences, lengths in split.chunks()
        for sequence, length in zip(sequences.numpy().astype(kind), lengths.tolist(), strict=True)
    ]


def _targets(task: Task, split: Split) -> dict[str, str]:
    if not isinstance(split.answers, Classes):
        numbers = split.targets.double()
        deviation = numbers.std(correction=0).item()
        return {"mean": f"{numbers.mean().item():.3f}", "standard deviation": f"{deviation:.3f}"}
    targets = split.targets[split.answers.counted(split.targets)]
    counts = targets.bincount(minlength=task.classes)
    shares = [f"{100 * share:.2f} %" for share in (counts / counts.sum()).tolist()]
    if task.classes <= SHARES:
        return {task.class_name(target): share for target, share in enumerate(shares)}
    return {
        "classes that occur": f"{int((counts > 0).sum()):,}",
        "share of the rarest class": shares[int(counts.argmin())],
        "of the most frequent": shares[int(counts.argmax())],
    }


def _target(task: Task, split: Split) -> str:
    target = f"one of {task.classes:,} classes"
    if isinstance(split.answers, Number):
        target = f"a number, correct where the error is below {split.answers.tolerance:g}"
    if split.target_positions is None:
        return f"{target}, for the whole example"
    count = split.target_positions.shape[1]
    return f"{target}, at {'one position' if count == 1 else f'each of {count} positions'}"


def _examples(task: Task, split: Split) -> dict[str, Example]:
    examples = {}
    for i in range(min(EXAMPLES, len(split))):
        texts = [] if task.images else task.show(split, i)
        images = [png([[levels]]) for levels in split.tokens(i)] if task.images else []
        stem = f"{task.name}-{i + 1}"
        stems = [f"{stem}-{k + 1}" if len(images) > 1 else stem for k in range(len(images))]
        files = {f"{stem}.png": image for stem, image in zip(stems, images, strict=True)}
        examples[f"Example {i + 1}"] = Example(texts, files, _correct(task, split, i))
    if task.images:
        shown = range(min(SHEET, len(split)))
        images = [levels for i in shown for levels in split.tokens(i)]
        rows = [images[i : i + SHEET_COLUMNS] for i in range(0, len(images), SHEET_COLUMNS)]
        target = "; ".join(_correct(task, split, i) for i in shown)
        examples["Sheet"] = Example([], {f"{task.name}.png": png(rows)}, target)
    return examples


def _correct(task: Task, split: Split, example: int) -> str:
    if isinstance(split.answers, NextTokens):
        return "the next token, at each position"
    targets = split.targets[example].flatten().tolist()
    classes = isinstance(split.answers, Classes)
    texts = [task.class_name(target) if classes else f"{target:g}" for target in targets]
    if split.target_positions is not None:
        positions = split.target_positions[example].tolist()
        texts = [f"{text} at {at}" for text, at in zip(texts, positions, strict=True)]
    return ", ".join(texts)
