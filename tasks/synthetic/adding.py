"""Adding: what is the sum of the two marked numbers?

Hochreiter and Schmidhuber, 1997. One number is marked in each half of the sequence; an answer less
than 0.04 off is right. Deviation: the numbers lie on a grid over [0, 1], so that each is a token.
"""

import numpy as np

from tasks.answers import Number
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask

TOLERANCE = 0.04


@tasks.register("adding")
class Adding(SyntheticTask):
    """Token 1 + i is the number i / (levels - 1); the same number marked stands `levels` higher.

    As a marked number is a token of its own, the sum is linear in how often each token occurs: the
    floor *bag of tokens* gets it right. What is tested is whether a model can be optimised to find
    two tokens among many at any length, not whether it moves anything from place to place.
    """

    name = "adding"
    version = 1
    classes = 1
    alphabet = "levels"
    answers = Number(TOLERANCE)

    def __init__(
        self,
        *,
        max_len: int = 128,
        levels: int = 101,
        train: int = 100_000,
        dev: int = 1_000,
        test: int = 2_000,
        seed: int = 0,
    ) -> None:
        """Choose the setting.

        Args:
            max_len: numbers of every example.
            levels: how many different numbers there are.
            train: examples in the split of that name.
            dev: the same.
            test: the same.
            seed: decides every draw.

        Raises:
            UserError: an option is out of its range.
        """
        self.max_len, self.levels = max_len, levels
        self.train, self.dev, self.test, self.seed = train, dev, test, seed
        self.vocabulary = 1 + 2 * levels
        self.require(max_len=2, levels=2)

    def draw(self, stream: Stream, rows: int) -> Examples:
        """See `Drawn.draw`."""
        numbers = stream.integers(self.levels, rows, self.max_len)
        half = self.max_len // 2
        first, second = stream.integers(half, rows), stream.integers(self.max_len - half, rows)
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
