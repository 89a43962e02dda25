"""A stream of tokens as windows of a model's context length, with a target at every position.

Axis letters as in `tasks.contract`, and `v` tokens of a stream.
"""

import numpy as np
import torch
from jaxtyping import Int

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
    requested: int = 0,
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
        requested: how many windows, evenly spaced; 0 for all.
    """
    count = -(-len(classes) // length)
    dtype = next(t for t in (np.uint8, np.int16, np.int32) if vocabulary <= np.iinfo(t).max + 1)
    targets = np.full(count * length, -1, np.int64)
    targets[: len(classes)] = classes
    tokens = np.full(count * length, START, dtype)
    tokens[1 : len(classes)] = classes[:-1] + 1
    numbers = np.arange(count)
    chosen = numbers[:requested] * count // requested if requested else slice(None)
    clusters = np.searchsorted(articles, numbers[chosen] * length, side="right") - 1
    positions = torch.arange(length, dtype=torch.int32).expand(len(clusters), length)
    return Split.single(
        torch.from_numpy(tokens.reshape(count, length)[chosen]),
        None,
        torch.from_numpy(targets.reshape(count, length)[chosen]),
        positions,
        NextTokens(measure=measure),
        clusters=torch.from_numpy(clusters.astype(np.int32)),
    )
