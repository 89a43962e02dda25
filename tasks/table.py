"""Table: a user's texts and labels, read byte by byte."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tasks.contract import SPLITS, Split, SplitName
from tasks.data.corpus import FIRST_BYTE, MAX_CLASSES, ByteTask, Corpus, require_shares, stratified
from tasks.registry import tasks
from tasks.rows import FILE_NAMES, MAX_TOKENS, TOKEN, Rows, files_of, read_rows
from zoo.registry import UserError, require_at_least


@tasks.register("table")
@dataclass(frozen=True, kw_only=True)
class Table(ByteTask):
    """Texts or lists of tokens with labels: CSV, TSV, JSON lines, Parquet, or a folder of one kind.

    The token of a byte of a text is the byte + 1, the token of an integer of a list the integer
    + 1. Classes are in the order of their names; whole and decimal numbers in their own.

    Without given splits, `dev` and `test` are shares of the different texts of every class, drawn
    from `seed`; rows with the same text are always in the same split. Splits are given by a column,
    or by the names of the files of a folder, such as `train-00000.parquet`: train, dev or
    validation, and test. Without dev, it is a share of train.

    Attributes:
        path: the file, or the folder.
        text: the column of texts, or of lists of tokens.
        label: the column of labels.
        split: the column of splits; empty to draw them.
        max_len: bytes or tokens to which a text is truncated.
        tokens: how many different tokens there are in lists; 0 for the largest one + 1.
        quoted: whether cells of a TSV file may be quoted, as they may in CSV.
        dev: share of dev.
        test: share of test.
        seed: seed of the splits.
    """

    name = "table"
    version = 1

    path: str
    text: str = "text"
    label: str = "label"
    split: str = ""
    max_len: int = 512
    tokens: int = 0
    quoted: bool = False
    dev: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least(1, "table", max_len=self.max_len)
        require_at_least(0, "table", tokens=self.tokens)
        require_shares("table", self.dev, self.test, self.seed)
        rows = self._rows()
        count = len(rows.names)
        if count < 2:
            raise UserError(f"{self.path} has one class only in {self.label!r}; give at least two")
        if count > MAX_CLASSES:
            found = f"{count} classes in {self.label!r}, {MAX_CLASSES} is the maximum"
            raise UserError(f"{self.path} has {found}; give a column of classes")
        vocabulary = type(self).vocabulary
        if rows.tokens:
            largest = max(int(np.frombuffer(text, TOKEN).max()) for text in rows.texts)
            if self.tokens > MAX_TOKENS or 0 < self.tokens <= largest:
                found = f"{self.path} has token {largest}; give {largest + 1} to {MAX_TOKENS}"
                raise UserError(f"table.tokens={self.tokens} is out of range, {found}")
            vocabulary = (self.tokens or largest + 1) + 1
        self._derive(classes=count, vocabulary=vocabulary)

    def load(self, split: SplitName) -> Split:
        rows = self._rows()
        numbers = {name: number for number, name in enumerate(rows.names)}
        targets = np.array([numbers[label] for label in rows.labels])
        chosen = self._splits(rows, targets)
        corpus = Corpus.of(rows.texts, targets.tolist(), TOKEN if rows.tokens else np.uint8)
        if rows.tokens:  # in the smallest type that holds the vocabulary
            kinds = (k for k in (np.uint8, np.int16) if self.vocabulary <= np.iinfo(k).max + 1)
            corpus = replace(corpus, values=corpus.values.astype(next(kinds, np.int32)))
        return corpus.split(chosen[split], self.max_len, FIRST_BYTE)

    def show(self, split: Split, example: int) -> list[str]:
        if not self._rows().tokens:
            return super().show(split, example)
        return [" ".join(str(t - FIRST_BYTE) for t in s) for s in split.tokens(example)]

    def class_name(self, target: int) -> str:
        return self._rows().names[target]

    def _rows(self) -> Rows:
        return read_rows(files_of(self.path), (self.text, self.label, self.split), self.quoted)

    def _splits(self, rows: Rows, targets: np.ndarray) -> Mapping[str, np.ndarray]:
        if not rows.splits:
            return self._drawn(rows, targets, np.arange(len(targets)), self.test)
        where = repr(self.split) if self.split else FILE_NAMES
        values = np.array(rows.splits)
        chosen = {name: np.flatnonzero(values == name) for name in SPLITS}
        for name in ("train", "test"):
            if not len(chosen[name]):
                raise UserError(f"{self.path} has no row of {name!r} in {where}; add some")
        if len(classes := {rows.labels[index] for index in chosen["train"]}) < 2:
            raise UserError(f"{self.path} has {min(classes)!r} only in train; add another class")
        if not len(chosen["dev"]):
            return {**self._drawn(rows, targets, chosen["train"], None), "test": chosen["test"]}
        return chosen

    def _drawn(
        self, rows: Rows, targets: np.ndarray, indices: np.ndarray, test: float | None
    ) -> Mapping[str, np.ndarray]:
        # A repeated text counts once, with its first label.
        texts = np.array([rows.texts[index] for index in indices], object)
        _, first, text_ids = np.unique(texts, return_index=True, return_inverse=True)
        keys = np.random.Generator(np.random.PCG64(self.seed)).random(len(texts))
        split_of_text = stratified(
            targets[indices][first], keys[first], rows.names, dev=self.dev, test=test,
            owner=self.path, items="different texts",
        )  # fmt: skip
        return {name: indices[split_of_text[text_ids] == i] for i, name in enumerate(SPLITS)}
