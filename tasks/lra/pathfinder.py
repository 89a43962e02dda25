"""Pathfinder: whether two discs of an image, read as its pixels, lie on the same dashed curve.

Linsley et al., 2018, arXiv 1805.08315, as in the Long Range Arena (Tay et al., 2021, arXiv
2011.04006): two long snakes of paddles (the dashes of a curve), short snakes as distractors, and
two discs on ends of the long ones. One token per pixel in raster order, the level 0..255; class 1
is "the same". For the rules see `tasks.lra.pathfinder_drawing`, for the parameters
`tasks.lra.pathfinder_tables`.

Sizes are 32 (Pathfinder), 64 and 128 (Path-X) pixels; a snake has 14 paddles in the hard set, 9 in
the intermediate and 6 in the easy one. The parameters of each size are the arena's; paddles are 2
pixels long at size 32 and 5 at 64 and 128. At size 128 the gap between paddles is 2 or 3 pixels,
drawn per image. Each distractor has a third of a snake's paddles; together they have about 20, 22
and 35 at 32, 64 and 128 pixels.

Three properties of the original that its description does not mention: at 32 pixels the first
paddle of the first snake and of each distractor points up and left, at 121 to 150 degrees from the
x axis, because no other angle has a free pixel. So most distractors fail: about 1.2 of the hard
set's 5 are drawn. And as the newest paddle of a snake is not yet in the mask of the other, both end
on one pixel in 0.3 % of the hard set's images, whose class is undetermined.

Deviations: the arena publishes one set; here sets are drawn from a seed, by the same rules. In the
easy and intermediate sets the number of distractors follows the formula of the hard one. No image
occurs twice.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from tasks.baselines import discs as shallow
from tasks.contract import SPLITS, Baseline, Split, SplitName
from tasks.data.sources import GeneratedTask
from tasks.lra import pathfinder_drawing as drawing
from tasks.lra.pathfinder_tables import SCALES, drawing_tables
from tasks.registry import tasks
from zoo.registry import UserError

BLOCK = 64
"""Images that a thread draws in a row."""

CONTOURS = (6, 9, 14)
"""Paddles of a snake in the easy, the intermediate and the hard set."""


class Drawing(NamedTuple):
    """One image, and how it was made.

    Attributes:
        pixels: (h, h), levels.
        target: 1 where both discs lie on one snake, else 0.
        paddles: (p, 3), see `drawing.draw`.
        discs: (2, 2), the centres (y, x) of the discs.
        attempts: attempts at the pair of snakes.
        margin: gap between paddles.
    """

    pixels: UInt8[np.ndarray, "h h"]
    target: int
    paddles: Int64[np.ndarray, "p 3"]
    discs: Int64[np.ndarray, "2 2"]
    attempts: int
    margin: int


@tasks.register("pathfinder")
@dataclass(frozen=True, kw_only=True)
class Pathfinder(GeneratedTask):
    """160,000 train, 20,000 dev and 20,000 test images, all distinct, none padded.

    Attributes:
        size: side of an image in pixels: 32, 64 or 128.
        contour: paddles of a long contour: 6, 9 or 14.
        train, dev, test: images in the split of that name.
        seed: seed of every draw.
    """

    name = "pathfinder"
    version = 2
    classes = 2
    vocabulary = 256
    images = True
    labels = ("two snakes", "one snake")

    size: int = 32
    contour: int = 14
    train: int = 160_000
    dev: int = 20_000
    test: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        for option, choices in {"size": tuple(SCALES), "contour": CONTOURS}.items():
            if (value := getattr(self, option)) not in choices:
                listing = ", ".join(map(str, choices))
                raise UserError(f"pathfinder.{option}={value} is not one of {listing}; give one")
        self._derive(max_len=self.size**2)
        self._require()

    def load(self, split: SplitName) -> Split:
        """See `Task.load`."""
        pixels, targets = self.arrays(
            {f"{split}_pixels": f"uint8 n {self.max_len}", f"{split}_targets": "uint8 n"}
        )
        return Split.single(torch.from_numpy(pixels), None, torch.from_numpy(targets))

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        """See `Task.shallow_baselines`: boosted trees on the positions of the discs."""
        return shallow.BASELINES

    def generate(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.generate`."""
        return self.generate_by(os.cpu_count() or 1)

    def generate_by(self, workers: int) -> dict[str, np.ndarray]:
        """The arrays to cache, drawn by that many threads; the result does not depend on them."""
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
        self._redraw_repeated(pixels, targets)
        ends = [self.train, self.train + self.dev]
        arrays = {}
        for split, images, classes in zip(
            SPLITS, np.split(pixels, ends), np.split(targets, ends), strict=True
        ):
            arrays[f"{split}_pixels"] = images.reshape(-1, self.max_len)
            arrays[f"{split}_targets"] = classes
        return arrays

    def draw(self, index: int, attempt: int = 0) -> Drawing:
        """Draw the image of that index; each value of `attempt` is another draw."""
        seeds = np.random.SeedSequence((self.seed, index, attempt))
        rng = np.random.Generator(np.random.PCG64(seeds))
        margins = SCALES[self.size].margins
        margin = margins[int(len(margins) * rng.random())]
        tables = drawing_tables(self.size, self.contour, margin)
        pixels = np.empty((self.size, self.size), np.uint8)
        most_paddles = 2 * tables.contour + tables.distractors * tables.distractor_contour
        paddles, discs = np.empty((most_paddles, 3), np.int64), np.empty((2, 2), np.int64)
        target, count, attempts = drawing.draw(rng, tables, pixels, paddles, discs)
        return Drawing(pixels, target, paddles[:count], discs, attempts, margin)

    def _redraw_repeated(
        self, pixels: UInt8[np.ndarray, "n h h"], targets: UInt8[np.ndarray, " n"]
    ) -> None:
        digests: set[bytes] = set()
        for index, image in enumerate(pixels):
            attempt = 0
            while (digest := blake2b(image, digest_size=16).digest()) in digests:
                attempt += 1
                other = self.draw(index, attempt)
                image[:], targets[index] = other.pixels, other.target
            digests.add(digest)
