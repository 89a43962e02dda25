"""Classifiers of grey images that read each pixel at its place, or the places of two discs alone.

* Of CIFAR-10: a logistic regression, and a multi-layer perceptron, of whose epochs dev chooses one.
* Of Pathfinder: boosted trees on the places of the discs. A disc covers a block of bright pixels, a
  paddle is narrower: the level of a place is the lowest of the nine pixels around it, each divided
  by the level of a disc there. The two places of the highest level are taken for the discs.

Axis letters: `n` images, `h` side of an image, `f` features.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, pairwise

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.baselines.fitting import Features, best_of, linear, trees
from tasks.contract import CHUNK, Score, Split, Splits

# The pixels around the centre of a disc as the generator draws it, as a share of the highest.
DISC = ((0.9, 1.0, 0.5), (1.0, 1.0, 0.75), (0.5, 0.7, 0.2))

APART = 2  # Places within so many pixels, in both directions, are the same disc
AROUND = 2  # Pixels on each side of a disc that are its surroundings: 5 x 5

Images = UInt8[Tensor, "n h h"]


def find_discs(images: Images) -> Int64[Tensor, "n 4"]:
    # (y, x) of both, in the order of their pixels.
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
    # `find_discs`, and the 5 x 5 levels around each disc; 0 beyond the image.
    places = find_discs(images)
    width = 2 * AROUND + 1
    blocks = F.pad(images, (AROUND,) * 4).unfold(1, width, 1).unfold(2, width, 1)
    around = blocks[torch.arange(len(images))[:, None], places[:, ::2], places[:, 1::2]]
    return torch.cat([places, around.flatten(1).long()], 1)


def _of_images(
    find: Callable[[Images], Int64[Tensor, "n f"]], split: Split
) -> UInt8[np.ndarray, "n f"]:
    side = int(split.sequences.shape[1] ** 0.5)
    found = [find(part.unflatten(1, (side, side))) for part, _ in split.chunks()]
    return torch.cat(found)[split.sequence_ids[:, 0]].to(torch.uint8).numpy()


# Sets of features by name.
DISC_FEATURES: Mapping[str, Features] = {
    "disc places": partial(_of_images, find_discs),
    "disc places, 5 x 5 pixels": partial(_of_images, find_surroundings),
}

DISC_MODELS = {name: partial(trees, features) for name, features in DISC_FEATURES.items()}

WIDTHS, DROPOUT = (512, 256), 0.3
EPOCHS, BATCH = 15, 256
RATE, DECAY = 1e-3, 0.01


def pixels(split: Split) -> Float32[Tensor, "n f"]:
    return split.sequences[split.sequence_ids[:, 0]].float() / 255


def perceptron(splits: Splits) -> Score:
    inputs = {name: pixels(split) for name, split in splits.items()}
    mean, deviation = inputs["train"].mean(0), inputs["train"].std(0, correction=0)
    inputs = {name: (part - mean) / deviation.clamp_min(1e-3) for name, part in inputs.items()}
    classes = int(max(split.targets.max() for split in splits.values())) + 1
    # Dropout and initialisation draw from the global generator, which is restored.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Perceptron(inputs["train"].shape[1], classes)
        return best_of(model.epochs(inputs["train"], splits["train"].targets), inputs, splits)


class Perceptron(nn.Sequential):
    """A multi-layer perceptron with the method of a classifier of scikit-learn."""

    def __init__(self, features: int, classes: int) -> None:
        widths = features, *WIDTHS
        hidden = [(nn.Linear(*pair), nn.ReLU(), nn.Dropout(DROPOUT)) for pair in pairwise(widths)]
        super().__init__(*chain.from_iterable(hidden), nn.Linear(widths[-1], classes))

    def epochs(
        self, inputs: Float32[Tensor, "n f"], targets: Int64[Tensor, " n"]
    ) -> Iterator["Perceptron"]:
        optimiser = torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=DECAY)
        steps = EPOCHS * -(-len(inputs) // BATCH)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
        for _ in range(EPOCHS):
            self.train()
            for batch in torch.randperm(len(inputs)).split(BATCH):
                optimiser.zero_grad()
                F.cross_entropy(self(inputs[batch]), targets[batch]).backward()
                optimiser.step()
                schedule.step()
            yield self

    @torch.no_grad()
    def predict(self, inputs: Float32[Tensor, "n f"]) -> Int64[np.ndarray, " n"]:
        self.eval()
        return torch.cat([self(part).argmax(1) for part in inputs.split(CHUNK)]).numpy()


# The classifiers by name.
PIXEL_MODELS: Mapping[str, Callable[[Splits], Score]] = {
    "pixels, linear": partial(linear, lambda split: pixels(split).numpy(), penalties=(1e-2, 1e-3)),
    "pixels, perceptron": perceptron,
}
