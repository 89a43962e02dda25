"""Another task's sequences with their blocks of tokens in random order.

What a model learns from the result depends on tokens within a block, or on no order at all.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.synthetic.base import Stream
from zoo.registry import UserError


class ShuffledBlocks(Task):
    """Each sequence is cut into blocks of equal length, the last one shorter, and these shuffled.

    Tokens keep their order within a block, and padding stays at the end. The order is drawn once
    per sequence: it does not change from epoch to epoch.
    """

    def __init__(self, task: Task, block: int) -> None:
        """Wrap `task`; UserError if `block` is below 1, or its inputs are no sequences."""
        if block < 1:
            raise UserError(f"block={block} must be at least 1; raise it")
        if task.inputs != "sequences":
            raise UserError(
                f"{task.key} has no sequences of tokens to shuffle; leave out the block"
            )
        self.task, self.block = task, block
        self.classes, self.vocabulary = task.classes, task.vocabulary
        self.max_len, self.sequences, self.causal = task.max_len, task.sequences, task.causal
        self.channels = task.channels

    @property
    def key(self) -> str:
        """See `Task.key`."""
        return f"{self.task.key}, blocks of {self.block} shuffled"

    def load(self, split: SplitName) -> Split:
        """See `Task.load`.

        Raises:
            UserError: the task has target positions, which would no longer match their tokens.
        """
        plain = self.task.load(split)
        if plain.target_positions is not None:
            raise UserError(f"{self.task.key} has target positions; shuffle another task")
        stream = Stream(self.block, SPLITS.index(split))
        chunks = [_shuffle(*part, self.block, stream) for part in plain.chunks()]
        return replace(plain, sequences=torch.cat(chunks))


def shuffle_blocks(task: Task, block: int) -> Task:
    """`task` with blocks of `block` tokens shuffled; unchanged where `block` is 0."""
    return ShuffledBlocks(task, block) if block else task


def _shuffle(
    sequences: Shaped[Tensor, "s l *f"], lengths: Int[Tensor, " s"], block: int, stream: Stream
) -> Shaped[Tensor, "s l *f"]:
    count, length = sequences.shape[:2]
    positions = np.arange(length)
    ranks = stream.uniform(count, -(-length // block))[:, positions // block]
    ranks[positions >= lengths.numpy()[:, None]] = 1.0  # after every real token
    order = torch.from_numpy(ranks.argsort(1, kind="stable"))
    return sequences[torch.arange(count)[:, None], order]
