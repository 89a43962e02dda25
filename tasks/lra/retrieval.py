"""Retrieval: does one of two papers cite the other, read byte by byte?

Papers of the ACL Anthology Network (Radev et al., 2013) in pairs, as the Long Range Arena poses it
(Tay et al., 2021, arXiv 2011.04006); token = byte + 1, documents cut to 4,000 bytes.

The official files are lines of five columns, tabs between them, with no header; quotes mean
nothing. They are: label (0 or 1, written as a float), id1, id2, text1, text2. The official loader
takes a text as it is written: where it is written as a Python literal, `b'...'` with its escapes,
the `b`, the quotes and the backslashes are tokens. So they are here. Its byte encoder sees the
first 10,000 bytes of a text; no more are kept.

Deviations: documents that are equal in those bytes are stored once; and what the official loader
would pass over in silence is refused with its line: another number of columns, another label, an
empty text, bytes that are not UTF-8.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from tasks.contract import Split, SplitName
from tasks.data.archives import Member, Opened
from tasks.data.corpus import legible, padded, thinned
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError

FIRST = 1
KEPT = 10_000
"""Bytes of a document that are kept."""

COLUMNS = ("label", "id1", "id2", "text1", "text2")
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
NAMES = ("no citation", "citation")
OFFICIAL_SPLITS = {"train": "train", "eval": "dev", "test": "test"}
"""Our name of each official split."""


@tasks.register("retrieval")
@dataclass(frozen=True, kw_only=True)
class Retrieval(ImportedTask):
    """Up to 147,086 train, 18,090 dev and 17,437 test pairs; class 1 is a citation.

    Attributes:
        max_len: bytes to which a text is truncated, at most 10,000.
        train: pairs in train.
        dev: pairs in dev.
        test: pairs in test.
    """

    name = "retrieval"
    version = 1
    classes = 2
    # Every byte has its token. UTF-8 has no byte above 0xF4, so that tokens still fit in a uint8.
    vocabulary = 257
    sequences = 2

    max_len: int = 4000
    train: int = 147_086
    dev: int = 18_090
    test: int = 17_437

    def __post_init__(self) -> None:
        """Raise UserError where an option is out of range."""
        if not 1 <= self.max_len <= KEPT:
            raise UserError(f"retrieval.max_len={self.max_len} is out of range; give 1 to {KEPT}")

    def load(self, split: SplitName) -> Split:
        """See `Task.load`; only documents that the split shows are in it.

        Raises:
            UserError: more pairs are asked for than there are, too.
        """
        values, ends, pairs, targets = self.arrays(
            ["values", "ends", f"{split}_pairs", f"{split}_targets"]
        )
        owner = f"retrieval.{split}"
        chosen = thinned(owner, np.arange(len(targets)), getattr(self, split))
        shown, rows = np.unique(pairs[chosen], return_inverse=True)
        sequences, lengths = padded(values, ends, shown.astype(np.int64), self.max_len, FIRST)
        return Split(
            sequences=sequences,
            lengths=lengths,
            sequence_ids=torch.from_numpy(rows.reshape(-1, 2).astype(np.int32)),
            targets=torch.from_numpy(targets[chosen].astype(np.int64)),
            padded=bool((lengths < self.max_len).any()),
        )

    def show(self, split: Split, example: int) -> list[str]:
        """See `Task.show`: as text, as `legible` writes it."""
        return legible(split.tokens(example), FIRST)

    def label(self, target: int) -> str:
        """See `Task.label`."""
        return NAMES[target]

    @classmethod
    def convert(cls, files: Opened, rows: Mapping[str, int]) -> dict[str, np.ndarray]:
        """See `Imported.convert`."""
        known: dict[bytes, int] = {}
        found = {}
        for file in files:
            split = OFFICIAL_SPLITS[file.name.split(".")[1]]
            pairs, targets = _read(file, known)
            if len(targets) != rows[split]:
                raise UserError(
                    f"{file.place} holds {len(targets)} pairs, {rows[split]} expected; get it again"
                )
            found[split] = (np.array(pairs, np.int64), np.array(targets, np.uint8))
        return _number(list(known), found)


def _number(
    texts: list[bytes], found: dict[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays to keep; documents come in the order in which train, dev and test show them.

    In an archive the files stand in any order, and that is not to matter.
    """
    shown = np.concatenate([found[split][0] for split in OFFICIAL_SPLITS.values()])
    numbers, first = np.unique(shown, return_index=True)
    order = numbers[first.argsort()]
    ordered = [texts[number] for number in order.tolist()]
    arrays = {
        "values": np.frombuffer(b"".join(ordered), np.uint8),
        "ends": np.cumsum([len(text) for text in ordered], dtype=np.int64),
    }
    for split in OFFICIAL_SPLITS.values():
        pairs, targets = found[split]
        arrays[f"{split}_pairs"] = order.argsort()[pairs].astype(np.int32)
        arrays[f"{split}_targets"] = targets
    return arrays


def _read(file: Member, known: dict[bytes, int]) -> tuple[list[tuple[int, int]], list[int]]:
    """The pairs and labels of a file, line by line; `known` numbers the documents, and grows."""
    pairs, targets = [], []
    for number, line in enumerate(file.stream, 1):
        first, second, target = _parse(line, f"{file.place}, line {number}")
        pairs.append((known.setdefault(first, len(known)), known.setdefault(second, len(known))))
        targets.append(target)
    return pairs, targets


def _parse(line: bytes, place: str) -> tuple[bytes, bytes, int]:
    """The two documents and the label of a line."""
    columns = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(columns) != len(COLUMNS):
        raise UserError(
            f"{place} has {len(columns)} columns, {len(COLUMNS)} expected "
            f"({', '.join(COLUMNS)}); get it again"
        )
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{place} is not UTF-8 at byte {error.start}; get it again") from error
    label, _, _, first, second = columns
    if label not in LABELS:
        raise UserError(f"{place} has the label {label.decode()!r}, not 0.0 or 1.0; get it again")
    if not first or not second:
        raise UserError(f"{place} has an empty text; get it again")
    return first[:KEPT], second[:KEPT], LABELS[label]
