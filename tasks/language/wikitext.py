"""WikiText-103: the next byte or word of Wikipedia articles.

Merity et al., 2016, arXiv 1609.07843: the published text of words, in which rare words are `<unk>`
and numbers are divided as in `1 @,@ 000`. A token is a byte of this text, or a word: the text
between spaces, and `<eos>` at the end of each line, as in the published numbers.

Splits, windows and their losses: docs/decisions/data.md.
"""

import lzma
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8

from tasks.answers import NextTokens
from tasks.contract import Split, SplitName
from tasks.data import cache
from tasks.data.files import SourceFiles, Stamp, source_of, stamp
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

# The first lines of an article: its title between empty lines.
HEADING = re.compile(rb"(?m)^ ?\n = [^=\n](?:[^\n]*[^=\n])? = \n ?\n")

# One in this many articles of the valid file is dev, where train is of that file too.
DEV_SHARE = 10

UNKNOWN, END_OF_LINE = b"<unk>", b"<eos>"

START = 0  # The token before the first of a split; class c is token c + 1
REPEATED = {"bytes": 6, "words": 2}  # n of the n-grams whose repetitions are a probe, by level

FILES = ("train", "valid", "test")


@tasks.register("wikitext")
@dataclass(frozen=True, kw_only=True)
class WikiText(ImportedTask):
    """The next token at each position; train is the published valid text if not `splits=official`.

    Windows do not overlap, and cross the borders of articles. Token 0 comes before the first.

    The probe has the targets of all of test that end an n-gram which is in their window before, and
    not in train: only the context has the answer (AR hits, Arora et al., 2023, arXiv 2312.04927).

    Attributes:
        level: whether a token is a byte or a word.
        max_len: tokens of a window: the context length.
        splits: `valid` for train and dev from the published valid file; `official` for the
            published splits, which need the train file.
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

    def load(self, split: SplitName) -> Split:
        classes, starts = self._classes(split)
        measure = "bits-per-byte" if self.level == "bytes" else "perplexity"
        every = np.arange(-(-len(classes) // self.max_len))
        chosen = self.subset(split, every) if getattr(self, split) else slice(None)
        return windows(classes, starts, self.max_len, self.vocabulary, measure, chosen)

    def probes(self) -> Mapping[str, Split]:
        n, test = REPEATED[self.level], replace(self, test=0).load("test")
        known = ngrams(self._classes("train")[0] + 1, n, self.vocabulary)
        tokens = torch.cat([test.sequences.long(), test.targets[:, -1:] + 1], dim=1)
        found = ngrams(tokens.numpy(), n, self.vocabulary)
        hits = torch.from_numpy(repeats(found) & ~np.isin(found, known))
        # The first n-gram of a window ends with the target n - 2.
        first, none = n - 2, NextTokens.no_target
        targets = test.targets.clone()
        targets[:, :first] = none
        targets[:, first:].masked_fill_(~hits, none)
        chosen = (targets != none).any(1)
        positions, clusters = (
            part if part is None else part[chosen]
            for part in (test.target_positions, test.clusters)
        )
        split = Split.single(
            test.sequences[chosen], None, targets[chosen], positions, test.answers, clusters
        )
        return {f"repeated {n}-grams": split} if len(split) else {}

    def word(self, token: int) -> str:
        return "<start>" if token == START else self.class_name(token - 1)

    def class_name(self, target: int) -> str:
        if self.level == "words":
            words = self._words()  # train may have fewer than there are classes
            return words[target].decode() if target < len(words) else f"<none {target}>"
        character = chr(target)
        return character if target < 128 and character.isprintable() else f"0x{target:02x}"

    def show(self, split: Split, example: int) -> list[str]:
        (tokens,) = split.tokens(example)
        if self.level == "words":
            return [" ".join(map(self.word, tokens))]
        return [bytes(t - 1 for t in tokens if t != START).decode(errors="replace")]

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
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
        train = "valid" if self.splits == "valid" else "train"
        file = {"train": train, "dev": "valid", "test": "test"}[split]
        (text,) = self.arrays({"text": "uint8 v"}, file)
        if not len(text):
            problem = "wikitext.splits=official needs the train file, which was not imported"
            raise UserError(f"{problem}; {self.how_to_get()}, or set wikitext.splits=valid")
        if self.splits == "official" or split == "test":
            return text
        starts = article_starts(text)
        cut = starts[len(starts) - max(1, len(starts) // DEV_SHARE)]
        return text[:cut] if split == "train" else text[cut:]

    def _classes(
        self, split: SplitName
    ) -> tuple[Int[np.ndarray, " v"], Int[np.ndarray, " articles"]]:
        text = self.text(split)
        starts = article_starts(text)
        if self.level == "bytes":
            return text.astype(np.int64), starts
        numbers = {word: number for number, word in enumerate(self._words())}
        words = (words_of(article.tobytes()) for article in np.split(text, starts[1:]))
        articles = [np.fromiter((numbers.get(w, 0) for w in of), np.int64) for of in words]
        return np.concatenate(articles), np.cumsum([0, *map(len, articles[:-1])])

    def _words(self) -> list[bytes]:
        data = cache.find(self.cache_key)
        return _vocabulary(self, data and stamp(str(data), self.how_to_get()))


def article_starts(text: UInt8[np.ndarray, " v"]) -> Int[np.ndarray, " articles"]:
    # Ascending; the first is 0.
    starts = [match.start() for match in HEADING.finditer(text.tobytes())]
    return np.array([0, *starts[1:]], np.int64)


def windows(
    classes: Int[np.ndarray, " v"], articles: Int[np.ndarray, " articles"], length: int,
    vocabulary: int, measure: str, chosen: Int[np.ndarray, " n"] | slice = slice(None),
) -> Split:  # fmt: skip
    # The input of a position is the token before its target: the target at position j of a window
    # is predicted from j + 1 tokens, the first from the window before. After the end of the stream,
    # targets are -1 and tokens arbitrary: a causal model needs no mask. `articles` are the starts
    # of articles, ascending, from 0 on. A window belongs to the article of its first target; the
    # windows of an article are a cluster. A slice of all windows makes no copy.
    count = -(-len(classes) // length)
    dtype = next(t for t in (np.uint8, np.int16, np.int32) if vocabulary <= np.iinfo(t).max + 1)
    targets = np.full(count * length, -1, np.int64)
    targets[: len(classes)] = classes
    tokens = np.full(count * length, START, dtype)
    tokens[1 : len(classes)] = classes[:-1] + 1
    clusters = np.searchsorted(articles, np.arange(count)[chosen] * length, side="right") - 1
    positions = torch.arange(length, dtype=torch.int32).expand(len(clusters), length)
    inputs, answers = (
        torch.from_numpy(rows.reshape(count, length)[chosen]) for rows in (tokens, targets)
    )
    of_articles, kind = torch.from_numpy(clusters.astype(np.int32)), NextTokens(measure=measure)
    return Split.single(inputs, None, answers, positions, kind, of_articles)


def ngrams(
    tokens: Int[np.ndarray, "... l"], n: int, vocabulary: int
) -> Int[np.ndarray, "... grams"]:
    count = tokens.shape[-1] - n + 1
    numbers = np.zeros((*tokens.shape[:-1], max(count, 0)), np.int64)
    for place in range(n):
        numbers = numbers * vocabulary + tokens[..., place : place + numbers.shape[-1]]
    return numbers


def repeats(numbers: Int[np.ndarray, "w g"]) -> Bool[np.ndarray, "w g"]:
    order = numbers.argsort(1, kind="stable")
    same = np.diff(np.take_along_axis(numbers, order, 1), prepend=-1) == 0
    found = np.empty_like(same)
    np.put_along_axis(found, order, same, 1)
    return found


def words_of(text: bytes) -> Iterator[bytes]:
    for line in BytesIO(text):
        yield from (*line.split(), END_OF_LINE)


def most_frequent(text: bytes, count: int) -> list[bytes]:
    counts = Counter(words_of(text))
    counts.pop(UNKNOWN, None)
    return [UNKNOWN, *(word for word, _ in counts.most_common(count - 1))]


@lru_cache(maxsize=1)  # once for the splits of a run, or after another import of its data
def _vocabulary(task: WikiText, data: Stamp | None) -> list[bytes]:
    return most_frequent(task.text("train").tobytes(), task.words)
