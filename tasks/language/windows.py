"""A stream of tokens as windows of a model's context length, with a target at every position.

Axis letters as in `tasks.contract`, and `v` tokens of a stream.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tasks.answers import NextTokens
from tasks.contract import Split

START = 0
"""The token before the first of a stream; class c is token c + 1."""


def windows(
    classes: Int[np.ndarray, " v"],
    articles: Int[np.ndarray, " articles"],
    length: int,
    vocabulary: int,
    measure: str,
) -> Split:
    """Successive windows: the targets of window i are the tokens from i * length on.

    The input of a position is the token before its target, so that the target at position j of a
    window is predicted from j + 1 tokens, the last of the window before it included. Every token is
    a target once. After the end of the stream, targets are -1 and tokens arbitrary: no real token
    is before them, so that a causal model needs no mask.

    Args:
        classes: the tokens of the stream, as classes.
        articles: where each article begins, ascending, from 0 on. A window belongs to the one that
            contains its first target; the windows of an article are a cluster.
        length: l.
        vocabulary: vocabulary size, which decides the integer type.
        measure: how the loss is shown, a name in `tasks.metrics`.
    """
    count = -(-len(classes) // length)
    dtype = next(t for t in (np.uint8, np.int16, np.int32) if vocabulary <= np.iinfo(t).max + 1)
    targets = np.full(count * length, -1, np.int64)
    targets[: len(classes)] = classes
    tokens = np.full(count * length, START, dtype)
    tokens[1 : len(classes)] = classes[:-1] + 1
    first = np.arange(count) * length
    clusters = np.searchsorted(articles, first, side="right") - 1
    positions: Int[Tensor, "n l"] = torch.arange(length, dtype=torch.int32).expand(count, length)
    return Split(
        sequences=torch.from_numpy(tokens.reshape(count, length)),
        lengths=torch.full((count,), length, dtype=torch.int32),
        sequence_ids=torch.arange(count, dtype=torch.int32)[:, None],
        targets=torch.from_numpy(targets.reshape(count, length)),
        padded=False,
        target_positions=positions,
        answers=NextTokens(measure=measure),
        clusters=torch.from_numpy(clusters.astype(np.int32)),
    )


def subset(split: Split, count: int) -> Split:
    """`count` evenly spaced windows of a split."""
    chosen = torch.arange(count) * len(split) // count
    return replace(
        split,
        sequences=split.sequences[chosen],
        lengths=split.lengths[chosen],
        sequence_ids=split.sequence_ids[:count],
        targets=split.targets[chosen],
        target_positions=None if (at := split.target_positions) is None else at[:count],
        clusters=None if (groups := split.clusters) is None else groups[chosen],
    )
