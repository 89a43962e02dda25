"""Table: a user's texts and labels, read byte by byte.

>>> import tasks
>>> task = tasks.create("table", path="reviews.csv", text="review", label="sentiment")
>>> train = task.load("train")
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tasks.contract import SPLITS, Split, SplitName
from tasks.data.corpus import FIRST_BYTE, ByteTask, Corpus, require_shares, stratified
from tasks.data.extras import how_to_install
from tasks.data.files import stamp, unreadable
from tasks.registry import tasks
from zoo.registry import UserError, first_line, require_at_least

MAX_CLASSES = 256

SEPARATORS = {".csv": ",", ".tsv": "\t"}


class Rows(NamedTuple):
    """The rows of a table, in order: texts in UTF-8, labels, and splits where they are read."""

    texts: list[bytes]
    labels: list[str]
    splits: list[str]


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
        require_shares("table", self.dev, self.test, self.seed)
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
        corpus = Corpus.of(rows.texts, targets.tolist())
        return corpus.split(chosen[split], self.max_len, FIRST_BYTE)

    def class_name(self, target: int) -> str:
        """See `Task.class_name`: the label."""
        return self._names()[target]

    def _rows(self) -> Rows:
        file = stamp(self.path, "a .csv, .tsv or .parquet file")
        return read_rows(*file, (self.text, self.label, self.split))

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

    def _random_splits(self, rows: Rows, targets: np.ndarray) -> Mapping[str, np.ndarray]:
        """The indices of each split. A text that is repeated counts once, with its first label."""
        _, first, text_ids = np.unique(
            np.array(rows.texts, object), return_index=True, return_inverse=True
        )
        keys = np.random.Generator(np.random.PCG64(self.seed)).random(len(rows.texts))
        split_of_text = stratified(
            targets[first], keys[first], self._names(), dev=self.dev, test=self.test,
            owner=self.path, items="different texts",
        )  # fmt: skip
        split_of_row = split_of_text[text_ids]
        return {name: np.flatnonzero(split_of_row == i) for i, name in enumerate(SPLITS)}


@lru_cache(maxsize=1)  # a run builds its task several times
def read_rows(file: Path, modified: int, size: int, columns: tuple[str, str, str]) -> Rows:
    """The columns of texts, labels and splits; the last name may be empty.

    UserError where the file cannot be read, has no rows, lacks a column, or has an empty cell.
    """
    try:
        table = _parse(file)
    except Exception as error:  # pandas and pyarrow raise errors of many types on damaged files
        raise _problem(file, error) from error
    if table.empty:
        raise UserError(f"{file} has no rows; give a header and rows of texts and labels")
    texts, labels, splits = (_cells(file, table, column) if column else [] for column in columns)
    return Rows([text.encode() for text in texts], labels, splits)


def _parse(file: Path) -> Any:
    import pandas

    if file.suffix.lower() == ".parquet":
        table = pandas.read_parquet(file)
        columns = table.columns.tolist()
    elif separator := SEPARATORS.get(file.suffix.lower()):
        text: Any = {"sep": separator, "dtype": str, "keep_default_na": False, "encoding": "utf-8"}
        # Before the names are read as such, which gives a second `text` the name `text.1`.
        columns = pandas.read_csv(file, header=None, nrows=1, **text).iloc[0].tolist()
        with warnings.catch_warnings():
            # It cuts rows with more fields than the header, with a warning.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            table = pandas.read_csv(file, index_col=False, **text)
    else:
        raise UserError(f"{file} is not a .csv, .tsv or .parquet file; convert or rename it")
    if repeated := [name for name in columns if name and columns.count(name) > 1]:
        raise UserError(f"{file} has two columns {repeated[0]!r}; remove or rename one")
    return table


def _problem(file: Path, error: Exception) -> UserError:
    from pandas.errors import EmptyDataError, ParserWarning

    match error:
        case UserError():
            return error
        case OSError():
            return unreadable(file, error)
        case UnicodeDecodeError():
            return UserError(f"{file} is not UTF-8 ({error.reason}); save it as UTF-8")
        case ImportError():
            return UserError(f"{file} cannot be read without pyarrow; {how_to_install('parquet')}")
        case ParserWarning():
            return UserError(
                f"{file} has rows with more fields than its header; quote texts that contain its "
                "separator"
            )
        case EmptyDataError():
            return UserError(f"{file} is empty; give a header and rows of texts and labels")
    return UserError(f"{file} cannot be read ({first_line(error)}); correct it")


def _cells(file: Path, table: Any, column: str) -> list[str]:
    if column not in table.columns:
        columns = ", ".join(map(str, table.columns))
        raise UserError(f"{file} has no column {column!r}, only {columns}; name the one to use")
    texts = table[column].astype(str)
    empty = (table[column].isna() | (texts == "")).to_numpy().nonzero()[0]
    if len(empty):
        raise UserError(f"{file} has no {column!r} in row {empty[0] + 1}; fill or remove that row")
    return texts.tolist()
