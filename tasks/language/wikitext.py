"""WikiText-103: the next byte or word of Wikipedia articles.

Merity et al., 2016, arXiv 1609.07843: the published text of words, in which rare words are `<unk>`
and numbers are divided as in `1 @,@ 000`. A token is a byte of this text, or a word: the text
between spaces, and `<eos>` at the end of each line, as in the published numbers.

By default train and dev are of the published valid file, whose numbers are none of WikiText-103.
Words that are not among the most frequent of train are `<unk>`, in every split: perplexities are
compared at the same vocabulary and train only. See docs/decisions/0032-language-models.md.
"""

import lzma
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from typing_extensions import override

from tasks.answers import NextTokens
from tasks.contract import Split, SplitName
from tasks.data import cache
from tasks.data.files import SourceFiles, Stamp, source_of, stamp
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

HEADING = re.compile(rb"(?m)^ ?\n = [^=\n](?:[^\n]*[^=\n])? = \n ?\n")
"""The first lines of an article: its title between empty lines."""

DEV_SHARE = 10
"""One in this many articles of the valid file is dev, where train is of that file too."""

UNKNOWN, END_OF_LINE = b"<unk>", b"<eos>"

START = 0
"""The token before the first of a split; class c is token c + 1."""

FILES = ("train", "valid", "test")


@tasks.register("wikitext")
@dataclass(frozen=True, kw_only=True)
class WikiText(ImportedTask):
    """The next token at each position; train is the published valid text if not `splits=official`.

    Windows of `max_len` tokens do not overlap: each byte or word of dev and test is predicted once,
    from 1 to `max_len` tokens before it, half of that on average. Windows cross the borders of
    articles, as in fairseq. Token 0 comes before the first token of a split.

    Attributes:
        level: whether a token is a byte or a word.
        splits: `valid` for train and dev from the published valid file; `official` for the
            published splits, which need the train file.
        max_len: tokens of a window: the context length.
        words: classes where a token is a word: `<unk>` and the most frequent ones of train.
        train, dev, test: evenly spaced windows in the split of that name; 0 for all windows.
    """

    name = "wikitext"
    version = 1
    causal = True
    source = source_of("wikitext")

    level: Literal["bytes", "words"] = "bytes"
    splits: Literal["valid", "official"] = "valid"
    max_len: int = 512
    words: int = 8192
    train: int = 0
    dev: int = 0
    test: int = 0

    def __post_init__(self) -> None:
        require_at_least(1, "wikitext", max_len=self.max_len)
        require_at_least(2, "wikitext", words=self.words)
        require_at_least(0, "wikitext", train=self.train, dev=self.dev, test=self.test)
        classes = 256 if self.level == "bytes" else self.words
        self._derive(classes=classes, vocabulary=classes + 1)

    @override
    def load(self, split: SplitName) -> Split:
        text = self.text(split)
        starts = article_starts(text)
        classes = text.astype(np.int64)
        if self.level == "words":
            texts = np.split(text, starts[1:])
            articles = [self._vocabulary().classes(article.tobytes()) for article in texts]
            classes = np.concatenate(articles)
            starts = np.cumsum([0, *map(len, articles[:-1])])
        measure = "bits-per-byte" if self.level == "bytes" else "perplexity"
        every = np.arange(-(-len(classes) // self.max_len))
        chosen = self.subset(split, every) if getattr(self, split) else slice(None)
        return windows(classes, starts, self.max_len, self.vocabulary, measure, chosen)

    @override
    def word(self, token: int) -> str:
        return "<start>" if token == START else self.class_name(token - 1)

    def class_name(self, target: int) -> str:
        """The character of an ASCII byte, its number, or the word."""
        if self.level == "words":
            return self._vocabulary().name(target)
        character = chr(target)
        return character if target < 128 and character.isprintable() else f"0x{target:02x}"

    def show(self, split: Split, example: int) -> list[str]:
        """The text of a window."""
        (tokens,) = split.tokens(example)
        if self.level == "words":
            return [" ".join(map(self.word, tokens))]
        return [bytes(t - 1 for t in tokens if t != START).decode(errors="replace")]

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        """The bytes of each published file; train may be missing."""
        texts: dict[str, bytes] = dict.fromkeys(FILES, b"")
        for file in files:
            (name,) = (name for name in FILES if name in file.name)
            content = file.read()
            if file.name.endswith(".xz"):
                # The published files have a space on an empty line.
                content = re.sub(rb"(?m)^$\n", b" \n", lzma.decompress(content))
            texts[name] = content
        return {f"{name}_text": np.frombuffer(text, np.uint8) for name, text in texts.items()}

    def text(self, split: SplitName) -> UInt8[np.ndarray, " v"]:
        """The bytes of a split."""
        train = "valid" if self.splits == "valid" else "train"
        file = {"train": train, "dev": "valid", "test": "test"}[split]
        (text,) = self.arrays({"text": "uint8 v"}, file)
        if not len(text):
            raise UserError(
                "wikitext.splits=official needs the train file, which was not imported; "
                f"{self.how_to_get()}, or set wikitext.splits=valid"
            )
        if self.splits == "official" or split == "test":
            return text
        starts = article_starts(text)
        cut = starts[len(starts) - max(1, len(starts) // DEV_SHARE)]
        return text[:cut] if split == "train" else text[cut:]

    def _vocabulary(self) -> "Vocabulary":
        data = cache.find(self.cache_key)
        return vocabulary_of(self, data and stamp(str(data), self.how_to_get()))


def article_starts(text: UInt8[np.ndarray, " v"]) -> Int[np.ndarray, " articles"]:
    """The byte at which each article begins, ascending; the first is 0."""
    starts = [match.start() for match in HEADING.finditer(text.tobytes())]
    return np.array([0, *starts[1:]], np.int64)


def windows(
    classes: Int[np.ndarray, " v"],
    articles: Int[np.ndarray, " articles"],
    length: int,
    vocabulary: int,
    measure: str,
    chosen: Int[np.ndarray, " n"] | slice = slice(None),
) -> Split:
    """Successive windows: the targets of window i are the tokens from i * length on.

    The input of a position is the token before its target, so that the target at position j of a
    window is predicted from j + 1 tokens, the last of the window before it included. After the end
    of the stream, targets are -1 and tokens arbitrary: a causal model needs no mask.

    Args:
        classes: the tokens of the stream, as classes.
        articles: where each article begins, ascending, from 0 on. A window belongs to the one that
            contains its first target; the windows of an article are a cluster.
        length: l.
        vocabulary: its size, which decides the integer type.
        measure: a name in `tasks.metrics`.
        chosen: the numbers of the windows; a slice of all makes no copy.
    """
    count = -(-len(classes) // length)
    dtype = next(t for t in (np.uint8, np.int16, np.int32) if vocabulary <= np.iinfo(t).max + 1)
    targets = np.full(count * length, -1, np.int64)
    targets[: len(classes)] = classes
    tokens = np.full(count * length, START, dtype)
    tokens[1 : len(classes)] = classes[:-1] + 1
    clusters = np.searchsorted(articles, np.arange(count)[chosen] * length, side="right") - 1
    positions = torch.arange(length, dtype=torch.int32).expand(len(clusters), length)
    return Split.single(
        torch.from_numpy(tokens.reshape(count, length)[chosen]),
        None,
        torch.from_numpy(targets.reshape(count, length)[chosen]),
        positions,
        NextTokens(measure=measure),
        clusters=torch.from_numpy(clusters.astype(np.int32)),
    )


class Vocabulary(NamedTuple):
    """The most frequent words of train, by class; `<unk>` is class 0."""

    numbers: Mapping[bytes, int]
    names: list[str]

    @classmethod
    def of(cls, text: bytes, size: int) -> "Vocabulary":
        """`<unk>` and the `size - 1` most frequent other words, the first of equal ones first."""
        counts = Counter(word for line in words_of(text) for word in line)
        counts.pop(UNKNOWN, None)
        words = [UNKNOWN, *(word for word, _ in counts.most_common(size - 1))]
        names = [word.decode() for word in words]
        return cls({word: number for number, word in enumerate(words)}, names)

    def name(self, target: int) -> str:
        """A class as text, also where train has fewer words than there are classes."""
        return self.names[target] if target < len(self.names) else f"<none {target}>"

    def classes(self, text: bytes) -> Int[np.ndarray, " words"]:
        """The class of every word."""
        numbers, found = self.numbers, array("i")
        for line in words_of(text):
            found.extend(numbers.get(word, 0) for word in line)
        return np.array(found, np.int64)


def words_of(text: bytes) -> Iterator[list[bytes]]:
    """The words of each line, the end of the line included."""
    for line in BytesIO(text):
        yield [*line.split(), END_OF_LINE]


@lru_cache(maxsize=1)  # once for the splits of a run, or after another import of its data
def vocabulary_of(task: WikiText, data: Stamp | None) -> Vocabulary:
    """The vocabulary of a task, whose data are in that file."""
    return Vocabulary.of(task.text("train").tobytes(), task.words)
