"""Text: whether a film review is positive or negative, read byte by byte.

The Large Movie Review Dataset (Maas et al., ACL 2011) as in the Long Range Arena (Tay et al., 2021,
arXiv 2011.04006): the review's raw UTF-8 bytes, `<br />` included, truncated to 4,000 bytes, also
within a character; token = byte + 1.

Deviation: the arena has no dev split; here it is 1,250 reviews of each class of the official
25,000: the last tenth of each of ten blocks by number. Reviews of a film have neighbouring numbers,
and no film of test is in train: with dev drawn at random, naive Bayes of words has 82.8 % on dev
and 78.4 % on test, with blocks 75.0 % and 78.4 %. Reviews that occur more than once are in train,
so that none is in both; 112 reviews of test occur in the official 25,000 as well, and are not
removed.

The reviews are cached by class, negative first, and by number: the order of the repacked files, and
of the sorted files of the official `aclImdb` folder.
"""

import json
import lzma
import re
from dataclasses import dataclass

import numpy as np

from tasks.contract import Split, SplitName
from tasks.data.corpus import FIELDS, FIRST_BYTE, ByteTask, Corpus, in_split, official
from tasks.data.files import SMALL_FILE, SourceFiles, damaged, source_of
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import require_at_least

# The path of a review in the official folder.
REVIEW = re.compile(r"(train|test)/(neg|pos)/(\d+)_\d+\.txt")


@tasks.register("text")
@dataclass(frozen=True, kw_only=True)
class Text(ByteTask, ImportedTask):
    """Up to 22,500 train, 2,500 dev and 25,000 test reviews, balanced; class 1 is good.

    Attributes:
        max_len: bytes to which a review is truncated.
        train, dev, test: reviews in the split of that name.
    """

    name = "text"
    version = 3
    classes = 2
    labels = ("bad", "good")

    source = source_of("text")

    max_len: int = 4000
    train: int = 22_500
    dev: int = 2_500
    test: int = 25_000

    def __post_init__(self) -> None:
        require_at_least(1, "text", max_len=self.max_len)

    def load(self, split: SplitName) -> Split:
        corpus = Corpus(*self.arrays(FIELDS, official(split)))
        members = in_split(corpus.targets, split, corpus.repeats(), in_blocks=True)
        chosen = self.subset(split, members)
        return corpus.split(chosen, self.max_len, FIRST_BYTE)

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        splits: dict[str, dict[tuple[int, int], bytes]] = {"train": {}, "test": {}}
        for file in files:
            if file.name.endswith(".xz"):
                reviews = splits["train" if "train" in file.name else "test"]
                lines = lzma.decompress(file.read()).splitlines()
                for number, row in enumerate(map(json.loads, lines)):
                    reviews[row["label"], number] = row["text"].encode()
            elif match := REVIEW.fullmatch(file.name):
                split, label, number = match.groups()
                splits[split][int(label == "pos"), int(number)] = file.read(SMALL_FILE)
            else:
                raise damaged(file.location, "is not named NUMBER_RATING.txt")
        arrays = {}
        for split, reviews in splits.items():
            keys = sorted(reviews)
            texts, targets = [reviews[key] for key in keys], [label for label, _ in keys]
            arrays |= Corpus.of(texts, targets).arrays(split)
        return arrays
