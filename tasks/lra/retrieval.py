"""Retrieval: whether one of two papers cites the other, read byte by byte.

Papers of the ACL Anthology Network (Radev et al., 2013) in pairs, as in the Long Range Arena (Tay
et al., 2021, arXiv 2011.04006); token = byte + 1, texts truncated to 4,000 bytes.

The official files have lines of five columns separated by tabs, without a header and without
quoting: label (0 or 1, written as a float), id1, id2, text1, text2. The official loader takes a
text as it is written: where that is a Python literal, `b'...'` with its escapes, the `b`, the
quotes and the backslashes are tokens. So they are here. Its byte encoder reads the first 10,000
bytes of a text; no more are cached.

Deviations: texts that are equal in those bytes are stored once; and what the official loader skips
without a message is an error that names the line: another number of columns, another label, an
empty text, bytes that are not UTF-8.
"""

from dataclasses import dataclass

import numpy as np
import torch

from tasks.contract import SPLITS, Split, SplitName
from tasks.data.corpus import FIRST_BYTE, ByteTask, pad
from tasks.data.files import SourceFiles, damaged, source_of
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import UserError

TEXT_BYTES = 10_000  # Bytes of a text that are cached

COLUMNS = ("label", "id1", "id2", "text1", "text2")
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}


@tasks.register("retrieval")
@dataclass(frozen=True, kw_only=True)
class Retrieval(ByteTask, ImportedTask):
    """Up to 147,086 train, 18,090 dev and 17,437 test pairs; class 1 is a citation.

    Attributes:
        max_len: bytes to which a text is truncated, at most 10,000.
        train, dev, test: pairs in the split of that name.
    """

    name = "retrieval"
    version = 1
    classes = 2
    sequences = 2
    labels = ("no citation", "citation")

    source = source_of("retrieval")

    max_len: int = 4000
    train: int = 147_086
    dev: int = 18_090
    test: int = 17_437

    def __post_init__(self) -> None:
        if not 1 <= self.max_len <= TEXT_BYTES:
            value = f"retrieval.max_len={self.max_len}"
            raise UserError(f"{value} is out of range; give 1 to {TEXT_BYTES}")

    def load(self, split: SplitName) -> Split:
        of_split = {f"{split}_pairs": "int32 n 2", f"{split}_targets": "uint8 n"}
        fields = {"values": "uint8 v", "ends": "int64 s", **of_split}
        values, ends, pairs, targets = self.arrays(fields)
        chosen = self.subset(split, np.arange(len(targets)))
        used, indices = np.unique(pairs[chosen], return_inverse=True)
        sequences, lengths = pad(values, ends, used.astype(np.int64), self.max_len, FIRST_BYTE)
        ids = torch.from_numpy(indices.reshape(-1, 2).astype(np.int32))
        answers = torch.from_numpy(targets[chosen].astype(np.int64))
        return Split(sequences, lengths, ids, answers, bool((lengths < self.max_len).any()))

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        # Texts are in the order of their first use: archives order their files freely.
        known: dict[bytes, bytes] = {}  # a paper is in many pairs
        rows: dict[str, list[tuple[list[bytes], int]]] = {split: [] for split in SPLITS}
        for file in files:
            split = {"train": "train", "eval": "dev", "test": "test"}[file.name.split(".")[1]]
            for location, line in file.lines():
                texts, target = _parse(line, location)
                rows[split].append(([known.setdefault(text, text) for text in texts], target))
        arrays, numbers = {}, dict[bytes, int]()
        for split, of_split in rows.items():
            pairs = [[numbers.setdefault(t, len(numbers)) for t in texts] for texts, _ in of_split]
            arrays[f"{split}_pairs"] = np.array(pairs, np.int32).reshape(-1, 2)
            arrays[f"{split}_targets"] = np.array([target for _, target in of_split], np.uint8)
        arrays["values"] = np.frombuffer(b"".join(numbers), np.uint8)
        arrays["ends"] = np.cumsum([*map(len, numbers)], dtype=np.int64)
        return arrays


def _parse(line: bytes, location: str) -> tuple[list[bytes], int]:
    columns = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(columns) != len(COLUMNS):
        raise damaged(location, f"has {len(columns)} columns, not {', '.join(COLUMNS)}")
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise damaged(location, f"is not UTF-8 at byte {error.start}") from error
    label, _, _, *texts = columns
    if label not in LABELS:
        raise damaged(location, f"has the label {label.decode()!r}, not 0.0 or 1.0")
    if not all(texts):
        raise damaged(location, "has an empty text")
    return [text[:TEXT_BYTES] for text in texts], LABELS[label]
