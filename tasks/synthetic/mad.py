"""Recall of motifs among noise, memory in weights, and compression: tasks of MAD.

Poli et al., 2024, "Mechanistic design and scaling of hybrid architectures", arXiv 2403.17844.
Published settings: `fuzzy-recall` with vocabulary=16 and motif=3, `noisy-recall` with
vocabulary=32, noise=0.2 and 16 tokens of noise, 128 tokens, 12,800 examples of train; `memorise`
with vocabulary=256, 32 tokens and 256 examples of train; `compression` with its defaults; 128
examples a step, 200 epochs. In-context recall is `fuzzy-recall` with vocabulary=17 and motif=1.
Deviations: accuracy is a mean over answers and not over classes; of the keys before, the last
query is any, where the published generator of motifs plants one; the last token of `compression`
is no answer, where the published one is, and always the same.
"""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from jaxtyping import Float64, Int
from torch import Tensor

from tasks.answers import SomeClasses
from tasks.contract import NO_ANSWER, SPLITS, Split, SplitName, Task
from tasks.registry import tasks
from tasks.synthetic.base import FIRST_SYMBOL, Examples, Stream, SymbolTask, SyntheticTask
from zoo.registry import UserError

PAD = 0  # The token before the first pair; keys, values and noise follow it in this order
END = 1  # The last token of `compression`, whose symbols follow in the vocabulary

Motif = tuple[int, ...]


@tasks.register("fuzzy-recall")
@dataclass(frozen=True, kw_only=True)
class FuzzyRecall(SyntheticTask):
    """Recall of motifs of up to three tokens.

    Keys and values have one to `motif` tokens, and each key one value; then a key follows once
    more. Train is next-token prediction at every position. On dev and test the answers are the
    values of keys that occurred before, and keys have `motif` tokens.

    Attributes:
        vocabulary: vocabulary size: a token for padding, keys, values, and noise.
        motif: the most tokens of a key or of a value.
        noise: share of pairs in whose place there is noise.
        noise_tokens: how many tokens of the vocabulary are noise.
    """

    name = "fuzzy-recall"
    version = 1
    vocabulary_option = "vocabulary"
    answers = SomeClasses()
    caveat = "A rule that answers with any value token is right in one of as many as there are."

    max_len: int = 128
    vocabulary: int = 16
    motif: int = 3
    noise: float = 0.0
    noise_tokens: int = 0
    train: int = 12_800
    causal = True

    def __post_init__(self) -> None:
        self._derive(classes=self.vocabulary)
        if not 0 <= self.noise < 1:
            raise UserError(f"{self.name}.noise={self.noise} is no share below 1; lower it")
        if self.noise and not self.noise_tokens:
            raise UserError(f"{self.name}.noise={self.noise} needs noise_tokens; give 1 or more")
        reason = f"{self.motif} keys and values each, noise_tokens={self.noise_tokens} and 1 more"
        self._require(
            motif=1, noise_tokens=0, vocabulary=(1 + 2 * self.motif + self.noise_tokens, reason),
            max_len=(4 * self.motif, f"two pairs of motif={self.motif}"),
        )  # fmt: skip

    def load(self, split: SplitName) -> Split:
        stream = Stream(self.seed, SPLITS.index(split))
        return self.split_of(self.draw(stream, getattr(self, split), train=split == "train"))

    def draw(self, stream: Stream, count: int, *, train: bool = True) -> Examples:
        every = np.full((count, self.max_len + 1), PAD, np.int64)
        targets = np.full((count, self.max_len + 1), NO_ANSWER, np.int64)
        # The numbers that decide each pair, and the last query.
        draws, lasts = stream.uniform(count, self.max_len // 2, 6), stream.uniform(count)
        # The keys and the values of each size, from 1 on.
        keys, values = ([[*permutations(tokens, n + 1)] for n in range(self.motif)]
                        for tokens in self._kinds[:2])  # fmt: skip
        for row, (numbers, last) in enumerate(zip(draws, lasts, strict=True)):
            tokens, answers = self._example(keys, values, numbers, float(last), train)
            every[row, -len(tokens) :], targets[row, -len(tokens) :] = tokens, answers
        if train:
            targets = np.where(every == PAD, NO_ANSWER, every)
        positions = np.broadcast_to(np.arange(self.max_len), (count, self.max_len))
        return Examples(every[:, :-1], targets[:, 1:], positions)

    def _example(
        self, keys: list[list[Motif]], values: list[list[Motif]],
        draws: Float64[np.ndarray, "pairs 6"], last: float, train: bool,
    ) -> tuple[list[int], list[int]]:  # fmt: skip
        tokens, answers, noise = list[int](), list[int](), self._kinds[2]
        paired: dict[Motif, Motif] = {}
        for is_noise, key_size, value_size, key_draw, value_draw, noise_draw in draws.tolist():
            size = int(key_size * self.motif) if train else self.motif - 1
            key = _pick(keys[size], key_draw)
            value = _pick(values[int(value_size * self.motif)], value_draw)
            # Room for the last query.
            if len(tokens) + 4 * self.motif > self.max_len + 1:
                break
            if is_noise < self.noise and paired:
                found = [noise[int(noise_draw * 7919 * (n + 1)) % len(noise)]
                         for n in range(len(key) + len(value))]  # fmt: skip
                tokens += found
                answers += [NO_ANSWER] * len(found)
                continue
            known = key in paired
            value = paired.setdefault(key, value)
            tokens += [*key, *value]
            answers += [NO_ANSWER] * len(key)
            answers += value if known else [NO_ANSWER] * len(value)
        key = _pick([*paired], last)
        return [*tokens, *key, *paired[key]], [*answers, *[NO_ANSWER] * len(key), *paired[key]]

    @property
    def _kinds(self) -> tuple[range, range, range]:
        # Keys, values and noise, in this order behind `PAD`.
        noise = self.vocabulary - self.noise_tokens
        value = 1 + (noise - 1) // 2
        return range(1, value), range(value, noise), range(noise, self.vocabulary)

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        # The answer to a query is the next token. A value is hidden where it is an answer: on train
        # everywhere, on dev and test not behind the first occurrence of its key.
        tokens, values = split.sequences.long(), self._kinds[1]
        is_value = (tokens >= values.start) & (tokens < values.stop)
        # The answer at a position is the token behind it.
        is_value[:, 1:] &= split.targets[:, :-1] == NO_ANSWER
        return tokens.masked_fill(~is_value, NO_ANSWER)

    def word(self, token: int) -> str:
        kinds = zip("kvn", self._kinds, strict=True)
        return next((f"{k}{1 + of.index(token)}" for k, of in kinds if token in of), "pad")

    def class_name(self, target: int) -> str:
        return self.word(target)


def _pick(motifs: list[Motif], draw: float) -> Motif:
    return motifs[int(draw * len(motifs))]


@tasks.register("noisy-recall")
@dataclass(frozen=True, kw_only=True)
class NoisyRecall(FuzzyRecall):
    """Recall of single tokens, with noise in place of a fifth of the pairs."""

    name = "noisy-recall"
    version = 1

    vocabulary: int = 32
    motif: int = 1
    noise: float = 0.2
    noise_tokens: int = 16


@tasks.register("memorise")
@dataclass(frozen=True, kw_only=True)
class Memorise(SyntheticTask):
    """Keys, each with a place behind it for its value, which is the same in every example.

    The values are in no example: a model has them in its weights. Attention has to move a key by
    one position only.

    Attributes:
        max_len: tokens per example, two for each key.
        vocabulary: vocabulary size: half of it keys, but for the token of the places.
    """

    name = "memorise"
    version = 1
    vocabulary_option = "vocabulary"
    caveat = "A convolution over two tokens and a feed-forward layer are enough."

    max_len: int = 32
    vocabulary: int = 256
    causal: bool = True
    train: int = 12_800

    def __post_init__(self) -> None:
        self._derive(classes=self.vocabulary // 2)
        self._require(max_len=2, vocabulary=(4, "two keys and two values"))

    def draw(self, stream: Stream, count: int) -> Examples:
        different = self.vocabulary - self.classes
        keys = stream.integers(different, count, self.max_len // 2)
        # The same in every split: its own stream of the seed.
        values = Stream(self.seed, len(SPLITS)).distinct(different, self.classes, 1)[0]
        sequences = np.zeros((count, self.max_len), np.int64)
        sequences[:, : 2 * keys.shape[1] : 2] = 1 + keys
        positions = 1 + 2 * np.arange(keys.shape[1])
        return Examples(sequences, values[keys], np.broadcast_to(positions, keys.shape))

    def word(self, token: int) -> str:
        return f"k{token}" if token else "?"

    def class_name(self, target: int) -> str:
        return f"v{target}"


@tasks.register("compression")
@dataclass(frozen=True, kw_only=True)
class Compression(SymbolTask):
    """Random symbols, all of which are decoded from the output at one token behind them.

    The decoder is the head of the model, `model.pooling=decode`: it reads that output and the
    number of the answer. Attention decides how much of the sequence one vector holds.

    Attributes:
        max_len: tokens per example, the last one included.
    """

    name = "compression"
    version = 1
    special = ("", "end")
    caveat = "With another head than `model.pooling=decode`, a model gives all answers alike."

    max_len: int = 32
    symbols: int = 15
    causal: bool = True
    train: int = 12_800

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(max_len=(2, "a symbol and the last token"))

    def draw(self, stream: Stream, count: int) -> Examples:
        symbols = stream.integers(self.symbols, count, self.max_len - 1)
        sequences = np.full((count, self.max_len), END, np.int64)
        sequences[:, :-1] = FIRST_SYMBOL + symbols
        return Examples(sequences, symbols, np.full_like(symbols, self.max_len - 1))

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        # A rule that reads the answers in the sequence would avoid the one vector.
        return Task.candidates(self, split)
