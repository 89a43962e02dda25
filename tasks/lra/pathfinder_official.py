"""Pathfinder from the official files of the Long Range Arena, to repeat a published run.

The hard set at 32 pixels (Tay et al., 2021, arXiv 2011.04006; Linsley et al., 2018, arXiv
1805.08315): the folder `pathfinder32/curv_contour_length_14` of `lra_release`. It has images
`imgs/BATCH/sample_NUMBER.png`, and for each batch a list `metadata/BATCH.npy`, which is text in
spite of its name: the folder, the file, the number and the class of an image, and the parameters of
the generator. A list that is a NumPy array, as the generator itself writes it, is rejected.

No digests are published: every image must be listed once, and be a grey PNG of 32 x 32.

Deviation: the arena takes 80 %, 10 % and 10 % of an order that belongs to TensorFlow Datasets; here
the order is drawn from a fixed seed.
"""

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8

from tasks.baselines import discs as shallow
from tasks.contract import SPLITS, Baseline, Split, SplitName
from tasks.data.archives import Member, SourceFiles
from tasks.data.corpus import subsample
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError

SIZE = 32
PIXELS = SIZE**2
FILE_LIMIT = 1 << 20
"""Bytes of an image or a list; a list of 1,000 images has about 60,000."""

ORDER_SEED = 0
"""Seed of the order that is cut into train, dev and test."""

SET = "pathfinder32/curv_contour_length_14"
IMAGE = re.compile(rf"{SET}/(imgs/\d+/sample_\d+\.png)")
LIST = re.compile(rf"{SET}/metadata/(\d+)\.npy")

Pixels = UInt8[np.ndarray, "32 32"]


@tasks.register("pathfinder-lra")
@dataclass(frozen=True, kw_only=True)
class OfficialPathfinder(ImportedTask):
    """Up to 160,000 train, 20,000 dev and 20,000 test images, none padded.

    Attributes:
        train, dev, test: images in the split of that name.
    """

    name = "pathfinder-lra"
    version = 1
    classes = 2
    vocabulary = 256
    max_len = PIXELS
    images = True
    labels = ("two snakes", "one snake")

    train: int = 160_000
    dev: int = 20_000
    test: int = 20_000

    def load(self, split: SplitName) -> Split:
        """See `Task.load`; also raises UserError where a split has fewer images than requested."""
        pixels, targets = self.arrays(
            {f"{split}_pixels": f"uint8 n {PIXELS}", f"{split}_targets": "uint8 n"}
        )
        count = getattr(self, split)
        chosen = subsample(f"pathfinder-lra.{split}", np.arange(len(targets)), count)
        return Split.single(
            torch.from_numpy(pixels[chosen]), None, torch.from_numpy(targets[chosen])
        )

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        """See `Task.shallow_baselines`: those of `pathfinder`."""
        return shallow.BASELINES

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        """See `ImportedTask.convert`."""
        images, lists = _read(files)
        ordered = [entry for number in sorted(lists) for entry in lists[number]]
        if len({name for name, _ in ordered}) < len(ordered):
            raise UserError(f"{files.path} lists an image twice in its metadata; get it again")
        missing = next((name for name, _ in ordered if name not in images), "")
        if missing:
            raise UserError(f"{files.path} contains no {SET}/{missing}; get it again")
        order = np.random.Generator(np.random.PCG64(ORDER_SEED)).random(len(ordered)).argsort()
        ends = [len(order) * 8 // 10, len(order) * 9 // 10]
        arrays = {}
        for split, part in zip(SPLITS, np.split(order, ends), strict=True):
            chosen = [ordered[index] for index in part]
            pixels = [images[name].ravel() for name, _ in chosen]
            arrays[f"{split}_pixels"] = np.array(pixels, np.uint8).reshape(-1, PIXELS)
            arrays[f"{split}_targets"] = np.array([target for _, target in chosen], np.uint8)
        return arrays


def _read(
    files: Iterable[Member],
) -> tuple[Mapping[str, Pixels], Mapping[int, list[tuple[str, int]]]]:
    """The images by name, and for each batch the names and classes of its list."""
    images: dict[str, Pixels] = {}
    lists: dict[int, list[tuple[str, int]]] = {}
    for file in files:
        if found := IMAGE.fullmatch(file.name):
            images[found.group(1)] = _image(file)
        elif found := LIST.fullmatch(file.name):
            lists[int(found.group(1))] = _list(file)
        else:
            raise UserError(f"{file.location} is neither an image nor a list; remove it")
    return images, lists


def _image(file: Member) -> Pixels:
    from PIL import Image

    content = file.read(FILE_LIMIT)
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.mode == "L" and image.size == (SIZE, SIZE):
                return np.array(image)
            form = f"{image.mode} {image.width} x {image.height}"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{file.location} is not a readable PNG; get it again") from error
    raise UserError(f"{file.location} is {form}, grey {SIZE} x {SIZE} expected; get it again")


def _list(file: Member) -> list[tuple[str, int]]:
    """The name and the class of each image of a batch."""
    entries = []
    for location, line in file.lines(FILE_LIMIT):
        if line.startswith(b"\x93NUMPY"):
            raise UserError(f"{file.location} is a NumPy array, text expected; get it again")
        fields = line.split()
        if len(fields) < 4 or fields[3] not in (b"0", b"1"):
            raise UserError(
                f"{location} is not a folder, a file, a number and a class; get it again"
            )
        entries.append((b"/".join(fields[:2]).decode("ascii", errors="replace"), int(fields[3])))
    return entries
