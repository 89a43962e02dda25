"""The page docs/tasks.md, a card for each task, and its images."""

import hashlib
import inspect
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

import tasks
from harness.baselines import fit
from harness.cli.console import fitting
from harness.data import Data, data_of
from harness.questions import question_of
from harness.records.baselines import FOLDER, TaskBaselines
from harness.records.files import within
from harness.records.spec import TaskSpec
from harness.records.store import BaselineStore
from reports.markdown import block, rendered
from tasks import Split, Task
from tasks.answers import Classes, NextTokens, Number
from tasks.baselines import BASELINES_VERSION, FEW, FIRST
from tasks.data.sources import CachedTask, ImportedTask
from tasks.registry import tasks as registry

SHARES = 10
"""The largest number of classes for which a card has the share of each."""

EXAMPLES = 3
"""Examples on a card: the first of train."""

SHEET, SHEET_COLUMNS, SCALE = 18, 6, 4
"""Images on the sheet of a task of images, how many in a row, and the side of a pixel."""

Row = dict[str, str]


class Example(NamedTuple):
    """An example, or the sheet of many: its sequences as text, or PNG files by name."""

    texts: Sequence[str]
    images: Mapping[str, bytes]
    targets: str


class Description(NamedTuple):
    """A task at one setting, with tables and examples; `missing` says how to get its data."""

    task: Task
    target: str
    missing: str = ""
    tables: Sequence[Sequence[Row]] = ()
    examples: Mapping[str, Example] = MappingProxyType({})


def files_of(page: Path, store: Path) -> dict[Path, bytes]:
    """The page and its images, from the data in the cache and the baselines of a store.

    The card of a task stays as it is where its data or its baselines are missing.
    """
    text = page.read_text("utf-8") if page.is_file() else ""
    cards = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    old = {card.partition("\n")[0].removeprefix("## "): card for card in cards}
    baselines = BaselineStore.within(store)

    def complete(spec: TaskSpec) -> TaskBaselines | None:
        found = baselines.find(spec)
        return found if found and found.version == BASELINES_VERSION and not found.left else None

    sections, files = [], {}
    for name in names():
        described = [describe(task, complete) for task in settings(name)]
        if name in old and any(setting.missing for setting in described):
            sections.append(old[name])
            continue
        sections.append(card(described, page.stem))
        files |= within(page.with_suffix(""), images(described))
    return files | {page: page_of(sections).encode()}


def names() -> list[str]:
    """The tasks of this package that need no option."""
    shared = {name for name, _ in registry.built_in()}
    return [name for name in tasks.names(required_options=False) if name in shared]


def settings(name: str) -> list[Task]:
    """The task with its defaults, and as the laptop recipe sets it where that differs."""
    default, laptop = tasks.create(name), data_of(question_of(name).task).task
    return [default] if default.key == laptop.key else [default, laptop]


def fit_missing(store: Path) -> None:
    """Fit the baselines that cards lack, of tasks whose data are generated or cached."""
    for task in (task for name in names() for task in settings(name)):
        if not isinstance(task, ImportedTask) or task.is_cached():
            data = Data.of(task)
            with fitting(f"baselines of {task.key}") as on_step:
                stored = BaselineStore.within(store)
                fit(spec_of(task, data), lambda _, d=data: d, stored, on_step)


def page_of(sections: Sequence[str]) -> str:
    """The page as Markdown: its head, and a section for each task."""
    return rendered(
        "tasks.md.j2", sections=[section.strip("\n") for section in sections], first=FIRST,
        few=f"{FEW:,}", examples=EXAMPLES, sheet=SHEET,
    )  # fmt: skip


def card(described: Sequence[Description], folder: str) -> str:
    """The card of a task as Markdown: its settings, the defaults first; `folder` has images."""
    task, present = described[0].task, [setting for setting in described if not setting.missing]
    owners = inspect.getmodule(type(task)), type(task)
    titles = ((inspect.getdoc(owner) or "").partition("\n")[0] for owner in owners)
    keys: dict[str, list[str]] = {}
    for setting in described:
        if setting.missing:
            keys.setdefault(setting.missing, []).append(f"`{setting.task.key}`")
    aligned = zip(*(setting.tables for setting in present), strict=True)
    tables = [pd.DataFrame([row for rows in same for row in rows]).fillna("") for same in aligned]
    return rendered(
        "task.md.j2", task=task, titles=[*filter(None, titles)], missing=keys.items(),
        properties=_properties(described[0]).items(), tables=tables, folder=folder,
        examples=present[0].examples.items() if present else (),
    )  # fmt: skip


def images(described: Sequence[Description]) -> dict[str, bytes]:
    """The image files of a card by name, of the first setting whose data are present."""
    first = next((setting for setting in described if not setting.missing), described[0])
    return {n: file for example in first.examples.values() for n, file in example.images.items()}


def _properties(described: Description) -> Row:
    task = described.task
    size = f"{task.max_len:,} {'time points' if task.channels else 'tokens'}"
    kind = "channels" if task.channels else "vocabulary size"
    inputs = {kind: f"{task.channels or task.vocabulary:,}", "maximum length": size}
    origin = {"data": "generated by the task's code, under its licence"}
    if isinstance(task, ImportedTask):
        source = task.source
        origin = {"data": source.title, "origin": f"<{source.origin}>", "terms": source.terms}
    return {
        "version": f"`{task.name}@{task.version}`",
        "options": ", ".join(f"`{name}={value}`" for name, value in task.options.items()) or "none",
        "target": described.target,
        **inputs,
        "sequences per example": str(task.sequences),
        "model": "causal" if task.causal else "bidirectional",
        **origin,
    }


def describe(task: Task, baselines_of: Callable[[TaskSpec], TaskBaselines | None]) -> Description:
    """Load all splits of a task that are in the cache or need none, and describe them."""
    if isinstance(task, CachedTask) and not task.is_cached():
        target = f"one of {task.classes:,} classes" if task.classes > 1 else "a number"
        return Description(task, target, task.how_to_get())
    data, setting = Data.of(task), {"setting": f"`{task.key}`"}
    found = baselines_of(spec := spec_of(task, data))
    if found is None:
        file = f"{FOLDER}/{spec.file_name}.json"
        reason = f"{file} is missing, incomplete or not of this version's set of baselines"
        return Description(
            task, "", f"no baselines; {reason}; make it with: harness report --baselines"
        )
    train, test = data.splits["train"], data.splits["test"]
    hashes = {*_hashes(train)}
    repeated = sum(sequence in hashes for sequence in _hashes(test))
    share = f"{repeated:,} of {len(test.sequences):,}"
    rows = {name: {**setting, "split": name} for name in data.splits}
    tables = [
        [rows[name] | _sizes(split) for name, split in data.splits.items()],
        [rows[name] | {"SHA-256": f"`{digest}`"} for name, digest in data.digests.items()],
        [{**setting, "sequences of test that are in train": share}],
        [rows[name] | _targets(task, split) for name, split in data.splits.items()],
        [setting | {name: found.metric.sentence(v) for name, v in found.scores.items()}],
    ]
    return Description(task, _target(task, train), "", tables, examples_of(task, train))


def spec_of(task: Task, data: Data) -> TaskSpec:
    """The specification of a task and its data."""
    return TaskSpec(name=task.name, key=task.key, options=task.options, digests={**data.digests})


def _hashes(split: Split) -> Iterator[bytes]:
    kind = "<f4" if split.sequences.is_floating_point() else "<i4"
    for sequences, lengths in split.chunks():
        for sequence, length in zip(sequences.numpy().astype(kind), lengths.tolist(), strict=True):
            yield hashlib.blake2b(sequence[:length], digest_size=16).digest()


def _sizes(split: Split) -> Row:
    lengths = split.lengths.numpy()
    return {
        "examples": f"{len(split):,}", "sequences": f"{len(split.sequences):,}",
        "shortest": f"{lengths.min():,}", "median": f"{np.median(lengths):,.1f}",
        "mean": f"{lengths.mean(dtype=np.float64):,.1f}", "longest": f"{lengths.max():,}",
    }  # fmt: skip


def _targets(task: Task, split: Split) -> Row:
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
        numbers = range(min(SHEET, len(split)))
        levels = [image for i in numbers for image in split.tokens(i)]
        rows = [levels[i : i + SHEET_COLUMNS] for i in range(0, len(levels), SHEET_COLUMNS)]
        target = "; ".join(_correct(task, split, i) for i in numbers)
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
    """A PNG file of rows of square grey images of one size; a short last row ends black."""
    side = math.isqrt(len(rows[0][0]))
    grid = np.zeros((len(rows), len(rows[0]), side, side), np.uint8)
    for i, row in enumerate(rows):
        grid[i, : len(row)] = np.array(row, np.uint8).reshape(-1, side, side)
    pixels = grid.transpose(0, 2, 1, 3).reshape(len(rows) * side, -1)
    file = io.BytesIO()
    Image.fromarray(pixels.repeat(SCALE, axis=0).repeat(SCALE, axis=1)).save(file, "PNG")
    return file.getvalue()
