"""Text: is a film review good or bad, read byte by byte?

The Large Movie Review Dataset (Maas et al., ACL 2011) as the Long Range Arena poses it (Tay et al.,
2021, arXiv 2011.04006): the review's raw UTF-8 bytes, `<br />` included, cut to 4,000 wherever that
falls, also inside a character; token = byte + 1.

Deviation: the arena has no dev split; here it is 1,250 reviews of each class, chosen from the
official 25,000 by a fixed seed. The 96 reviews there that repeat another one are not kept together
with it.

The reviews are kept as they are numbered, negative before positive: so stand the lines of the
repacked files, and so are the files of the official `aclImdb` folder sorted.
"""

import json
import lzma
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tasks.contract import Split, SplitName
from tasks.data.archives import Member, Opened
from tasks.data.corpus import Corpus, legible, members, names, official
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

FIRST = 1
LABELS = ("bad", "good")

REVIEW = re.compile(
    r"(?P<split>train|test)/(?P<label>neg|pos)/(?P<number>\d+)_(?P<rating>\d+)\.txt"
)
"""Where the official folder keeps a review."""

RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}


@tasks.register("text")
@dataclass(frozen=True, kw_only=True)
class Text(ImportedTask):
    """Up to 22,500 train, 2,500 dev and 25,000 test reviews, balanced; class 1 is good.

    Attributes:
        max_len: bytes to which a review is truncated.
        train: reviews in train.
        dev: reviews in dev.
        test: reviews in test.
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
        """See `Task.load`.

        Raises:
            UserError: more reviews are asked for than there are, too.
        """
        corpus = Corpus(*self.arrays(names(official(split))))
        chosen = members("text", corpus.targets, split, getattr(self, split))
        return corpus.split(chosen, self.max_len, FIRST)

    def show(self, split: Split, example: int) -> list[str]:
        """See `Task.show`: as text, as `legible` writes it."""
        return legible(split.tokens(example), FIRST)

    def label(self, target: int) -> str:
        """See `Task.label`."""
        return LABELS[target]

    @classmethod
    def convert(cls, files: Opened, rows: Mapping[str, int]) -> dict[str, np.ndarray]:
        """See `Imported.convert`."""
        arrays = {}
        for split, reviews in _READERS[files.edition.name](files).items():
            targets = [label for label, _ in reviews]
            found = [targets.count(value) for value in range(cls.classes)]
            expected = [rows[split] // cls.classes] * cls.classes
            if found != expected or len(targets) != rows[split]:
                listing = " and ".join(map("{} {}".format, found, LABELS))
                raise UserError(
                    f"{files.path} holds {len(targets)} reviews in {split}, {listing}; "
                    f"{rows[split]}, {expected[0]} of each, expected; get it again"
                )
            sequences = [document for _, document in reviews]
            if b"" in sequences:
                raise UserError(
                    f"review {sequences.index(b'')} of {split} in {files.path} is empty; "
                    "get it again"
                )
            arrays |= Corpus.of(sequences, targets).arrays(split)
        return arrays


Reviews = dict[str, list[tuple[int, bytes]]]
"""Class and bytes of each review, by split."""


def _lines(files: Iterable[Member]) -> Reviews:
    found: Reviews = {"train": [], "test": []}
    for file in files:
        reviews = [json.loads(line) for line in lzma.decompress(file.stream.read()).splitlines()]
        split = "train" if "train" in file.name else "test"
        found[split] = [(review["label"], review["text"].encode()) for review in reviews]
    return found


def _folders(files: Iterable[Member]) -> Reviews:
    found: dict[str, dict[tuple[int, int], bytes]] = {"train": {}, "test": {}}
    for file in files:
        parts = REVIEW.fullmatch(file.name)
        if parts is None or int(parts["rating"]) not in RATINGS[parts["label"]]:
            raise UserError(
                f"{file.place} is not named NUMBER_RATING.txt with a rating of its folder, 1 to 4 "
                "in neg, 7 to 10 in pos; get it again"
            )
        review = file.stream.read()
        try:
            review.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{file.place} is not UTF-8 at byte {error.start}; get it again"
            ) from error
        found[parts["split"]][int(parts["label"] == "pos"), int(parts["number"])] = review
    return {
        split: [(label, review) for (label, _), review in sorted(reviews.items())]
        for split, reviews in found.items()
    }


_READERS = {"lines": _lines, "folders": _folders}
