"""Pathfinder: whether two discs of an image, read as its pixels, lie on the same dashed curve.

Linsley et al., 2018, arXiv 1805.08315, as in the Long Range Arena (Tay et al., 2021, arXiv
2011.04006): two long snakes of paddles (the dashes of a curve), short snakes as distractors, and
two discs on ends of the long ones. One token per pixel in raster order, the level 0..255; class 1
is "the same". For the rules see `tasks.lra.pathfinder_drawing`, for the parameters
`tasks.lra.pathfinder_tables`.

Sizes are 32 (Pathfinder), 64 and 128 (Path-X) pixels, with the parameters of the arena; a snake has
14 paddles in the hard set, 9 in the intermediate and 6 in the easy one.

Deviations: the arena publishes one set; here sets are drawn from a seed, by the same rules, side
effects included (docs/decisions/data.md). In the easy and
intermediate sets the number of distractors follows the formula of the hard one. No image occurs
twice. The task `pathfinder-lra` reads the official files, to repeat a published run.
"""

import io
import math
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from tasks.baselines.grey_images import DISC_MODELS
from tasks.contract import SPLITS, Baseline, Split, SplitName
from tasks.data.extras import import_extra
from tasks.data.files import SMALL_FILE, Member, SourceFiles, damaged, source_of
from tasks.data.sources import CachedTask, GeneratedTask, ImportedTask
from tasks.lra import pathfinder_drawing as drawing
from tasks.lra.pathfinder_tables import SCALES, drawing_tables
from tasks.registry import tasks
from zoo.registry import UserError

BLOCK = 64  # Images that a thread draws in a row

OFFICIAL_SIDE = 32


class Drawing(NamedTuple):
    # See `drawing.draw`.
    pixels: UInt8[np.ndarray, "h h"]
    target: int
    paddles: Int64[np.ndarray, "p 3"]
    discs: Int64[np.ndarray, "2 2"]


class SnakeTask(CachedTask):
    classes = 2
    vocabulary = 256
    images = True
    labels = ("two snakes", "one snake")

    def load(self, split: SplitName) -> Split:
        fields = {"pixels": f"uint8 n {self.max_len}", "targets": "uint8 n"}
        pixels, targets = map(torch.from_numpy, self.arrays(fields, split))
        chosen = self.subset(split, np.arange(len(targets)))
        return Split.single(pixels[chosen], None, targets[chosen])

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        return DISC_MODELS


@tasks.register("pathfinder")
@dataclass(frozen=True, kw_only=True)
class Pathfinder(SnakeTask, GeneratedTask):
    """160,000 train, 20,000 dev and 20,000 test images, all distinct, none padded.

    Attributes:
        size: side of an image in pixels: 32, 64 or 128.
        contour: paddles of a long contour: 6, 9 or 14.
        distractors: whether there are short snakes, as in every published set.
        train, dev, test: images in the split of that name.
        seed: seed of every draw.
    """

    name = "pathfinder"
    version = 2

    size: int = 32
    contour: int = 14
    distractors: bool = True
    train: int = 160_000
    dev: int = 20_000
    test: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        for option, choices in {"size": tuple(SCALES), "contour": (6, 9, 14)}.items():
            if (value := getattr(self, option)) not in choices:
                listing = ", ".join(map(str, choices))
                raise UserError(f"pathfinder.{option}={value} is not one of {listing}; give one")
        self._derive(max_len=self.size**2)
        self._require()

    def generate(self, workers: int) -> dict[str, np.ndarray]:
        total = self.train + self.dev + self.test
        pixels = np.empty((total, self.size, self.size), np.uint8)
        targets = np.empty(total, np.uint8)

        def fill(first: int) -> None:
            for index in range(first, min(first + BLOCK, total)):
                image = self.draw(index)
                pixels[index], targets[index] = image.pixels, image.target

        with ThreadPoolExecutor(workers) as pool:
            try:
                list(pool.map(fill, range(0, total, BLOCK)))
            finally:
                # On an interrupt, do not wait for blocks that have not begun.
                pool.shutdown(cancel_futures=True)
        digests: set[bytes] = set()
        for index, image in enumerate(pixels):  # no image occurs twice
            attempt = 0
            while (digest := blake2b(image.tobytes(), digest_size=16).digest()) in digests:
                attempt += 1
                other = self.draw(index, attempt)
                image[:], targets[index] = other.pixels, other.target
            digests.add(digest)
        return _cut(pixels, targets, [self.train, self.train + self.dev])

    def draw(self, index: int, attempt: int = 0) -> Drawing:
        # Each value of `attempt` is another draw.
        seeds = np.random.SeedSequence((self.seed, index, attempt))
        rng = np.random.Generator(np.random.PCG64(seeds))
        margins = SCALES[self.size].margins
        margin = margins[int(len(margins) * rng.random())]
        tables = drawing_tables(self.size, self.contour, margin, self.distractors)
        pixels = np.empty((self.size, self.size), np.uint8)
        most_paddles = 2 * tables.contour + tables.distractors * tables.distractor_contour
        paddles, discs = np.empty((most_paddles, 3), np.int64), np.empty((2, 2), np.int64)
        target, count = drawing.draw(rng, tables, pixels, paddles, discs)
        return Drawing(pixels, target, paddles[:count], discs)


@tasks.register("pathfinder-lra")
@dataclass(frozen=True, kw_only=True)
class OfficialPathfinder(SnakeTask, ImportedTask):
    """Up to 160,000 train, 20,000 dev and 20,000 test images, none padded.

    The official files of the hard set at 32 pixels (Tay et al., 2021) are images
    `imgs/BATCH/sample_NUMBER.png`, and for each batch a list `metadata/BATCH.npy`, which is text in
    spite of its name: the folder, the file, the number and the class of an image, and the
    parameters of the generator. A list that is a NumPy array, as the generator itself writes it, is
    rejected. No digests are published: every image must be listed once, and be a grey PNG.

    Deviation: the arena takes 80 %, 10 % and 10 % of an order that belongs to TensorFlow Datasets;
    here the order is drawn from a fixed seed.

    Attributes:
        train, dev, test: images in the split of that name.
    """

    name = "pathfinder-lra"
    version = 1
    max_len = OFFICIAL_SIDE**2
    source = source_of("pathfinder-lra")

    train: int = 160_000
    dev: int = 20_000
    test: int = 20_000

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        images: dict[str, UInt8[np.ndarray, "h h"]] = {}
        lists: dict[int, list[tuple[str, int]]] = {}
        for file in files:
            name = file.name.split("/", 2)[2]
            if re.fullmatch(r"imgs/\d+/sample_\d+\.png", name):
                images[name] = _image(file)
            elif found := re.fullmatch(r"metadata/(\d+)\.npy", name):
                lists[int(found.group(1))] = _list(file)
            else:
                raise UserError(f"{file.location} is neither an image nor a list; remove it")
        listed = [entry for number in sorted(lists) for entry in lists[number]]
        names = [name for name, _ in listed]
        if len({*names}) < len(names):
            raise damaged(files.path, "lists an image twice in its metadata")
        if missing := [name for name in names if name not in images]:
            raise damaged(files.path, f"contains no {missing[0]}")
        order = np.random.Generator(np.random.PCG64(0)).random(len(names)).argsort()
        pixels = np.empty((len(names), cls.max_len), np.uint8)
        for row, index in enumerate(order):
            pixels[row] = images[names[index]].ravel()
        targets = np.array([target for _, target in listed], np.uint8)[order]
        return _cut(pixels, targets, [len(order) * 8 // 10, len(order) * 9 // 10])


def _cut(
    pixels: UInt8[np.ndarray, "n ..."], targets: UInt8[np.ndarray, " n"], ends: list[int]
) -> dict[str, np.ndarray]:
    splits = zip(SPLITS, np.split(pixels, ends), np.split(targets, ends), strict=True)
    arrays = {}
    for split, images, classes in splits:
        arrays[f"{split}_pixels"] = images.reshape(len(images), math.prod(pixels.shape[1:]))
        arrays[f"{split}_targets"] = classes
    return arrays


def _image(file: Member) -> UInt8[np.ndarray, "h h"]:
    pil: Any = import_extra("pathfinder-lra", "PIL.Image", "vision")
    with pil.open(io.BytesIO(file.read(SMALL_FILE)), formats=["PNG"]) as image:
        if image.mode == "L" and image.size == (OFFICIAL_SIDE, OFFICIAL_SIDE):
            return np.array(image)
        form = f"{image.mode} {image.width} x {image.height}"
    raise damaged(file.location, f"is {form}, grey {OFFICIAL_SIDE} x {OFFICIAL_SIDE} expected")


def _list(file: Member) -> list[tuple[str, int]]:
    entries = []
    for location, line in file.lines():
        if line.startswith(b"\x93NUMPY"):
            raise damaged(file.location, "is a NumPy array, text expected")
        fields = line.split()
        if len(fields) < 4 or fields[3] not in (b"0", b"1"):
            raise damaged(location, "is not a folder, a file, a number and a class")
        entries.append((b"/".join(fields[:2]).decode("ascii", errors="replace"), int(fields[3])))
    return entries
