"""Examples on the card of a task: sequences as text, or images as PNG files."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from reports.markdown import block
from tasks import Split, Task
from tasks.answers import Classes, NextTokens

EXAMPLES = 3
"""Examples on a card: the first of train."""

SHEET, SHEET_COLUMNS, SCALE = 18, 6, 4
"""Images on the sheet of a task of images, how many in a row, and the side of a pixel."""


class Example(NamedTuple):
    """An example, or the sheet of many: its sequences as text, or PNG files by name."""

    texts: Sequence[str]
    images: Mapping[str, bytes]
    targets: str


def examples_of(task: Task, split: Split) -> dict[str, Example]:
    """The first examples of a split by title, the sheet last."""
    examples = {}
    for i in range(min(EXAMPLES, len(split))):
        texts = [] if task.images else [block(text) for text in task.show(split, i)]
        pngs = [png([[levels]]) for levels in split.tokens(i)] if task.images else []
        stem = f"{task.name}-{i + 1}"
        stems = [f"{stem}-{k + 1}" if len(pngs) > 1 else stem for k in range(len(pngs))]
        files = {f"{stem}.png": image for stem, image in zip(stems, pngs, strict=True)}
        examples[f"Example {i + 1}"] = Example(texts, files, _correct(task, split, i))
    if task.images:
        shown = range(min(SHEET, len(split)))
        levels = [one for i in shown for one in split.tokens(i)]
        rows = [levels[i : i + SHEET_COLUMNS] for i in range(0, len(levels), SHEET_COLUMNS)]
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
