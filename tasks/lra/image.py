"""Image: which of ten things does a grey 32 x 32 picture show, read as 1,024 pixels?

CIFAR-10 (Krizhevsky, 2009) as the Long Range Arena poses it (Tay et al., 2021, arXiv 2011.04006):
one token a pixel, in raster order, its value 0..255 the token.

Deviation: the arena's dev split is the last tenth of a shuffled order that belongs to TensorFlow
Datasets; here it is 500 images of each class, chosen from the official 50,000 by a fixed seed.
"""

import io

import numpy as np
import torch

from tasks.contract import Split, SplitName
from tasks.corpus import held_out, thinned
from tasks.known import File
from tasks.registry import tasks
from tasks.sources import Imported
from zoo.registry import Refused

SIDE = 32
DEV_SEED = 0


@tasks.register("image")
class Image(Imported):
    """Up to 45,000 train, 5,000 dev and 10,000 test pictures, none padded."""

    name = "image"
    version = 1
    classes = 10
    vocabulary = 256
    max_len = SIDE * SIDE

    def __init__(self, *, train: int = 45_000, dev: int = 5_000, test: int = 10_000) -> None:
        """Choose how many pictures of each split are used; fewer make another setting."""
        self.train, self.dev, self.test = train, dev, test

    def load(self, split: SplitName) -> Split:
        """See `Task.load`.

        Raises:
            Refused: more pictures are asked for than there are, too.
        """
        official = "test" if split == "test" else "train"
        pixels, targets = self.arrays([f"{official}_pixels", f"{official}_targets"])
        chosen = np.arange(len(targets))
        if split != "test":
            train, dev = held_out(targets, DEV_SEED)
            chosen = dev if split == "dev" else train
        chosen = thinned(f"image.{split}", chosen, getattr(self, split))
        pixels, targets = pixels[chosen], targets[chosen]
        lengths = torch.full((len(pixels),), self.max_len, dtype=torch.int32)
        return Split.single(
            torch.from_numpy(pixels), lengths, torch.from_numpy(targets.astype(np.int64))
        )

    @classmethod
    def convert(cls, packed: bytes, file: File) -> dict[str, np.ndarray]:
        """See `Imported.convert`."""
        arrays = {}
        with np.load(io.BytesIO(packed), allow_pickle=False) as members:
            for split, rows in file.rows.items():
                pixels, targets = members[f"x_{split}"], members[f"y_{split}"]
                _require(file, f"x_{split}", pixels, (rows, SIDE, SIDE))
                _require(file, f"y_{split}", targets, (rows,))
                if targets.max() >= cls.classes:
                    raise Refused(
                        f"y_{split} in {file.name} holds class {targets.max()}, "
                        f"{cls.classes - 1} is the last; get it again"
                    )
                arrays[f"{split}_pixels"] = pixels.reshape(rows, cls.max_len)
                arrays[f"{split}_targets"] = targets
        return arrays


def _require(file: File, part: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.uint8:
        raise Refused(
            f"{part} in {file.name} is {array.dtype} {array.shape}, uint8 {shape} expected; "
            "get it again"
        )
    file.verify(part, array.tobytes())
