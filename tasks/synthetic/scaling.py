"""Scaling: random tokens of any length, to measure speed and memory."""

from dataclasses import dataclass

from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask


@tasks.register("scaling")
@dataclass(frozen=True, kw_only=True)
class Scaling(SyntheticTask):
    """Random tokens and random classes: no model can exceed chance.

    Attributes:
        max_len: tokens per example.
        vocabulary: vocabulary size.
        causal: whether the model is causal.
    """

    name = "scaling"
    version = 1
    caveat = "Classes are random: no rule and no model can exceed chance, which is 50 %."
    classes = 2
    vocabulary_option = "vocabulary"

    max_len: int = 1024
    vocabulary: int = 256
    causal: bool = False
    train: int = 256
    dev: int = 32
    test: int = 32

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        self._require(max_len=1, vocabulary=2)

    def draw(self, stream: Stream, count: int) -> Examples:
        """See `SyntheticTask.draw`."""
        sequences = 1 + stream.integers(self.vocabulary - 1, count, self.max_len)
        return Examples(sequences, stream.integers(self.classes, count))
