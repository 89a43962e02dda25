"""ListOps from the official files of the Long Range Arena, to repeat a published run.

The files `basic_train.tsv`, `basic_val.tsv` and `basic_test.tsv` (Tay et al., 2021, arXiv
2011.04006) have a header and lines of two columns separated by a tab: the tree, with round brackets
that pair what is between them, and its value. For the tokens see `tasks.lra.listops.tokenise`.

No digests are published: every tree is evaluated, and its value compared with the column.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from tasks.baselines import listops as shallow
from tasks.contract import Baseline, Split, SplitName
from tasks.data.archives import SourceFiles
from tasks.data.corpus import Corpus, specification, subsample
from tasks.data.sources import ImportedTask
from tasks.lra.listops import WORDS, evaluate, tokenise, word_of
from tasks.registry import tasks
from zoo.registry import UserError

HEADER = b"Source\tTarget"
LINE_LIMIT = 1 << 20
"""Bytes of a line; a tree of 2,000 tokens has at most 20,000."""

LENGTH = 2000
OFFICIAL_SPLITS = {"train": "train", "val": "dev", "test": "test"}
"""Our name of each official split."""


@tasks.register("listops-lra")
@dataclass(frozen=True, kw_only=True)
class OfficialListOps(ImportedTask):
    """Up to 96,000 train, 2,000 dev and 2,000 test trees of 500 to 2,000 tokens.

    Attributes:
        train, dev, test: trees in the split of that name.
    """

    name = "listops-lra"
    version = 1
    classes = 10
    vocabulary = 1 + len(WORDS)
    max_len = LENGTH

    train: int = 96_000
    dev: int = 2_000
    test: int = 2_000

    def load(self, split: SplitName) -> Split:
        """See `Task.load`; also raises UserError where a split has fewer trees than requested."""
        corpus = Corpus(*self.arrays(specification(split)))
        count = getattr(self, split)
        chosen = subsample(f"listops-lra.{split}", np.arange(len(corpus)), count)
        return corpus.split(chosen, self.max_len, 0)

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        """See `Task.shallow_baselines`: those of `listops`."""
        return shallow.BASELINES

    def word(self, token: int) -> str:
        """See `Task.word`: a digit, an operator with its opening bracket, or `]`."""
        return word_of(token)

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        """See `ImportedTask.convert`."""
        arrays = {}
        for file in files:
            split = OFFICIAL_SPLITS[file.name.removesuffix(".tsv").removeprefix("basic_")]
            lines = file.lines(LINE_LIMIT)
            for location, header in itertools.islice(lines, 1):
                if header.rstrip(b"\r\n") != HEADER:
                    raise UserError(f"{location} is not the header Source, Target; get it again")
            trees = [_parse(line, location) for location, line in lines]
            sequences = [tokens.tobytes() for tokens, _ in trees]
            arrays |= Corpus.of(sequences, [target for _, target in trees]).arrays(split)
        return arrays


def _parse(line: bytes, location: str) -> tuple[UInt8[np.ndarray, " l"], int]:
    """The tokens and the value of a line."""
    source, _, target = line.rstrip(b"\r\n").partition(b"\t")
    try:
        tokens = tokenise(source.decode("ascii"))
        value = evaluate(tokens)
    except (UserError, UnicodeDecodeError) as error:
        reason = str(error).partition(";")[0]
        raise UserError(f"{location} is not a tree ({reason}); get it again") from error
    if len(tokens) > LENGTH:
        raise UserError(f"{location} has {len(tokens)} tokens, {LENGTH} at most; get it again")
    if target != str(value).encode():
        shown = target[:20].decode(errors="replace")
        raise UserError(f"{location} has the value {shown!r}, {value} expected; get it again")
    return tokens, value
