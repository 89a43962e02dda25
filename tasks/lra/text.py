"""Text: whether a film review is positive or negative, read byte by byte.

The Large Movie Review Dataset (Maas et al., ACL 2011) as in the Long Range Arena (Tay et al., 2021,
arXiv 2011.04006): the review's raw UTF-8 bytes, `<br />` included, truncated to 4,000 bytes, also
within a character; token = byte + 1.

Deviation: the arena has no dev split; here it is 1,250 reviews of each class, chosen from the
official 25,000 by a fixed seed. The 96 reviews there that repeat another one may be in another
split than that one.

The reviews are cached by class, negative first, and by number: the order of the repacked files, and
of the sorted files of the official `aclImdb` folder.
"""

import json
import lzma
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tasks.contract import Split, SplitName
from tasks.data.archives import Member, SourceFiles
from tasks.data.corpus import Corpus, choose, decode, official, specification
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

FIRST = 1
"""The token of the byte 0."""

REVIEW_LIMIT = 1 << 20
"""Bytes of a review; the longest of the data set has 13,704."""

LABELS = ("bad", "good")

REVIEW = re.compile(
    r"(?P<split>train|test)/(?P<label>neg|pos)/(?P<number>\d+)_(?P<rating>\d+)\.txt"
)
"""The path of a review in the official folder."""

RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}


@tasks.register("text")
@dataclass(frozen=True, kw_only=True)
class Text(ImportedTask):
    """Up to 22,500 train, 2,500 dev and 25,000 test reviews, balanced; class 1 is good.

    Attributes:
        max_len: bytes to which a review is truncated.
        train, dev, test: reviews in the split of that name.
    """

    name = "text"
    version = 1
    classes = 2
    # Every byte has its token. UTF-8 has no byte above 0xF4, so that tokens still fit in a uint8.
    vocabulary = 257

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
        chosen = choose("text", corpus.targets, split, getattr(self, split))
        return corpus.split(chosen, self.max_len, FIRST)

    def show(self, split: Split, example: int) -> list[str]:
        """See `Task.show`: see `decode`."""
        return decode(split.tokens(example), FIRST)

    def class_name(self, target: int) -> str:
        """See `Task.class_name`."""
        return LABELS[target]

    @classmethod
    def convert(cls, files: SourceFiles, examples: Mapping[str, int]) -> dict[str, np.ndarray]:
        """See `ImportedTask.convert`."""
        arrays = {}
        for split, reviews in _READERS[files.layout.name](files).items():
            targets = [label for label, _ in reviews]
            counts = [targets.count(value) for value in range(cls.classes)]
            expected = [examples[split] // cls.classes] * cls.classes
            if counts != expected or len(targets) != examples[split]:
                listing = " and ".join(map("{} {}".format, counts, LABELS))
                raise UserError(
                    f"{files.path} contains {len(targets)} reviews in {split}, {listing}; "
                    f"{examples[split]}, {expected[0]} of each, expected; get it again"
                )
            texts = [text for _, text in reviews]
            if b"" in texts:
                raise UserError(
                    f"review {texts.index(b'')} of {split} in {files.path} is empty; get it again"
                )
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
    """The official folder: a file a review."""
    splits: dict[str, dict[tuple[int, int], bytes]] = {"train": {}, "test": {}}
    for file in files:
        parts = REVIEW.fullmatch(file.name)
        if parts is None or int(parts["rating"]) not in RATINGS[parts["label"]]:
            raise UserError(
                f"{file.location} is not named NUMBER_RATING.txt with a rating of its folder, "
                "1 to 4 in neg, 7 to 10 in pos; get it again"
            )
        review = file.read(REVIEW_LIMIT)
        try:
            review.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{file.location} is not UTF-8 at byte {error.start}; get it again"
            ) from error
        splits[parts["split"]][int(parts["label"] == "pos"), int(parts["number"])] = review
    return {
        split: [(label, review) for (label, _), review in sorted(reviews.items())]
        for split, reviews in splits.items()
    }


_READERS = {"lines": _read_lines, "folders": _read_folders}
