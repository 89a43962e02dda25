"""Reading a user's table of texts and labels: CSV, TSV or Parquet."""

import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tasks.data.extras import how_to_install
from tasks.data.files import require_regular, unreadable
from zoo.registry import UserError, first_line

if TYPE_CHECKING:
    import pandas

SEPARATORS = {".csv": ",", ".tsv": "\t"}


class Rows(NamedTuple):
    """The rows of a table, in order.

    Attributes:
        texts: UTF-8, none of them empty.
        labels: the labels, none of them empty.
        splits: the values of the split column; empty where none is read.
    """

    texts: list[bytes]
    labels: list[str]
    splits: list[str]


def read_rows(path: str, text: str, label: str, split: str) -> Rows:
    """The columns of those names; `split` may be empty.

    Raises:
        UserError: the file cannot be read, is empty or not UTF-8, lacks a column, or has an empty
            cell in one of them.
    """
    file = Path(path)
    try:
        if not file.exists():
            raise UserError(f"{path} does not exist; give a .csv, .tsv or .parquet file")
        require_regular(file)
        stat = file.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return _read(file, (text, label, split), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)  # a run builds its task several times
def _read(file: Path, columns: tuple[str, str, str], modified: int, size: int) -> Rows:
    try:
        table = _parse(file)
    except OSError as error:
        raise unreadable(file, error) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except ImportError as error:
        raise UserError(
            f"{file} cannot be read without pyarrow; {how_to_install('parquet')}"
        ) from error
    except UserError:
        raise
    except Exception as error:  # pandas and pyarrow raise errors of many types on damaged files
        raise UserError(f"{file} cannot be read ({first_line(error)}); correct it") from error
    if table.empty:
        raise UserError(f"{file} has no rows; give a header and rows of texts and labels")
    texts, labels, splits = (_cells(file, table, column) for column in columns)
    return Rows([text.encode() for text in texts], labels, splits)


def _parse(file: Path) -> "pandas.DataFrame":
    import pandas

    suffix = file.suffix.lower()
    if suffix == ".parquet":
        table = pandas.read_parquet(file)
        _require_different(file, table.columns.tolist())
        return table
    if suffix not in SEPARATORS:
        raise UserError(f"{file} is not a .csv, .tsv or .parquet file; convert or rename it")
    separator = SEPARATORS[suffix]
    text = {"sep": separator, "dtype": str, "keep_default_na": False, "encoding": "utf-8"}
    try:
        # Before the names are read as such, which gives a second `text` the name `text.1`.
        header = pandas.read_csv(file, header=None, nrows=1, **text)
        _require_different(file, header.iloc[0].tolist())
        with warnings.catch_warnings():
            # It cuts rows with more fields than the header, with a warning.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            return pandas.read_csv(file, index_col=False, **text)
    except pandas.errors.ParserWarning as error:
        raise UserError(
            f"{file} has rows with more fields than its header; quote texts that contain "
            f"{separator!r}"
        ) from error
    except pandas.errors.EmptyDataError as error:
        raise UserError(f"{file} is empty; give a header and rows of texts and labels") from error


def _require_different(file: Path, columns: list[str]) -> None:
    names = [name for name in columns if name]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{file} has two columns {repeated[0]!r}; remove or rename one")


def _cells(file: Path, table: "pandas.DataFrame", column: str) -> list[str]:
    if not column:
        return []
    if column not in table.columns:
        columns = ", ".join(map(str, table.columns))
        raise UserError(f"{file} has no column {column!r}, only {columns}; name the one to use")
    absent = table[column].isna()
    cells = table[column].astype(str)
    empty = (absent | (cells == "")).to_numpy().nonzero()[0]
    if len(empty):
        raise UserError(f"{file} has no {column!r} in row {empty[0] + 1}; fill or remove that row")
    return cells.tolist()
