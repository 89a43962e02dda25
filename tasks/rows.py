"""Rows of a table: texts or lists of tokens, and labels, from CSV, TSV, JSON lines or Parquet.

A file is read as it was written, or rejected: no cell is guessed to be a number, a date or missing.

`.gz`, `.bz2` and `.xz` follow the suffix of a compressed file. A folder is read as the rows of its
files, in the order of their names; hidden files, and files of other kinds, are ignored.
"""

import bz2
import csv
import gzip
import json
import lzma
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tasks.contract import SplitName
from tasks.data.corpus import class_order
from tasks.data.extras import import_extra
from tasks.data.files import Stamp, decoding, stamp, system_errors
from zoo.registry import UserError, first_line

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")

COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

# The names of splits in a column, and at the beginning of the names of the files of a folder.
SPLIT_NAMES: dict[str, SplitName] = {
    "train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev",
    "test": "test",
}  # fmt: skip

# Types of labels, each read as its text: integers and dates have one, lists do not.
LABELS = (str, bool, int, float, Decimal, date)

FILE_NAMES = "the names of its files"  # The place of splits in a message, if not in a column
SIZED = (str, bytes, list, tuple)  # Types of cells that may be empty

TOKEN = np.dtype("<i4")

MAX_TOKENS = 2**20  # Different tokens, at most; the largest published vocabularies have 262,144
BATCH = 1024  # Rows of a Parquet file that are held as objects at once
MOST_NAMED = 20  # Columns that a message names
LONGEST_CELL = 2**31 - 1  # Characters of a CSV cell; the default of the library is 131,072


class Rows(NamedTuple):
    texts: list[bytes]  # In UTF-8, or tokens of the type `TOKEN`
    tokens: bool
    labels: list[str]
    splits: list[SplitName]  # Empty without given splits
    names: list[str]  # The classes in order


def files_of(path: str) -> tuple[Stamp, ...]:
    if not os.path.isdir(path):  # noqa: PTH112 - Path's raises on a name that is too long
        return (stamp(path, "a table: " + ", ".join(SUFFIXES) + ", or a folder of such files"),)
    with system_errors(path):
        entries = sorted(entry for entry in Path(path).iterdir() if entry.name[0] != ".")
    if folders := [entry.name for entry in entries if entry.is_dir()]:
        raise UserError(f"{path} has a folder {folders[0]}, which is not read; move it away")
    files = [entry for entry in entries if _kind(entry)]
    if not files:
        raise UserError(f"{path} has no table ({', '.join(SUFFIXES)}); give another folder")
    if len(kinds := sorted({_kind(file) for file in files})) > 1:
        raise UserError(f"{path} has files of the kinds {', '.join(kinds)}; leave one kind there")
    return tuple(stamp(str(file), "its target") for file in files)


@lru_cache(maxsize=1)  # a run builds its task several times
def read_rows(files: tuple[Stamp, ...], columns: tuple[str, str, str], quoted: bool) -> Rows:
    # Without a last column, the name of each of several files begins with its split.
    used = [column for column in columns if column]
    of_files = [] if columns[2] or len(files) == 1 else _splits_of([file for file, *_ in files])
    readers: Mapping[str, Callable[[Path, Sequence[str]], Iterator[Sequence[Any]]]] = {
        ".csv": partial(_delimited, separator=",", quoted=True),
        ".tsv": partial(_delimited, separator="\t", quoted=quoted),
        ".jsonl": _json, ".ndjson": _json, ".parquet": _parquet,
    }  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    splits: list[SplitName] = []
    types: dict[str, type] = {}
    for number, (file, *_) in enumerate(files):
        before = len(rows)
        with decoding(file, "correct it, and save it as UTF-8"):
            if (kind := _kind(file)) not in readers:
                forms = f"{', '.join(SUFFIXES)}, or compressed as .csv.gz"
                raise UserError(f"{file} is not a table: {forms}; convert or rename it")
            for cells in readers[kind](file, used):
                rows.append(_row(f"{file}, row {len(rows) - before + 1}", used, cells, types))
        if len(rows) == before:
            raise UserError(f"{file} has no rows; give a header and rows of texts and labels")
        splits += of_files[number : number + 1] * (len(rows) - before)
    texts, labels, *names = map(list, zip(*rows, strict=True))
    owner = files[0][0] if len(files) == 1 else files[0][0].parent
    if names:
        splits = _splits_in(owner, repr(columns[2]), *names)
    return Rows(texts, types[columns[0]] is list, labels, splits, class_order(owner, labels))


def _kind(file: Path) -> str:
    found = re.search(r"(\.(csv|tsv|jsonl|ndjson))(\.(gz|bz2|xz))?$|\.parquet$", file.name.lower())
    return (found[1] or found[0]) if found else ""


def _splits_of(files: Sequence[Path]) -> list[SplitName]:
    heads = [re.split(r"[-_.]", file.name, maxsplit=1)[0] for file in files]
    if not SPLIT_NAMES.keys() & {*heads}:
        return []
    for file, head in zip(files, heads, strict=True):
        if head not in SPLIT_NAMES:
            raise UserError(f"{file} begins with no split ({', '.join(SPLIT_NAMES)}); rename it")
    return _splits_in(files[0].parent, FILE_NAMES, heads)


def _splits_in(owner: Path, place: str, values: Sequence[str]) -> list[SplitName]:
    for value in sorted({*values} - SPLIT_NAMES.keys()):
        raise UserError(f"{owner} has {value!r} in {place}; give one of {', '.join(SPLIT_NAMES)}")
    if len(dev := sorted({value for value in values if SPLIT_NAMES[value] == "dev"})) > 1:
        raise UserError(f"{owner} has both {' and '.join(dev)} in {place}; choose one name")
    return [SPLIT_NAMES[value] for value in values]


def _row(where: str, columns: Sequence[str], cells: Sequence[Any], types: dict[str, type]) -> Any:
    for place, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        kind, problem = type(cell), ""
        if cell is None or cell != cell or (not cell and kind in SIZED):
            problem = "nothing; fill or remove that row"
        elif types.setdefault(column, kind) is not kind:
            problem = f"{kind.__name__}, {types[column].__name__} before; give one type"
        elif place and not isinstance(cell, LABELS):
            problem = f"{kind.__name__}; give a column of texts, numbers or dates"
        if problem:
            raise UserError(f"{where} has in {column!r} {problem}")
    match cells[0]:
        case str() as text:
            content = text.encode()
        case bytes() as text:
            content = text.decode().encode()
        case [*tokens] if all(type(t) is int and 0 <= t < MAX_TOKENS for t in tokens):
            content = np.array(tokens, TOKEN).tobytes()
        case other:
            kinds = f"{type(other).__name__}; give texts, or lists of integers below {MAX_TOKENS}"
            raise UserError(f"{where} has in {columns[0]!r} {kinds}")
    return content, *map(str, cells[1:])


def _opened(file: Path, newline: str | None) -> Any:
    opener = COMPRESSED.get(file.suffix.lower(), open)
    return opener(file, "rt", encoding="utf-8-sig", newline=newline)


def _delimited(
    file: Path, columns: Sequence[str], *, separator: str, quoted: bool
) -> Iterator[Sequence[str]]:
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    csv.field_size_limit(LONGEST_CELL)
    with _opened(file, newline="") as lines:
        rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
        try:
            header = next(rows, [])
            if not header:
                raise UserError(f"{file} is empty; give a header and rows of texts and labels")
            chosen = _indices(file, header, columns)
            for row in filter(None, rows):
                where = f"{file}, line {rows.line_num}"
                if len(row) != len(header):
                    count = f"has {len(row)} cells, its header {len(header)}"
                    raise UserError(f"{where} {count}; quote texts with the separator")
                if separator == "\t" and any("\n" in cell or "\r" in cell for cell in row):
                    raise UserError(f"{where} is within a cell; remove the break, or give CSV")
                yield [row[index] for index in chosen]
        except csv.Error as error:
            where = f"{file} cannot be read in line {rows.line_num} ({error})"
            raise UserError(f"{where}; double the quotation marks within quotes") from error


def _indices(file: Path, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    count = Counter(header)
    if repeated := [name for name in count if name and count[name] > 1]:
        raise UserError(f"{file} has two columns {repeated[0]!r}; remove or rename one")
    for column in columns:
        if column not in count:
            more = f" and {len(header) - MOST_NAMED} more" * (len(header) > MOST_NAMED)
            names = f"{', '.join(header[:MOST_NAMED])}{more}"
            raise UserError(f"{file} has no column {column!r}, only {names}; name the one to use")
    return [header.index(column) for column in columns]


def _json(file: Path, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
    with _opened(file, newline=None) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=tuple)  # so that no key is lost
                if not isinstance(row, tuple):
                    raise ValueError("no object")
            except ValueError as error:
                raise UserError(
                    f"{file} has no JSON in line {number} ({first_line(error)}); correct it"
                ) from error
            _indices(file, [key for key, _ in row], columns)
            cells = dict(row)
            yield [cells[column] for column in columns]


def _parquet(file: Path, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
    pyarrow: Any = import_extra("a Parquet file", "pyarrow.parquet", "parquet")
    with pyarrow.ParquetFile(file) as content:
        _indices(file, content.schema_arrow.names, columns)
        for batch in content.iter_batches(BATCH, columns=[*columns]):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
