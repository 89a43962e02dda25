"""Where the two discs of a Pathfinder image are, found from its pixels.

A disc covers a block of bright pixels, a paddle is narrower: the level of a place is the lowest of
the nine pixels around it, each divided by the level of a disc there. The two places of the highest
level are taken for the discs.

Axis letters: `n` images, `h` side of an image, `f` features.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from tasks.baselines.fitting import Features, trees
from tasks.contract import Split

DISC = ((0.9, 1.0, 0.5), (1.0, 1.0, 0.75), (0.5, 0.7, 0.2))
"""The pixels around the centre of a disc as the generator draws it, as a share of the highest."""

APART = 2
"""Places within so many pixels, in both directions, are the same disc."""

AROUND = 2
"""Pixels on each side of a disc that are its surroundings: 5 x 5."""

Images = UInt8[Tensor, "n h h"]


def find_discs(images: Images) -> Int64[Tensor, "n 4"]:
    """(y, x) of both discs, in the order of their pixels."""
    side = images.shape[-1]
    padded, levels = F.pad(images.float(), (1, 1, 1, 1)), torch.full(images.shape, torch.inf)
    for y, row in enumerate(DISC):
        for x, share in enumerate(row):
            levels = levels.minimum(padded[:, y : y + side, x : x + side] / share)
    first = levels.flatten(1).argmax(1)
    near_y, near_x = (
        (torch.arange(side) - place[:, None]).abs() <= APART
        for place in (first // side, first % side)
    )
    others = levels.masked_fill(near_y[:, :, None] & near_x[:, None, :], -1.0)
    places = torch.stack([first, others.flatten(1).argmax(1)], 1).sort(1).values
    return torch.stack([places // side, places % side], 2).flatten(1)


def find_surroundings(images: Images) -> Int64[Tensor, "n f"]:
    """`find_discs`, and the 5 x 5 levels around each disc; 0 beyond the image."""
    places = find_discs(images)
    width = 2 * AROUND + 1
    blocks = F.pad(images, (AROUND,) * 4).unfold(1, width, 1).unfold(2, width, 1)
    rows = torch.arange(len(images))[:, None]
    around = blocks[rows, places[:, ::2], places[:, 1::2]]
    return torch.cat([places, around.flatten(1).long()], 1)


def _features(find: Callable[[Images], Int64[Tensor, "n f"]]) -> Features:
    def features(split: Split) -> UInt8[np.ndarray, "n f"]:
        side = int(split.sequences.shape[1] ** 0.5)
        found = [find(part.unflatten(1, (side, side))) for part, _ in split.chunks()]
        return torch.cat(found)[split.sequence_ids[:, 0]].to(torch.uint8).numpy()

    return features


SETS: Mapping[str, Features] = {
    "disc places": _features(find_discs),
    "disc places, 5 x 5 pixels": _features(find_surroundings),
}
"""Sets of features by name."""

MODELS = {name: partial(trees, features) for name, features in SETS.items()}
