"""Files of records: one JSON file a record, or JSON lines, written atomically."""

import errno
import glob
import hashlib
import os
import platform
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import psutil

from zoo.registry import UserError, in_one_line

# The start of the file of a record: 16 digits of the SHA-256 of all other lines.
CHECKSUM = re.compile(r'\{\n "checksum": "([0-9a-f]{16})",\n')
# The start of a line: the checksum of the rest, the kind of record, its name.
HEAD = re.compile(
    r'\{"checksum":"([0-9a-f]{16})",("kind":"(run|cost|study|baselines|certificate|shallow|claim)",'
    r'"name":"([^"\\]+)",(.*))'
)
EDITED = "it was edited: its checksum is of other content"
MOST_BYTES = 2**28  # The largest file that is read: a thousand times a row


class Text(NamedTuple):
    """The text of a record, without checksum, kind and name: a line of a file, or a file (line 0).

    Text that is not a record is empty and has a `problem`; its kind `run` reports it once.
    """

    file: Path
    line: int
    kind: str
    name: str
    text: str
    problem: str


def with_checksum(text: str) -> str:
    return text.replace("{\n", f'{{\n "checksum": "{_checksum(text)}",\n', 1)


def line_of(kind: str, name: str, text: str) -> str:
    rest = f'"kind":"{kind}","name":"{name}",{text[1:]}'
    return f'{{"checksum":"{_checksum(rest)}",{rest}\n'


def read_file(path: Path, kind: str) -> Text:
    content, problem = _content(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return Text(path, 0, kind, path.stem, "", in_one_line(error))
    if found := CHECKSUM.match(text):
        text = "{\n" + text[found.end() :]
        problem = "" if found[1] == _checksum(text) else EDITED
    problem = problem if found else problem or "it has no checksum, like files of earlier versions"
    return Text(path, 0, kind, path.stem, text, problem)


def read_lines(store: Path) -> Iterator[Text]:
    # Other files, and files in a folder of a folder, are a text with a problem.
    for file in _line_files(store):
        yield from file_lines(file)
    for file in sorted(store.glob("[!.]*/[!.]*/[!.]*.jsonl")):
        if file.parent.name != "runs":  # a store in the store
            yield _no_record(file, 0, "it is not read: it is deeper than a folder of the store")


def find_line(store: Path, kind: str, name: str) -> Text | None:
    for file in reversed(_line_files(store)):
        if found := _by_name(file, *_version(file)).get((kind, name)):
            return found
    return None


def _line_files(store: Path) -> list[Path]:
    files: list[Path] = []
    if store.is_dir():
        with os.scandir(store) as entries:
            for entry in entries:
                if entry.name[0] == ".":
                    continue
                if entry.name.endswith(".jsonl"):
                    files.append(Path(entry.path))
                elif not entry.name.endswith(".json") and entry.is_dir():
                    files += Path(entry.path).glob("[!.]*.jsonl")
    return sorted(files)


def file_lines(file: Path) -> tuple[Text, ...]:
    return _lines(file, *_version(file))


def _version(file: Path) -> tuple[int, int]:
    try:
        at = file.stat()
    except OSError:
        return 0, 0
    return at.st_mtime_ns, at.st_size


@lru_cache(maxsize=4096)
def _lines(file: Path, modified: int, size: int) -> tuple[Text, ...]:
    content, problem = _content(file)
    if problem:
        return (_no_record(file, 0, problem),)
    found, others = list[Text](), list[int]()
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        if head := HEAD.fullmatch(line):
            checksum, rest, kind, name, text = head.groups()
            problem = "" if checksum == _checksum(rest) else EDITED
            found.append(Text(file, number, kind, name, f"{{{text}", problem))
        elif line:
            others.append(number)
    if others or not found:
        more = f"; {len(others) - 1} more are none either" * (len(others) > 1)
        problem = f"it is not a line of a record{more}" if others else "it is empty"
        found.append(_no_record(file, others[0] if others else 0, problem))
    return tuple(found)


@lru_cache(maxsize=4096)
def _by_name(file: Path, modified: int, size: int) -> Mapping[tuple[str, str], Text]:
    return {(line.kind, line.name): line for line in _lines(file, modified, size)}


def _no_record(file: Path, line: int, problem: str) -> Text:
    return Text(file, line, "run", f"{file} {line}", "", problem)


def _content(file: Path) -> tuple[bytes, str]:
    try:
        # Opening a named pipe, or reading a device, would block forever.
        if not stat.S_ISREG((at := file.stat()).st_mode):
            return b"", "it is not a regular file"
        if at.st_size > MOST_BYTES:
            return b"", f"it has over {MOST_BYTES >> 20} MiB, more than a file of records"
        return file.read_bytes(), ""
    except OSError as error:
        return b"", f"it cannot be read: {error.strerror}"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def usable(what: object, verb: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_file = isinstance(error, FileExistsError)
        reason = f"{error.filename} is a file" if is_file else error.strerror
        message = f"{what or error.filename} cannot be {verb} ({reason}); {remedy}"
        raise UserError(message) from error


def require_writable(folder: Path, what: str, remedy: str) -> None:
    with usable(what, "written", remedy):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def write_atomic(path: Path, content: bytes) -> Path:
    # Readers see the old file or the new one. A killed process leaves a `.partial` file.
    return write_all({path: content})[0]


def save(path: Path, content: bytes, what: str) -> Path:
    with usable(f"{what} {path}", "written", "free space, or give another --store"):
        return write_atomic(path, content)


def write_all(contents: Mapping[Path, bytes]) -> list[Path]:
    # All files change, or none; an OSError has the `filename` that cannot be written.
    process = f"{platform.node()}.{os.getpid()}.partial"
    partial = {path: path.with_name(f".{path.name}.{process}") for path in contents}
    path = Path()
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        for path in contents:
            partial[path].replace(path)
    except BaseException as error:
        for hidden in partial.values():
            hidden.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    return list(contents)


def within(folder: Path, files: Mapping[str, bytes]) -> dict[Path, bytes]:
    return {folder / name: content for name, content in files.items()}


def write_pages(files: Mapping[Path, bytes]) -> list[Path]:
    for folder in {file.parent for file in files}:
        remove_partial(folder)
    with usable("", "written", "nothing is changed; free space, or give another folder"):
        return write_all(files)


def remove_partial(folder: Path) -> None:
    for path in folder.rglob(f".*.{glob.escape(platform.node())}.*.partial"):
        process = path.name.split(".")[-2]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            path.unlink(missing_ok=True)
