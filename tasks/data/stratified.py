"""Random splits of examples, of which each has its share of every class."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from tasks.contract import SPLITS
from zoo.registry import UserError


def stratified(
    targets: Int64[np.ndarray, " n"],
    keys: Float64[np.ndarray, " n"],
    classes: Sequence[str],
    *,
    dev: float,
    test: float | None,
    owner: str,
    items: str,
    remedy: str,
) -> Int64[np.ndarray, " n"]:
    """The index in `SPLITS` of the split of each example.

    Args:
        targets: class of each example.
        keys: random numbers, in whose order the examples of a class are assigned.
        classes: name of each class.
        dev: share of dev.
        test: share of test; None where no example is in test.
        owner: what the examples are from, for a message.
        items: what the examples are, for a message.
        remedy: how to get more of them, for a message.

    Raises:
        UserError: a class has fewer examples than there are splits.
    """
    splits = np.zeros(len(targets), np.int64)
    needed = 2 if test is None else 3
    for target, name in enumerate(classes):
        own = np.flatnonzero(targets == target)
        if len(own) < needed:
            raise UserError(
                f"{owner} has {len(own)} {items} of class {name!r}, one for each of {needed} "
                f"splits needed; {remedy} or remove the class"
            )
        own = own[keys[own].argsort(kind="stable")]
        # At least one example in each split, whatever the shares.
        in_test = 0 if test is None else min(max(1, round(test * len(own))), len(own) - 2)
        in_dev = min(max(1, round(dev * len(own))), len(own) - in_test - 1)
        splits[own[:in_dev]] = SPLITS.index("dev")
        splits[own[in_dev : in_dev + in_test]] = SPLITS.index("test")
    return splits
