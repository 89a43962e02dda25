"""Table: a user's own texts and labels, read byte by byte.

>>> import tasks
>>> task = tasks.create("table", path="reviews.csv", text="review", label="sentiment")
>>> train = task.load("train")
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from tasks.contract import SPLITS, Split, SplitName
from tasks.data.corpus import FIRST_BYTE, ByteTask, Corpus
from tasks.data.stratified import stratified
from tasks.data.tables import Rows, read_rows
from tasks.registry import tasks
from zoo.registry import UserError, require_at_least

MAX_CLASSES = 256


@tasks.register("table")
@dataclass(frozen=True, kw_only=True)
class Table(ByteTask):
    """A CSV, TSV or Parquet file of texts and labels; token = byte + 1, classes sorted by name.

    Without a split column, `dev` and `test` are shares of the different texts of every class, drawn
    from `seed`; rows with the same text are always in the same split. A split column contains
    train, dev and test.

    Attributes:
        path: the file.
        text: the column of texts.
        label: the column of labels.
        split: the column of splits; empty to draw them.
        max_len: bytes to which a text is truncated.
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
    dev: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        """Read the labels; raise UserError where an option or the file cannot be used."""
        require_at_least(1, "table", max_len=self.max_len)
        require_at_least(0, "table", seed=self.seed)
        if not (self.dev > 0 and self.test > 0 and self.dev + self.test < 1):
            raise UserError(
                f"table.dev={self.dev} and table.test={self.test} must be above 0 and below 1 "
                "together; give shares such as 0.1"
            )
        count = len(self._names())
        if count < 2:
            raise UserError(f"{self.path} has one class only in {self.label!r}; give at least two")
        if count > MAX_CLASSES:
            raise UserError(
                f"{self.path} has {count} classes in {self.label!r}, {MAX_CLASSES} is the maximum; "
                "give a column of classes"
            )
        self._derive(classes=count)

    def load(self, split: SplitName) -> Split:
        """See `Task.load`."""
        rows = self._rows()
        numbers = {name: number for number, name in enumerate(self._names())}
        targets = np.array([numbers[label] for label in rows.labels])
        chosen = self._column_splits(rows) if self.split else self._random_splits(rows, targets)
        return Corpus.of(rows.texts, targets.tolist()).split(
            chosen[split], self.max_len, FIRST_BYTE
        )

    def class_name(self, target: int) -> str:
        """See `Task.class_name`: the label."""
        return self._names()[target]

    def _rows(self) -> Rows:
        return read_rows(self.path, self.text, self.label, self.split)

    def _names(self) -> list[str]:
        return sorted(set(self._rows().labels))

    def _column_splits(self, rows: Rows) -> Mapping[str, np.ndarray]:
        values = np.array(rows.splits)
        for value in sorted(set(rows.splits) - set(SPLITS)):
            raise UserError(
                f"{self.path} has {value!r} in {self.split!r}; give train, dev or test in each row"
            )
        chosen = {name: np.flatnonzero(values == name) for name in SPLITS}
        for name, indices in chosen.items():
            if not len(indices):
                raise UserError(f"{self.path} has no row of {name!r} in {self.split!r}; add some")
        classes = {rows.labels[index] for index in chosen["train"]}
        if len(classes) < 2:
            raise UserError(
                f"{self.path} has the class {min(classes)!r} only in train; add rows of another"
            )
        return chosen

    def _random_splits(
        self, rows: Rows, targets: Int64[np.ndarray, " n"]
    ) -> Mapping[str, np.ndarray]:
        """The indices of each split. A text that is repeated counts once, with its first label."""
        _, first, text_ids = np.unique(
            np.array(rows.texts, object), return_index=True, return_inverse=True
        )
        keys = np.random.Generator(np.random.PCG64(self.seed)).random(len(rows.texts))
        split_of_text = stratified(
            targets[first],
            keys[first],
            self._names(),
            dev=self.dev,
            test=self.test,
            owner=str(self.path),
            items="different texts",
            remedy="add rows",
        )
        split_of_row = split_of_text[text_ids]
        return {name: np.flatnonzero(split_of_row == i) for i, name in enumerate(SPLITS)}
