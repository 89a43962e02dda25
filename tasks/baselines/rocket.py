"""Linear classifiers of signals: of the statistics of channels, and of random convolutions.

ROCKET (Dempster, Petitjean, Webb, "ROCKET: exceptionally fast and accurate time series
classification using random convolutional kernels", 2020, arXiv 1910.13051): kernels of random
length, weights, bias, dilation, padding and channels are convolved with a series; the features of a
kernel are the maximum of its output, and the proportion of positive values. A ridge classifier is
fitted to the standardised features, its penalty chosen on dev.

Deviations: `GROUPS` times `WIDTH` kernels in place of 10,000; the kernels of a group have one
length, dilation and padding, so that a group is one convolution. A series is zero after its end,
which is the mean of train, and features are taken over the outputs of the series only.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float32
from torch import Tensor
from torch.nn import functional as F

from tasks.baselines.fitting import best_of, linear
from tasks.contract import CHUNK, Baseline, Score, Split, Splits

# Sets of kernels that are convolved together, and kernels of a set: 2,000 in all.
GROUPS, WIDTH = 100, 20

LENGTHS = (7, 9, 11)  # Lengths of a kernel, each as probable
VALUES = 1 << 24  # Outputs of a convolution that are in memory at once


def statistics(split: Split) -> Float32[np.ndarray, "n features"]:
    rows = []
    for signals, lengths in split.chunks():
        mask = _mask(signals.shape[1], lengths)[..., None]
        count = lengths[:, None].float()
        mean = signals.where(mask, 0.0).sum(1) / count
        variance = (signals - mean[:, None]).square().where(mask, 0.0).sum(1) / count
        low, high = signals.where(mask, torch.inf).amin(1), signals.where(mask, -torch.inf).amax(1)
        share = count / split.sequences.shape[1]
        rows.append(torch.cat([share, mean, variance.sqrt(), low, high], dim=1))
    return torch.cat(rows)[split.sequence_ids[:, 0].long()].numpy()


def convolutions(split: Split) -> Float32[np.ndarray, "n features"]:
    length, channels = split.sequences.shape[1:]
    groups, rows = [*kernels(length, channels, torch.Generator().manual_seed(0))], []
    for signals, lengths in split.chunks(max(1, min(CHUNK, VALUES // (WIDTH * length)))):
        inputs, features = signals.mT.where(_mask(length, lengths)[:, None], 0.0), []
        for weights, bias, dilation, padding in groups:
            out = F.conv1d(inputs, weights, bias, 1, padding, dilation)
            span = (weights.shape[2] - 1) * dilation
            counts = (lengths + 2 * padding - span).clamp(1, out.shape[2])
            mask = _mask(out.shape[2], counts)[:, None]
            positive = ((out > 0) & mask).sum(2) / counts[:, None]
            features += [out.where(mask, -torch.inf).amax(2), positive]
        rows.append(torch.cat(features, dim=1))
    return torch.cat(rows)[split.sequence_ids[:, 0].long()].numpy()


def kernels(
    length: int, channels: int, generator: torch.Generator
) -> Iterator[tuple[Float32[Tensor, "k f w"], Float32[Tensor, " k"], int, int]]:
    # Weights are normal with mean 0 in each channel of a kernel, biases uniform in [-1, 1]. The
    # number of channels of a kernel is 2^x, x uniform up to the logarithm of `channels`, dilation
    # 2^x up to the longest that fits; half of the groups are padded to keep the length.
    for _ in range(GROUPS):
        width = LENGTHS[int(torch.randint(len(LENGTHS), (), generator=generator))]
        largest = np.log2(max(1.0, (length - 1) / (width - 1)))
        dilation = int(2 ** (torch.rand((), generator=generator).item() * largest))
        padded = bool(torch.randint(2, (), generator=generator))
        span = (width - 1) * dilation
        # A signal that is shorter than the kernel has an output, too.
        padding = span // 2 if padded or span >= length else 0
        weights = torch.randn(WIDTH, channels, width, generator=generator)
        weights -= weights.mean(2, keepdim=True)
        counts = 2 ** (torch.rand(WIDTH, generator=generator) * np.log2(channels + 1))
        order = torch.rand(WIDTH, channels, generator=generator).argsort(1).argsort(1)
        weights *= (order < counts.long()[:, None])[..., None]
        yield weights, torch.rand(WIDTH, generator=generator) * 2 - 1, dilation, padding


def ridge(splits: Splits) -> Score:
    from sklearn.linear_model import RidgeClassifier

    inputs = {name: convolutions(split).astype(np.float64) for name, split in splits.items()}
    mean, deviation = inputs["train"].mean(0), inputs["train"].std(0)
    inputs = {name: (part - mean) / np.maximum(deviation, 1e-8) for name, part in inputs.items()}
    targets = splits["train"].targets.numpy()
    # The largest first: it wins among equal ones on dev.
    penalties = (10.0**power for power in range(3, -4, -1))
    models = (RidgeClassifier(alpha=alpha).fit(inputs["train"], targets) for alpha in penalties)
    return best_of(models, inputs, splits)


def _mask(length: int, lengths: Tensor) -> Bool[Tensor, "n l"]:
    return torch.arange(length) < lengths[:, None]


# The classifiers by name.
MODELS: Mapping[str, Baseline] = {
    "statistics of channels": partial(linear, statistics),
    "random convolutions": ridge,
}
