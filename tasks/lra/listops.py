"""ListOps: the value of a nested list of operators on digits.

Nangia and Bowman, 2018, arXiv 1804.06028, at the lengths of the Long Range Arena (Tay et al., 2021,
arXiv 2011.04006); for the distribution of trees see `tasks.lra.listops_trees`. A tree is kept if
min_len < length < max_len and if it was not drawn before; an operator counts two tokens, itself and
its closing bracket. Classes and lengths are not balanced.

Deviation: the arena publishes one set; here sets are drawn from a seed, by the same rules. The task
`listops-lra` reads the official files, to repeat a published run.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import SupportsInt

import numpy as np
from jaxtyping import UInt8

from tasks.baselines import listops as shallow
from tasks.contract import SPLITS, Baseline, Split, SplitName
from tasks.data.corpus import FIELDS, Corpus
from tasks.data.files import SourceFiles, damaged, source_of
from tasks.data.sources import CachedTask, GeneratedTask, ImportedTask
from tasks.lra import listops_trees as trees
from tasks.registry import tasks
from zoo.registry import UserError

# Roots drawn from one stream of random numbers; changing it changes the data of every seed.
BLOCK = 4096

MAX_EMPTY_BLOCKS = 256  # Consecutive blocks without a new tree, after which generation stops
OFFICIAL_LENGTH = 2000  # Tokens of an official tree, at most

# The token of each word.
WORDS = {str(digit): trees.FIRST_DIGIT + digit for digit in range(10)} | {
    f"[{name}": trees.FIRST_OPERATOR + number for number, name in enumerate(trees.OPERATORS)
}
WORDS["]"] = trees.CLOSE

# The value of each operator applied to its operands.
VALUES: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min, "[MAX": max, "[MED": lambda digits: int(statistics.median(digits)),
    "[SM": lambda digits: sum(digits) % 10,
}  # fmt: skip

_SPELLING = {token: word for word, token in WORDS.items()}


class TreeTask(CachedTask):
    classes = 10
    vocabulary = 1 + len(WORDS)

    def load(self, split: SplitName) -> Split:
        corpus = Corpus(*self.arrays(FIELDS, split))
        return corpus.split(self.subset(split, np.arange(len(corpus))), self.max_len, 0)

    def word(self, token: int) -> str:
        return _SPELLING[token]

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        return shallow.MODELS


@tasks.register("listops")
@dataclass(frozen=True, kw_only=True)
class ListOps(TreeTask, GeneratedTask):
    """96,000 train, 2,000 dev and 2,000 test trees, all distinct.

    Attributes:
        min_len: every tree is longer.
        max_len: every tree is shorter; sequences are padded to it.
        train, dev, test: trees in the split of that name.
        seed: seed of every draw.
    """

    name = "listops"
    version = 1

    min_len: int = 500
    max_len: int = 2000
    train: int = 96_000
    dev: int = 2_000
    test: int = 2_000
    seed: int = 0

    def __post_init__(self) -> None:
        self._require(min_len=0, max_len=(self.min_len + 2, f"2 above min_len={self.min_len}"))

    def generate(self, workers: int) -> dict[str, np.ndarray]:
        needed, empty_blocks = self.train + self.dev + self.test, 0
        distinct: dict[bytes, int] = {}
        with ThreadPoolExecutor(workers) as pool:
            blocks = (pool.map(self.draw, range(i, i + workers)) for i in count(0, workers))
            for block in chain.from_iterable(blocks):
                before = len(distinct)
                distinct |= zip(block.sequences(), block.targets.tolist(), strict=True)
                empty_blocks = 0 if len(distinct) > before else empty_blocks + 1
                if len(distinct) >= needed or empty_blocks == MAX_EMPTY_BLOCKS:
                    break
        if len(distinct) < needed:
            between = f"between {self.min_len} and {self.max_len} tokens, {needed} needed"
            problem = f"listops has {len(distinct)} distinct trees {between}"
            raise UserError(f"{problem}; widen the lengths or use fewer")
        drawn = list(distinct.items())[:needed]
        # The most frequent trees are drawn first: without a shuffle they would all be in train. The
        # stream of the shuffle has one number more than those of the draws.
        order = _stream(self.seed, 0, 1).random(needed).argsort(kind="stable")
        shuffled, arrays = iter([drawn[index] for index in order]), {}
        for split in SPLITS:
            sequences, targets = zip(*islice(shuffled, getattr(self, split)), strict=True)
            arrays |= Corpus.of(sequences, targets).arrays(split)
        return arrays

    def draw(self, block: int) -> Corpus:
        tokens = np.empty(BLOCK * self.max_len, np.uint8)
        ends, targets = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint8)
        rng = _stream(self.seed, block)
        number = trees.draw_trees(rng, BLOCK, self.min_len, self.max_len, tokens, ends, targets)
        used = ends[number - 1] if number else 0
        return Corpus(tokens[:used].copy(), ends[:number], targets[:number])


@tasks.register("listops-lra")
@dataclass(frozen=True, kw_only=True)
class OfficialListOps(TreeTask, ImportedTask):
    """Up to 96,000 train, 2,000 dev and 2,000 test trees of 500 to 2,000 tokens.

    The official files (Tay et al., 2021) have a header and lines of two columns separated by a tab:
    the tree, with round brackets that pair what is between them, and its value. No digests are
    published: every tree is evaluated, and its value compared with the column.

    Attributes:
        train, dev, test: trees in the split of that name.
    """

    name = "listops-lra"
    version = 1
    max_len = OFFICIAL_LENGTH
    source = source_of("listops-lra")

    train: int = 96_000
    dev: int = 2_000
    test: int = 2_000

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        arrays = {}
        for file in files:
            split = {"train": "train", "val": "dev", "test": "test"}[file.name[6:-4]]
            lines = file.lines()
            for location, header in islice(lines, 1):
                if header.rstrip(b"\r\n") != b"Source\tTarget":
                    raise damaged(location, "is not the header Source, Target")
            rows = [_parse(line, location) for location, line in lines]
            arrays |= Corpus.of([t for t, _ in rows], [v for _, v in rows]).arrays(split)
        return arrays


def _parse(line: bytes, location: str) -> tuple[bytes, int]:
    source, _, target = line.rstrip(b"\r\n").partition(b"\t")
    try:
        tokens = tokenise(source.decode("ascii"))
        value = evaluate(tokens)
    except (UserError, UnicodeDecodeError) as error:
        reason = str(error).partition(";")[0]
        raise damaged(location, f"is not a tree ({reason})") from error
    if len(tokens) > OFFICIAL_LENGTH:
        raise damaged(location, f"has {len(tokens)} tokens, {OFFICIAL_LENGTH} at most")
    if target != str(value).encode():
        text = target[:20].decode(errors="replace")
        raise damaged(location, f"has the value {text!r}, {value} expected")
    return tokens.tobytes(), value


def _stream(*seeds: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds)))


def tokenise(source: str) -> UInt8[np.ndarray, " l"]:
    # The published form is `( ( ( [MAX 1 ) 2 ) ] )`.
    words = [word for word in source.split() if word not in ("(", ")")]
    for word in words:
        if word not in WORDS:
            raise UserError(f"{word!r} is not a word of ListOps; known: ( ) {' '.join(WORDS)}")
    return np.array([WORDS[word] for word in words], np.uint8)


def render(tokens: Iterable[SupportsInt]) -> str:
    return " ".join(_SPELLING[int(token)] for token in tokens if int(token) != trees.PAD)


def evaluate(tokens: Iterable[SupportsInt]) -> int:
    operands: list[list[int]] = [[]]
    operators: list[str] = []
    text = render(tokens)
    for word in text.split():
        if word in VALUES:
            operators.append(word)
            operands.append([])
        elif word != "]":
            operands[-1].append(int(word))
        elif operators and operands[-1]:
            value = VALUES[operators.pop()](operands.pop())
            operands[-1].append(value)
        else:
            operators.append(word)  # a bracket without operator and operands: not a tree
            break
    if operators or len(operands[0]) != 1:
        raise UserError(f"{text!r:.80} is not one complete tree; give the tokens of one")
    return operands[0][0]
