"""Word problems of finite groups: the product of all elements so far, at every position.

A recurrence solves them with a state of one element. The limits of models of constant depth:
Merrill and Sabharwal, 2023, arXiv 2207.00729; Merrill et al., 2024, arXiv 2404.08819. Linear
recurrences need negative eigenvalues for parity: Grazzi et al., 2024, arXiv 2411.12537. Sequences
have `train_len` tokens in train and `max_len` in dev and test, which have answers at the positions
behind `train_len` alone.

Token 1 + i is element i; the answer at a position is the number of the product.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from tasks.contract import Baseline, Split, SplitName
from tasks.registry import tasks
from tasks.synthetic.base import Examples, Stream, SyntheticTask
from zoo.registry import require_at_least, require_memory


@dataclass(frozen=True, kw_only=True)
class WordProblem(SyntheticTask):
    """The running product in a finite group.

    Attributes:
        train_len: tokens per example of train.
        max_len: tokens per example of dev and test.
        elements: the permutations that are the group, the unit first.
    """

    caveat = (
        "Dev and test ask behind the length of train alone, unless they have the same length: a "
        "model that has learned the positions of train, and not the product, is no better than a "
        "constant answer."
    )

    elements: ClassVar[Sequence[tuple[int, ...]]]

    train_len: int = 32
    max_len: int = 128
    causal: bool = True

    def __post_init__(self) -> None:
        order = len(self.products())
        self._derive(classes=order, vocabulary=1 + order)
        reason = f"the tokens of train, train_len={self.train_len}"
        self._require(train_len=1, max_len=(self.train_len, reason))

    def products(self) -> Int[np.ndarray, "order order"]:
        # By the factors of a product: the left one is applied first.
        number = {element: index for index, element in enumerate(self.elements)}
        return np.array([[number[tuple(b[i] for i in a)] for b in number] for a in number])

    def load(self, split: SplitName) -> Split:
        length = self.length(split)
        task = self if length == self.max_len else replace(self, max_len=length)
        return SyntheticTask.load(task, split)

    def length(self, split: SplitName) -> int:
        return self.train_len if split == "train" else self.max_len

    def draw(self, stream: Stream, count: int) -> Examples:
        elements = stream.integers(self.classes, count, self.max_len)
        table, product = self.products(), np.zeros(count, np.int64)
        running = np.empty_like(elements)
        for position, element in enumerate(elements.T):
            product = running[:, position] = table[product, element]
        first = self.train_len if self.max_len > self.train_len else 0
        beyond = np.arange(first, self.max_len)
        positions = np.broadcast_to(beyond, (count, len(beyond)))
        return Examples(1 + elements, running[:, first:], positions)

    def word(self, token: int) -> str:
        return str(token - 1)


@tasks.register("parity")
class Parity(WordProblem):
    """The parity of the number of ones so far: the group Z2, at every position."""

    name = "parity"
    version = 3
    elements = ((0, 1), (1, 0))


@tasks.register("modular-addition")
@dataclass(frozen=True, kw_only=True)
class ModularAddition(WordProblem):
    """The sum of the numbers so far modulo `symbols`, at every position.

    Attributes:
        symbols: the modulus, and the count of different numbers.
    """

    name = "modular-addition"
    version = 2

    symbols: int = 5

    def __post_init__(self) -> None:
        require_at_least(2, self.name, symbols=self.symbols)
        what = f"the table of {self.name}.symbols={self.symbols:.3g}"
        require_memory(16 * self.symbols**2, what, "lower it")  # and its sums before the remainder
        super().__post_init__()

    def products(self) -> Int[np.ndarray, "order order"]:
        numbers = np.arange(self.symbols)
        return (numbers[:, None] + numbers) % self.symbols


@tasks.register("s3")
class S3(WordProblem):
    """The symmetric group of three elements, the smallest in which order matters."""

    name = "s3"
    version = 2
    elements = tuple(permutations(range(3)))

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        # One of the three elements with the right sign: parity, without order.
        return {"sign of the product": lambda _: 2 / self.classes}


@tasks.register("a5")
class A5(WordProblem):
    """The even permutations of five elements, the smallest group that is not solvable."""

    name = "a5"
    version = 2
    # The number of pairs in the wrong order is even.
    elements = tuple(
        p for p in permutations(range(5)) if sum(a > b for a, b in combinations(p, 2)) % 2 == 0
    )
