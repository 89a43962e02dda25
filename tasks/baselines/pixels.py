"""Classifiers of grey images that read each pixel at its place, without attention or convolution.

A logistic regression, and a multi-layer perceptron 1024-512-256-10 with dropout 0.3, AdamW at 1e-3
falling linearly to 0, weight decay 0.01, batches of 256, 15 epochs. Of its epochs, dev chooses one.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.baselines.fitting import linear
from tasks.contract import Score, Split, Splits

WIDTHS = (512, 256)
DROPOUT = 0.3
EPOCHS = 15
BATCH = 256
RATE, DECAY = 1e-3, 0.01
WHITE = 255
PENALTIES = (1e-2, 1e-3)
EVALUATED = 4096
"""Images that are classified at a time."""


def pixels(split: Split) -> Float32[Tensor, "n f"]:
    """The grey levels of an image, in [0, 1]."""
    return split.sequences[split.sequence_ids[:, 0]].float() / WHITE


def perceptron(splits: Splits) -> Score:
    """Accuracies of the multi-layer perceptron after the epoch that is best on dev."""
    inputs = {name: pixels(split) for name, split in splits.items()}
    mean, deviation = inputs["train"].mean(0), inputs["train"].std(0, correction=0)
    inputs = {name: (part - mean) / deviation.clamp_min(1e-3) for name, part in inputs.items()}
    classes = int(max(split.targets.max() for split in splits.values())) + 1
    best = Score(-1.0, 0.0)
    # Dropout and initialisation draw from the global generator, which is restored.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _network(inputs["train"].shape[1], classes)
        optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
        steps = EPOCHS * -(-len(inputs["train"]) // BATCH)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
        for _ in range(EPOCHS):
            _train(model, schedule, inputs["train"], splits["train"].targets)
            dev = _accuracy(model, inputs["dev"], splits["dev"].targets)
            if dev > best.dev:
                best = Score(dev, _accuracy(model, inputs["test"], splits["test"].targets))
    return best


def _network(inputs: int, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in WIDTHS:
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(DROPOUT)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def _train(
    model: nn.Module,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    inputs: Float32[Tensor, "n f"],
    targets: Int64[Tensor, " n"],
) -> None:
    model.train()
    for batch in torch.randperm(len(inputs)).split(BATCH):
        schedule.optimizer.zero_grad()
        F.cross_entropy(model(inputs[batch]), targets[batch]).backward()
        schedule.optimizer.step()
        schedule.step()


@torch.no_grad()
def _accuracy(
    model: nn.Module, inputs: Float32[Tensor, "n f"], targets: Int64[Tensor, " n"]
) -> float:
    model.eval()
    answers = torch.cat([model(part).argmax(1) for part in inputs.split(EVALUATED)])
    return (answers == targets).double().mean().item()


MODELS: Mapping[str, Callable[[Splits], Score]] = {
    "pixels, linear": partial(linear, lambda split: pixels(split).numpy(), penalties=PENALTIES),
    "pixels, perceptron": perceptron,
}
"""The classifiers by name."""
