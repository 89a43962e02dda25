"""Text: is a film review good or bad, read byte by byte?

The Large Movie Review Dataset (Maas et al., ACL 2011) as the Long Range Arena poses it (Tay et al.,
2021, arXiv 2011.04006): the review's raw UTF-8 bytes, `<br />` included, cut to 4,000 wherever that
falls, also inside a character; token = byte + 1.

Deviation: the arena has no dev split; here it is 1,250 reviews of each class, chosen from the
official 25,000 by a fixed seed. The 96 reviews there that repeat another one are not kept together
with it.
"""

import json
import lzma

import numpy as np

from tasks.contract import Split, SplitName
from tasks.corpus import Corpus, held_out, names, thinned
from tasks.known import File
from tasks.registry import tasks
from tasks.sources import Imported
from zoo.registry import Refused

DEV_SEED = 0
FIRST = 1


@tasks.register("text")
class Text(Imported):
    """Up to 22,500 train, 2,500 dev and 25,000 test reviews, balanced; class 1 is good."""

    name = "text"
    version = 1
    classes = 2
    # Every byte has its token. UTF-8 has no byte above 0xF4, so that tokens still fit in a uint8.
    vocabulary = 257

    def __init__(
        self,
        *,
        max_len: int = 4000,
        train: int = 22_500,
        dev: int = 2_500,
        test: int = 25_000,
    ) -> None:
        """Choose where reviews are cut, and how many are used; another choice, another setting.

        Args:
            max_len: bytes of a review that are read.
            train: reviews to train on.
            dev: reviews to choose the checkpoint on.
            test: reviews to test on.

        Raises:
            Refused: `max_len` is below 1.
        """
        if max_len < 1:
            raise Refused(f"text.max_len={max_len} must be at least 1; give the bytes to read")
        self.max_len = max_len
        self.train, self.dev, self.test = train, dev, test

    def load(self, split: SplitName) -> Split:
        """See `Task.load`.

        Raises:
            Refused: more reviews are asked for than there are, too.
        """
        corpus = Corpus(*self.arrays(names("test" if split == "test" else "train")))
        if split == "test":
            chosen = np.arange(len(corpus))
        else:
            train, dev = held_out(corpus.targets, DEV_SEED)
            chosen = dev if split == "dev" else train
        chosen = thinned(f"text.{split}", chosen, getattr(self, split))
        return corpus.split(chosen, self.max_len, FIRST)

    @classmethod
    def convert(cls, packed: bytes, file: File) -> dict[str, np.ndarray]:
        """See `Imported.convert`."""
        ((split, rows),) = file.rows.items()
        raw = lzma.decompress(packed)
        file.verify("raw", raw)
        reviews = [json.loads(line) for line in raw.split(b"\n") if line]
        documents = [review["text"].encode() for review in reviews]
        targets = [review["label"] for review in reviews]
        found = [targets.count(value) for value in range(cls.classes)]
        expected = [rows // cls.classes] * cls.classes
        if found != expected or len(targets) != rows:
            raise Refused(
                f"{file.name} holds {len(targets)} reviews, {found} of classes 0 and 1, "
                f"{rows} and {expected} expected; get it again"
            )
        if b"" in documents:
            raise Refused(f"review {documents.index(b'')} in {file.name} is empty; get it again")
        return Corpus.of(documents, targets).arrays(split)
