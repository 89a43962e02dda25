"""Adding: the sum of the two marked numbers.

Hochreiter and Schmidhuber, 1997. One number is marked in each half of the sequence; an answer is
correct where its error is below 0.08. They require 0.04 of a target scaled to [0, 1]; here it is
the sum, in [0, 2]. Deviation: the numbers lie on a grid over [0, 1], so that each is a token.
"""

from dataclasses import dataclass

import numpy as np

from tasks.answers import Number
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask


@tasks.register("adding")
@dataclass(frozen=True, kw_only=True)
class Adding(SyntheticTask):
    """Token 1 + i is the number i / (levels - 1); the same number marked is `levels` higher.

    As a marked number has another token, the sum is linear in how often each token occurs: the
    baseline *bag of tokens* solves it. The task tests whether a model can be optimised to find two
    tokens among many at any length, not whether it moves information between positions.

    Attributes:
        max_len: numbers per example.
        levels: how many different numbers there are.
    """

    name = "adding"
    version = 2
    caveat = (
        "*bag of tokens* is the task: the sum is linear in how often each token occurs, and no "
        "information has to move between positions. The first 16 tokens give little more than the "
        "mean of train."
    )
    classes = 1
    vocabulary_option = "levels"
    answers = Number(tolerance=0.08)

    max_len: int = 128
    levels: int = 101

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        self._derive(vocabulary=1 + 2 * self.levels)
        self._require(max_len=2, levels=2)

    def draw(self, stream: Stream, count: int) -> Examples:
        """See `SyntheticTask.draw`."""
        numbers = stream.integers(self.levels, count, self.max_len)
        half = self.max_len // 2
        first, second = stream.integers(half, count), stream.integers(self.max_len - half, count)
        marked = np.stack([first, half + second], axis=1)
        addends = np.take_along_axis(numbers, marked, axis=1)
        sequences = 1 + numbers
        np.put_along_axis(sequences, marked, 1 + self.levels + addends, axis=1)
        return Examples(sequences, (addends.sum(1) / (self.levels - 1)).astype(np.float32))

    def word(self, token: int) -> str:
        """See `Task.word`: the number, in brackets where it is marked."""
        marked, level = divmod(token - 1, self.levels)
        number = f"{level / (self.levels - 1):g}"
        return f"[{number}]" if marked else number
