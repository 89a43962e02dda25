"""Another task's documents with their blocks of tokens in random order.

What a model still learns of it, it learns from tokens that stand near one another, or from no order
at all.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.synthetic.base import Stream
from zoo.registry import UserError


class InBlocks(Task):
    """Each document is cut into blocks of as many tokens, the last of them shorter, and shuffled.

    Tokens keep their order within a block; padding stays behind them. The order is drawn once for
    each document: it does not change from epoch to epoch.
    """

    def __init__(self, task: Task, block: int) -> None:
        """Wrap `task`, at all its options.

        Raises:
            UserError: `block` is below 1.
        """
        if block < 1:
            raise UserError(f"block={block} must be at least 1; raise it")
        self.task, self.block = task, block
        self.classes, self.vocabulary = task.classes, task.vocabulary
        self.max_len, self.sequences, self.causal = task.max_len, task.sequences, task.causal

    @property
    def key(self) -> str:
        """See `Task.key`."""
        return f"{self.task.key}, blocks of {self.block} shuffled"

    def load(self, split: SplitName) -> Split:
        """See `Task.load`.

        Raises:
            UserError: the task asks at tokens, which would no longer be where they are asked.
        """
        found = self.task.load(split)
        if found.target_positions is not None:
            raise UserError(f"{self.task.key} asks at tokens of its own; shuffle another task")
        stream = Stream(self.block, SPLITS.index(split))
        parts = [shuffled(*part, self.block, stream) for part in found.chunks()]
        return replace(found, sequences=torch.cat(parts))


def arranged(task: Task, block: int) -> Task:
    """`task` with its blocks shuffled, or, where `block` is 0, as it is."""
    return InBlocks(task, block) if block else task


def shuffled(
    sequences: Shaped[Tensor, "s l"], lengths: Int[Tensor, " s"], block: int, stream: Stream
) -> Shaped[Tensor, "s l"]:
    """The documents with their blocks of `block` real tokens in random order."""
    count, length = sequences.shape
    places = np.arange(length)
    ranks = stream.uniform(count, -(-length // block))[:, places // block]
    # Behind every real token.
    ranks[places >= lengths.numpy()[:, None]] = 1.0
    order = torch.from_numpy(ranks.argsort(1, kind="stable"))
    return sequences.gather(1, order)
