"""Text: whether a film review is positive or negative, read byte by byte.

The Large Movie Review Dataset (Maas et al., ACL 2011) as in the Long Range Arena (Tay et al., 2021,
arXiv 2011.04006): the review's raw UTF-8 bytes, `<br />` included, truncated to 4,000 bytes, also
within a character; token = byte + 1.

Deviation: the arena has no dev split; here it is 1,250 reviews of each class, chosen from the
official 25,000 by a fixed seed. Reviews that occur more than once there are in train, so that none
is in both; 112 reviews of test occur in the official 25,000 as well, and are not removed.

The reviews are cached by class, negative first, and by number: the order of the repacked files, and
of the sorted files of the official `aclImdb` folder.
"""

import json
import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tasks.contract import Split, SplitName
from tasks.data.archives import Member, SourceFiles
from tasks.data.corpus import FIRST_BYTE, ByteTask, Corpus, choose, official, specification
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

REVIEW_LIMIT = 1 << 20
"""Bytes of a review; the longest of the data set has 13,704."""

REVIEW = re.compile(r"(train|test)/(neg|pos)/(\d+)_\d+\.txt")
"""The path of a review in the official folder."""


@tasks.register("text")
@dataclass(frozen=True, kw_only=True)
class Text(ByteTask, ImportedTask):
    """Up to 22,500 train, 2,500 dev and 25,000 test reviews, balanced; class 1 is good.

    Attributes:
        max_len: bytes to which a review is truncated.
        train, dev, test: reviews in the split of that name.
    """

    name = "text"
    version = 2
    classes = 2
    labels = ("bad", "good")

    max_len: int = 4000
    train: int = 22_500
    dev: int = 2_500
    test: int = 25_000

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        require_at_least(1, "text", max_len=self.max_len)

    def load(self, split: SplitName) -> Split:
        """See `Task.load`; also raises UserError where a split has fewer reviews than requested."""
        corpus = Corpus(*self.arrays(specification(official(split))))
        count, repeats = getattr(self, split), corpus.repeats()
        chosen = choose("text", corpus.targets, split, count, repeats)
        return corpus.split(chosen, self.max_len, FIRST_BYTE)

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        """See `ImportedTask.convert`."""
        read = _read_lines if files.layout.name == "lines" else _read_folders
        arrays = {}
        for split, reviews in read(files).items():
            targets, texts = zip(*reviews, strict=True)
            arrays |= Corpus.of(texts, targets).arrays(split)
        return arrays


Reviews = dict[str, list[tuple[int, bytes]]]
"""Class and bytes of each review, by split."""


def _read_lines(files: Iterable[Member]) -> Reviews:
    """The repacked files: JSON lines."""
    splits: Reviews = {"train": [], "test": []}
    for file in files:
        reviews = [json.loads(line) for line in lzma.decompress(file.stream.read()).splitlines()]
        split = "train" if "train" in file.name else "test"
        splits[split] = [(review["label"], review["text"].encode()) for review in reviews]
    return splits


def _read_folders(files: Iterable[Member]) -> Reviews:
    """The official folder: one file per review."""
    splits: dict[str, dict[tuple[int, int], bytes]] = {"train": {}, "test": {}}
    for file in files:
        parts = REVIEW.fullmatch(file.name)
        if parts is None:
            raise UserError(f"{file.location} is not named NUMBER_RATING.txt; get it again")
        split, label, number = parts.groups()
        splits[split][int(label == "pos"), int(number)] = file.read(REVIEW_LIMIT)
    return {
        split: [(label, review) for (label, _), review in sorted(reviews.items())]
        for split, reviews in splits.items()
    }
