"""Scaling: random tokens of any length, for speed and memory only; there is nothing to learn."""

from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask


@tasks.register("scaling")
class Scaling(SyntheticTask):
    """Random tokens and random classes: no model can be better than chance."""

    name = "scaling"
    version = 1
    classes = 2
    alphabet = "vocabulary"

    def __init__(
        self,
        *,
        max_len: int = 1024,
        vocabulary: int = 256,
        causal: bool = False,
        train: int = 256,
        dev: int = 32,
        test: int = 32,
        seed: int = 0,
    ) -> None:
        """Choose the setting.

        Args:
            max_len: tokens of every example.
            vocabulary: number of token values.
            causal: whether the model is.
            train: examples in the split of that name.
            dev: the same.
            test: the same.
            seed: decides every draw.

        Raises:
            UserError: an option is out of its range.
        """
        self.max_len, self.vocabulary, self.causal = max_len, vocabulary, causal
        self.train, self.dev, self.test, self.seed = train, dev, test, seed
        self.require(max_len=1, vocabulary=2)

    def draw(self, stream: Stream, rows: int) -> Examples:
        """See `Drawn.draw`."""
        sequences = 1 + stream.integers(self.vocabulary - 1, rows, self.max_len)
        return Examples(sequences, stream.integers(self.classes, rows))
