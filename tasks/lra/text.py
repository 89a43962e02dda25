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
from dataclasses import dataclass

import numpy as np

from tasks.contract import Split, SplitName
from tasks.data.corpus import FIRST_BYTE, ByteTask, Corpus, in_split, official, specification
from tasks.data.files import File, Source, SourceFiles
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

REVIEW_LIMIT = 1 << 20
"""Bytes of a review; the longest of the data set has 13,704."""

REVIEW = re.compile(r"(train|test)/(neg|pos)/(\d+)_\d+\.txt")
"""The path of a review in the official folder."""

PACKED = 10_000_000
"""Bytes of a repacked file, at most."""


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

    source = Source(
        title="Large Movie Review Dataset v1.0 (IMDb), labelled part: negative then positive, each "
        "by number",
        origin="https://ai.stanford.edu/~amaas/data/sentiment/",
        terms="no licence stated; cite Maas et al., ACL 2011; research use, the texts belong to "
        "their authors",
        give="the folder of imdb_train.jsonl.xz and imdb_test.jsonl.xz, or aclImdb or "
        "aclImdb_v1.tar.gz",
        pattern=r"imdb_(?:train|test)\.jsonl\.xz|(?:train|test)/(?:neg|pos)/[^/]*",
        examples={"train": 25_000, "test": 25_000},
        arrays={
            "train_values": "adb4d9156083e5775c19e35f96b746f60d1716683b9e6911284fc3e2c7c2157b",
            "train_ends": "be372a94829570980862e69ae6a72318b68f58f88cbbc3de809ed398f9b80c3e",
            "train_targets": "9964888963efd7b88e0af0bfafab25966b83719200f7a4bbfc1dc3bf45e4ea97",
            "test_values": "75055f6305824731d1116d3ad0e8b8b18c7e2e50bddaf2786d3d4ed5ea0c19a8",
            "test_ends": "a6b7354ea2641c635209a220dff3f2b1063d95133987ba084730216cebd7b713",
            "test_targets": "9964888963efd7b88e0af0bfafab25966b83719200f7a4bbfc1dc3bf45e4ea97",
        },
        files=(
            File(
                "imdb_train.jsonl.xz",
                9_103_988,
                "sha256:ad8e53f08542ee07748dc0855b9e0cf58450e5b481877abb365e4205f39a523a",
            ),
            File(
                "imdb_test.jsonl.xz",
                8_867_268,
                "sha256:c78edd59f77d18e6b08ba099dddd63d43dfe3daeeb3c61d1fe53511f90e07562",
            ),
            # As TensorFlow Datasets and several independent projects list it.
            File(
                "aclImdb_v1.tar.gz",
                84_125_825,
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            ),
        ),
    )

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
        chosen = self.subset(split, in_split(corpus.targets, split, corpus.repeats()))
        return corpus.split(chosen, self.max_len, FIRST_BYTE)

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        """See `ImportedTask.convert`: of the repacked JSON lines, or of a file for each review."""
        splits: dict[str, dict[tuple[int, int], bytes]] = {"train": {}, "test": {}}
        for file in files:
            if file.name.endswith(".xz"):
                reviews = splits["train" if "train" in file.name else "test"]
                lines = lzma.decompress(file.read(PACKED)).splitlines()
                for number, row in enumerate(map(json.loads, lines)):
                    reviews[row["label"], number] = row["text"].encode()
            elif parts := REVIEW.fullmatch(file.name):
                split, label, number = parts.groups()
                splits[split][int(label == "pos"), int(number)] = file.read(REVIEW_LIMIT)
            else:
                raise UserError(f"{file.location} is not named NUMBER_RATING.txt; get it again")
        arrays = {}
        for split, reviews in splits.items():
            keys = sorted(reviews)
            texts, targets = [reviews[key] for key in keys], [label for label, _ in keys]
            arrays |= Corpus.of(texts, targets).arrays(split)
        return arrays
