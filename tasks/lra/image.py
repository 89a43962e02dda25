"""Image: which of ten things does a grey 32 x 32 picture show, read as 1,024 pixels?

CIFAR-10 (Krizhevsky, 2009) as the Long Range Arena poses it (Tay et al., 2021, arXiv 2011.04006):
one token a pixel, in raster order, its value 0..255 the token.

Deviation: the arena's dev split is the last tenth of a shuffled order that belongs to TensorFlow
Datasets; here it is 500 images of each class, chosen from the official 50,000 by a fixed seed.

Grey is what `tf.image.rgb_to_grayscale` makes of 8 bits: see `grey`. The official Python batches
are pickles; they are read without being unpickled: see `walk`.
"""

import io
import pickletools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8

from tasks.contract import Split, SplitName
from tasks.data.archives import Member, Opened
from tasks.data.corpus import members, official
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError

SIDE = 32
PIXELS = SIDE * SIDE
COLOURS = 3

LABELS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@tasks.register("image")
@dataclass(frozen=True, kw_only=True)
class Image(ImportedTask):
    """Up to 45,000 train, 5,000 dev and 10,000 test images, none padded.

    Attributes:
        train: images in train.
        dev: images in dev.
        test: images in test.
    """

    name = "image"
    version = 1
    classes = 10
    vocabulary = 256
    max_len = PIXELS
    images = True

    train: int = 45_000
    dev: int = 5_000
    test: int = 10_000

    def load(self, split: SplitName) -> Split:
        """See `Task.load`.

        Raises:
            UserError: more pictures are asked for than there are, too.
        """
        published = official(split)
        pixels, targets = self.arrays([f"{published}_pixels", f"{published}_targets"])
        chosen = members("image", targets, split, getattr(self, split))
        pixels, targets = pixels[chosen], targets[chosen]
        lengths = torch.full((len(pixels),), self.max_len, dtype=torch.int32)
        return Split.single(
            torch.from_numpy(pixels), lengths, torch.from_numpy(targets.astype(np.int64))
        )

    def label(self, target: int) -> str:
        """See `Task.label`."""
        return LABELS[target]

    @classmethod
    def convert(cls, files: Opened, rows: Mapping[str, int]) -> dict[str, np.ndarray]:
        """See `Imported.convert`."""
        found = _READERS[files.edition.name](files)
        arrays = {}
        for split, count in rows.items():
            pixels, targets = found[f"x_{split}"], found[f"y_{split}"]
            _require(f"x_{split} in {files.path}", pixels, (count, PIXELS))
            _require(f"y_{split} in {files.path}", targets, (count,))
            if targets.max() >= cls.classes:
                raise UserError(
                    f"y_{split} in {files.path} holds class {targets.max()}, "
                    f"{cls.classes - 1} is the last; get it again"
                )
            arrays |= {f"{split}_pixels": pixels, f"{split}_targets": targets}
        return arrays


def grey(colours: UInt8[np.ndarray, "n 3 l"]) -> UInt8[np.ndarray, "n l"]:
    """Luma of red, green and blue, in float32, cut off below 255.5 a full scale.

    The order of the operations is part of the definition: exact arithmetic gives 168 of the 16.8
    million colours another level.
    """
    red, green, blue = (
        part.astype(np.float32) / np.float32(255) for part in colours.swapaxes(0, 1)
    )
    weights = np.float32(0.2989), np.float32(0.5870), np.float32(0.1140)
    luma = weights[0] * red + weights[1] * green + weights[2] * blue
    return (luma * np.float32(255.5)).astype(np.uint8)


def walk(packed: bytes) -> tuple[UInt8[np.ndarray, "n 3 l"], UInt8[np.ndarray, " n"]]:
    """Pixels and labels of a batch in the Python edition, whose pickle is read but never executed.

    It is a dictionary that Python 2 wrote. Its opcodes are walked: the numbers behind the key
    `labels` are the labels, and the longest string is the pixels, plane by plane.

    Raises:
        ValueError: it is no pickle, or its labels and pixels do not fit each other.
    """
    labels: list[int] = []
    longest, listing = "", False
    for opcode, argument, _ in pickletools.genops(packed):
        if isinstance(argument, str):
            listing = argument == "labels"
            longest = max(longest, argument, key=len)
        elif listing and opcode.name == "BININT1":
            labels.append(int(argument or 0))
    pixels = np.frombuffer(longest.encode("latin-1"), np.uint8)
    return pixels.reshape(len(labels), COLOURS, PIXELS), np.array(labels, np.uint8)


def _grey_file(files: Iterable[Member]) -> dict[str, np.ndarray]:
    (file,) = files
    with np.load(io.BytesIO(file.stream.read()), allow_pickle=False) as members:
        found = {name: members[name] for name in members}
    # A shape that is not the known one is refused later.
    return {
        name: array.reshape(len(array), -1) if array.shape[1:] == (SIDE, SIDE) else array
        for name, array in found.items()
    }


def _records(packed: bytes) -> tuple[UInt8[np.ndarray, "n 3 l"], UInt8[np.ndarray, " n"]]:
    records = np.frombuffer(packed, np.uint8).reshape(-1, 1 + COLOURS * PIXELS)
    return records[:, 1:].reshape(-1, COLOURS, PIXELS), records[:, 0]


def _batches(
    read: Callable[[bytes], tuple[np.ndarray, np.ndarray]],
) -> Callable[[Iterable[Member]], dict[str, np.ndarray]]:
    """Reads a folder of batches, each by `read`: `data_batch_1` and so on, and `test_batch`."""

    def parse(files: Iterable[Member]) -> dict[str, np.ndarray]:
        parts = {file.name: read(file.stream.read()) for file in files}
        # In an archive they stand in any order.
        train = sorted(name for name in parts if name.startswith("data_batch"))
        named = {"train": train, "test": sorted(parts.keys() - train)}
        arrays = {}
        for split, batches in named.items():
            arrays[f"x_{split}"] = np.concatenate([grey(parts[name][0]) for name in batches])
            arrays[f"y_{split}"] = np.concatenate([parts[name][1] for name in batches])
        return arrays

    return parse


_READERS = {"grey": _grey_file, "binary": _batches(_records), "python": _batches(walk)}


def _require(part: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.uint8:
        raise UserError(
            f"{part} is {array.dtype} {array.shape}, uint8 {shape} expected; get it again"
        )
