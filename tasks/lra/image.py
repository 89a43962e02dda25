"""Image: the object in a grey 32 x 32 image, read as 1,024 pixels.

CIFAR-10 (Krizhevsky, 2009) as in the Long Range Arena (Tay et al., 2021, arXiv 2011.04006): one
token per pixel, in raster order; the token is the grey level 0..255 (see `to_grey`).

Deviation: the arena's dev split is the last tenth of a shuffled order that belongs to TensorFlow
Datasets; here it is 500 images of each class, chosen from the official 50,000 by a fixed seed.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8

from tasks.baselines.grey_images import PIXEL_MODELS
from tasks.contract import Baseline, Split, SplitName
from tasks.data.corpus import in_split, official
from tasks.data.files import SMALL_FILE, SourceFiles, source_of
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

SIDE = 32
PIXELS = SIDE**2


@tasks.register("image")
@dataclass(frozen=True, kw_only=True)
class Image(ImportedTask):
    """Up to 45,000 train, 5,000 dev and 10,000 test images, none padded.

    Attributes:
        size: pixels of a side, a divisor of 32; a smaller image has the means of square blocks,
            rounded down.
        train, dev, test: images in the split of that name.
    """

    name = "image"
    version = 1
    classes = 10
    vocabulary = 256
    images = True
    labels = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    )  # fmt: skip

    source = source_of("image")

    size: int = SIDE
    train: int = 45_000
    dev: int = 5_000
    test: int = 10_000

    def __post_init__(self) -> None:
        require_at_least(1, self.name, size=self.size)
        if SIDE % self.size:
            raise UserError(f"image.size={self.size} does not divide {SIDE}; give 8, 16 or 32")
        self._derive(max_len=self.size**2)

    def load(self, split: SplitName) -> Split:
        fields = {"pixels": f"uint8 n {PIXELS}", "targets": "uint8 n"}
        pixels, targets = self.arrays(fields, official(split))
        chosen, block = self.subset(split, in_split(targets, split)), SIDE // self.size
        blocks = pixels[chosen].reshape(-1, self.size, block, self.size, block)
        means = (blocks.sum((2, 4), dtype=np.int64) // block**2).astype(np.uint8)
        sequences = torch.from_numpy(means.reshape(-1, self.max_len))
        return Split.single(sequences, None, torch.from_numpy(targets[chosen]))

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        return PIXEL_MODELS

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        arrays, batches = {}, {}
        for file in files:
            content = file.read(SMALL_FILE)
            if file.name.endswith(".npz"):
                with np.load(io.BytesIO(content), allow_pickle=False) as packed:
                    for split in ("train", "test"):
                        arrays[f"{split}_pixels"] = packed[f"x_{split}"].reshape(-1, PIXELS)
                        arrays[f"{split}_targets"] = packed[f"y_{split}"]
            else:
                batches[file.name] = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * PIXELS)
        for split, prefix in (("train", "data_batch"), ("test", "test_batch")):
            # In an archive they are in any order.
            of_split = [batches[name] for name in sorted(batches) if name.startswith(prefix)]
            if of_split:
                planes = [batch[:, 1:].reshape(-1, 3, PIXELS) for batch in of_split]
                arrays[f"{split}_pixels"] = np.concatenate([to_grey(part) for part in planes])
                arrays[f"{split}_targets"] = np.concatenate([batch[:, 0] for batch in of_split])
        return arrays


def to_grey(colours: UInt8[np.ndarray, "n 3 l"]) -> UInt8[np.ndarray, "n l"]:
    # Luma of red, green and blue: trunc(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255), in float32.
    # As `tf.image.rgb_to_grayscale` computes it for uint8. The order of the operations is part of
    # the definition: exact arithmetic gives 168 of the 16.8 million colours another level.
    red, green, blue = colours.swapaxes(0, 1).astype(np.float32) / np.float32(255)
    weights = np.float32(0.2989), np.float32(0.5870), np.float32(0.1140)
    luma = weights[0] * red + weights[1] * green + weights[2] * blue
    return (luma * np.float32(255.5)).astype(np.uint8)
