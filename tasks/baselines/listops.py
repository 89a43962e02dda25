"""Features of a ListOps tree that need its brackets matched, and no operator evaluated.

Depth counts the brackets that are open: the root operator is at depth 0, its operands at depth 1.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from jaxtyping import Bool, UInt8

from tasks.baselines.fitting import Features, trees
from tasks.contract import Split
from tasks.lra.listops_trees import CLOSE, FIRST_DIGIT, FIRST_OPERATOR, OPERATORS

DIGITS = range(FIRST_DIGIT, FIRST_DIGIT + 10)
OPERATOR_TOKENS = range(FIRST_OPERATOR, FIRST_OPERATOR + len(OPERATORS))


def tree_features(split: Split, *, subtrees: bool, deeper: bool) -> UInt8[np.ndarray, "n f"]:
    # The root operator, how often each digit is an operand of it, and how many operands are trees.
    # With `subtrees`, also how often each operator begins an operand of the root; with `deeper`,
    # how often each digit is an operand at depth 2, by the operator above it.
    features = []
    for sequences, lengths in split.chunks():
        tokens = sequences.numpy() * (np.arange(sequences.shape[1]) < lengths.numpy()[:, None])
        operators = (tokens >= FIRST_OPERATOR) & (tokens < FIRST_OPERATOR + len(OPERATORS))
        after = np.cumsum(operators.astype(np.int8) - (tokens == CLOSE), axis=1, dtype=np.int16)
        depth = after - operators
        roots = operators & (depth == 1)
        count = roots.sum(1, keepdims=True, dtype=np.uint8)
        columns = [tokens[:, :1], count, _counts(tokens, depth == 1, DIGITS)]
        if subtrees:
            columns.append(_counts(tokens, roots, OPERATOR_TOKENS))
        if deeper:
            # The operator of the subtree of a position.
            latest = np.maximum.accumulate(np.where(roots, np.arange(tokens.shape[1]), 0), axis=1)
            operator = np.take_along_axis(tokens, latest, axis=1)
            columns += [
                _counts(tokens, (depth == 2) & (operator == root), DIGITS)
                for root in OPERATOR_TOKENS
            ]
        features.append(np.concatenate(columns, axis=1))
    return np.concatenate(features)[split.sequence_ids[:, 0].numpy()]


# Sets of features of the tree by name, each in addition to those before it
SETS: Mapping[str, Features] = {
    "digits to depth 1": partial(tree_features, subtrees=False, deeper=False),
    "operators to depth 1": partial(tree_features, subtrees=True, deeper=False),
    "digits to depth 2": partial(tree_features, subtrees=True, deeper=True),
}

MODELS = {name: partial(trees, features) for name, features in SETS.items()}


def _counts(
    tokens: UInt8[np.ndarray, "c l"], where: Bool[np.ndarray, "c l"], values: range
) -> UInt8[np.ndarray, "c v"]:
    rows, columns = np.nonzero(where)
    chosen = tokens[rows, columns].astype(np.int64)
    inside = (chosen >= values.start) & (chosen < values.stop)
    codes = rows[inside] * len(values) + chosen[inside] - values.start
    counts = np.bincount(codes, minlength=len(tokens) * len(values))
    return counts.clip(max=255).astype(np.uint8).reshape(len(tokens), len(values))
