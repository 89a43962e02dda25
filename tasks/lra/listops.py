"""ListOps: what is the value of a nested list of operators on digits?

Nangia and Bowman, 2018, arXiv 1804.06028, at the lengths of the Long Range Arena (Tay et al., 2021,
arXiv 2011.04006); the rules of growth stand in `tasks.lra.trees`. A tree is kept if
min_len < length < max_len and if it has not been seen before; an operator counts two tokens, itself
and its closing bracket. Classes and lengths are not balanced.

Deviation: the arena publishes one drawn set; here it is drawn anew from a seed, by the same rules.
"""

import os
import statistics
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from typing import SupportsInt

import numpy as np
from jaxtyping import UInt8

from tasks.contract import SPLITS, Split, SplitName
from tasks.data.corpus import Corpus, names
from tasks.data.sources import GeneratedTask
from tasks.lra import trees
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

BLOCK = 4096
"""Roots drawn from one stream of random numbers: part of what a seed means."""

HELD = 200
"""Bytes that a tree takes in memory beside its tokens, while all are being found."""

BARREN = 256
"""Blocks in a row without a new tree, after which there are taken to be no more."""

SHUFFLE = 1
"""Tells the stream that shuffles from those that draw."""

WORDS = {str(digit): trees.FIRST_DIGIT + digit for digit in range(10)} | {
    f"[{name}": trees.FIRST_OPERATOR + number for number, name in enumerate(trees.OPERATORS)
}
WORDS["]"] = trees.CLOSE
"""The token of each word."""

VALUES: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda digits: int(statistics.median(digits)),
    "[SM": lambda digits: sum(digits) % 10,
}
"""What each operator makes of its operands."""

_SPELLING = {token: word for word, token in WORDS.items()}


@tasks.register("listops")
@dataclass(frozen=True, kw_only=True)
class ListOps(GeneratedTask):
    """96,000 train, 2,000 dev and 2,000 test trees, all distinct.

    Attributes:
        min_len: every tree is longer.
        max_len: every tree is shorter; sequences are padded to it.
        train: trees in train.
        dev: trees in dev.
        test: trees in test.
        seed: seed of every draw.
    """

    name = "listops"
    version = 1
    classes = 10
    vocabulary = 1 + len(WORDS)

    min_len: int = 500
    max_len: int = 2000
    train: int = 96_000
    dev: int = 2_000
    test: int = 2_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        require_at_least(0, "listops", min_len=self.min_len, seed=self.seed)
        require_at_least(1, "listops", train=self.train, dev=self.dev, test=self.test)
        why = f"2 above min_len={self.min_len}"
        require_at_least(self.min_len + 2, "listops", why, max_len=self.max_len)
        if self.seed >= 2**32:
            raise UserError(f"listops.seed={self.seed} must be below 2**32={2**32}; lower it")

    def load(self, split: SplitName) -> Split:
        """See `Task.load`."""
        corpus = Corpus(*self.arrays(names(split)))
        return corpus.split(np.arange(len(corpus)), self.max_len, 0)

    def word(self, token: int) -> str:
        """See `Task.word`: a digit, an operator behind its bracket, or the closing bracket."""
        return _SPELLING[token]

    def generate(self) -> dict[str, np.ndarray]:
        """See `Generated.generate`."""
        return self.generate_by(os.cpu_count() or 1)

    def generate_by(self, workers: int) -> dict[str, np.ndarray]:
        """The arrays to keep, made by that many threads; their number does not change the result.

        Raises:
            UserError: there are not enough distinct trees of the lengths asked for.
            MemoryError: there is no room for as many; or ValueError, where there never is.
        """
        sizes = {split: getattr(self, split) for split in SPLITS}
        found = self._distinct(sum(sizes.values()), workers)
        # The commonest trees are found first: without a shuffle they would all be in train.
        order = _stream(self.seed, 0, SHUFFLE).random(len(found)).argsort(kind="stable")
        shuffled = iter([found[index] for index in order])
        arrays = {}
        for split, size in sizes.items():
            sequences, targets = zip(*islice(shuffled, size), strict=True)
            arrays |= Corpus.of(sequences, targets).arrays(split)
        return arrays

    def _distinct(self, wanted: int, workers: int) -> list[tuple[bytes, int]]:
        # UserError at once where the system will not promise as much memory; none of it is touched.
        np.empty((wanted, self.min_len + HELD), np.uint8)
        found: dict[bytes, int] = {}
        barren = 0
        with closing(self._blocks(workers)) as blocks:
            for block in blocks:
                before = len(found)
                for index, target in enumerate(block.targets.tolist()):
                    found[block.document(index).tobytes()] = target
                barren = 0 if len(found) > before else barren + 1
                if len(found) >= wanted or barren == BARREN:
                    break
        if len(found) < wanted:
            raise UserError(
                f"listops found {len(found)} distinct trees of more than {self.min_len} and fewer "
                f"than {self.max_len} tokens, {wanted} wanted; widen the lengths or ask for fewer"
            )
        return list(found.items())[:wanted]

    def _blocks(self, workers: int) -> Generator[Corpus, None, None]:
        with ThreadPoolExecutor(workers) as pool:
            ahead = deque(pool.submit(self.draw, block) for block in range(2 * workers))
            for block in count(2 * workers):
                yield ahead.popleft().result()
                ahead.append(pool.submit(self.draw, block))

    def draw(self, block: int) -> Corpus:
        """Draw one block of roots, and keep the trees of the right length, repeated ones too."""
        tokens = np.empty(BLOCK * self.max_len, np.uint8)
        ends = np.empty(BLOCK, np.int64)
        targets = np.empty(BLOCK, np.uint8)
        rng = _stream(self.seed, block)
        kept = trees.draw_trees(rng, BLOCK, self.min_len, self.max_len, tokens, ends, targets)
        used = ends[kept - 1] if kept else 0
        return Corpus(tokens[:used].copy(), ends[:kept], targets[:kept])


def _stream(*seeds: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds)))


def tokenise(source: str) -> UInt8[np.ndarray, " l"]:
    """The tokens of a tree in the published form `( ( ( [MAX 1 ) 2 ) ] )`, or without round ones.

    Round brackets only pair what stands between them, and go; every `]` stays: the closing token.

    Raises:
        UserError: a word is none of ListOps'.
    """
    words = [word for word in source.split() if word not in ("(", ")")]
    for word in words:
        if word not in WORDS:
            raise UserError(f"{word!r} is no word of ListOps; known: ( ) {' '.join(WORDS)}")
    return np.array([WORDS[word] for word in words], np.uint8)


def render(tokens: Iterable[SupportsInt]) -> str:
    """The tree as text, `[MAX 1 2 ]`; padding goes."""
    return " ".join(_SPELLING[int(token)] for token in tokens if int(token) != trees.PAD)


def evaluate(tokens: Iterable[SupportsInt]) -> int:
    """The value of a tree, by its definition; padding is passed over.

    Raises:
        UserError: the tokens are not one whole tree.
    """
    operands: list[list[int]] = [[]]
    operators: list[str] = []
    words = render(tokens).split()
    for word in words:
        if word in VALUES:
            operators.append(word)
            operands.append([])
        elif word != "]":
            operands[-1].append(int(word))
        elif operators and operands[-1]:
            value = VALUES[operators.pop()](operands.pop())
            operands[-1].append(value)
        else:
            raise UserError(
                "']' closes no operator with operands; give the tokens of one whole tree"
            )
    if operators or len(operands[0]) != 1:
        raise UserError(
            f"{len(words)} tokens leave {len(operators)} operators open and {len(operands[0])} "
            "values, not 0 and 1; give the tokens of one whole tree"
        )
    return operands[0][0]
