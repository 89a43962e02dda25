"""The files that data sets are made from, as `sources.toml` describes them, and their verification.

A source comes in one or more layouts: files in a folder, which may also be packed as a tar archive.
"""

import hashlib
import stat
import tomllib
from collections.abc import Mapping
from importlib import resources
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath

import numpy as np
from pydantic import BaseModel

from zoo.registry import UserError

UNPUBLISHED = "unpublished"


class File(BaseModel, frozen=True, extra="forbid"):
    """One file of a layout, or a folder whose files can only be verified after conversion.

    Of a folder all files are read, those in its folders too.

    Attributes:
        name: its usual name, with the folders of the layout that contain it.
        size: bytes; 0 where unpublished.
        digest: `ALGORITHM:HEX`, or `unpublished`.
        mirrors: addresses to download it from, in order; none where it cannot be verified.
    """

    name: str
    size: int = 0
    digest: str = UNPUBLISHED
    mirrors: tuple[str, ...] = ()

    def verify_size(self, size: int, location: str) -> None:
        """Raise UserError where the file at `location` has another size."""
        if self.size and size != self.size:
            raise UserError(f"{location} has {size} bytes, {self.size} expected; get it again")

    def verify_digest(self, stream: BufferedReader | BytesIO, location: str) -> None:
        """Read `stream`, at `location`, to its end; raise UserError on another content."""
        if self.digest == UNPUBLISHED:
            return
        algorithm, expected = self.digest.split(":")
        actual = hashlib.file_digest(stream, algorithm).hexdigest()
        if actual != expected:
            raise UserError(
                f"{location} has {algorithm.upper()} {actual}, {expected} expected; get it again"
            )

    def matches(self, path: Path) -> bool:
        """Whether `path` has the name or the size of this file."""
        return path.name == self.name or (self.size > 0 and path.stat().st_size == self.size)


class Archive(File, frozen=True):
    """A published tar or zip archive."""


class Layout(BaseModel, frozen=True, extra="forbid"):
    """A form in which a source is distributed.

    Attributes:
        name: selects the reader of the files.
        files: its files.
        folders: where the files may be, below the folder that a user names.
        archives: the files in one archive; several where an archive has several names.
    """

    name: str
    files: tuple[File, ...]
    folders: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()

    @property
    def description(self) -> str:
        """The folder, archive or files to give, for a message."""
        packed = [*self.folders[:1], *(archive.name for archive in self.archives[:1])]
        return " or ".join(packed) or " and ".join(file.name for file in self.files)

    def member(self, name: str) -> tuple[File, str] | None:
        """The file that an archive's member `name` is, and its name in the layout, or None."""
        path = PurePosixPath(name)
        for file in () if path.name.startswith(".") else self.files:
            parts = PurePosixPath(file.name).parts
            if path.parts[-len(parts) :] == parts:
                return file, file.name
            for folder in path.parents:
                if folder.parts[-len(parts) :] == parts:
                    return file, f"{file.name}/{path.relative_to(folder)}"
        return None


class Source(BaseModel, frozen=True, extra="forbid"):
    """What a task's data are made from; see `sources.toml`.

    Attributes:
        title: what the data are.
        origin: address of the public original.
        terms: licence, and whom to cite.
        examples: their number, by official split.
        arrays: SHA-256 of the bytes of every array that is cached, the same for all layouts; empty
            where unpublished.
        layouts: the forms in which the data are distributed.
    """

    title: str
    origin: str
    terms: str
    examples: Mapping[str, int]
    arrays: Mapping[str, str]
    layouts: tuple[Layout, ...]

    @property
    def description(self) -> str:
        """What to give, for a message."""
        return ", or ".join(layout.description for layout in self.layouts)

    @property
    def public(self) -> Archive | None:
        """The archive that can be downloaded and verified, if there is one."""
        archives = (archive for layout in self.layouts for archive in layout.archives)
        return next((archive for archive in archives if archive.mirrors), None)

    @property
    def downloads(self) -> tuple[File, ...]:
        """What to download: the public archive, else all files of a layout; empty for nothing."""
        if self.public:
            return (self.public,)
        layouts = (layout.files for layout in self.layouts)
        return next((files for files in layouts if all(file.mirrors for file in files)), ())

    def verify(self, arrays: Mapping[str, np.ndarray], location: str) -> None:
        """Raise UserError on another number of examples, or another digest of an array.

        `arrays` were made from the files at `location`; `SPLIT_targets` has one item per example.
        """
        for split, count in self.examples.items():
            actual = len(arrays[f"{split}_targets"])
            if actual != count:
                raise UserError(
                    f"{location} contains {actual} examples in {split}, {count} expected; "
                    "get it again"
                )
        for name, expected in self.arrays.items():
            data = BytesIO(arrays[name].tobytes())
            File(name=name, digest=f"sha256:{expected}").verify_digest(
                data, f"{name} made from {location}"
            )


def source_of(task: str) -> Source:
    """The entry of an imported task in `sources.toml`."""
    text = resources.files("tasks.data").joinpath("sources.toml").read_text("utf-8")
    return Source.model_validate(tomllib.loads(text)[task])


def unreadable(path: object, error: OSError) -> UserError:
    """The error for a path that the system cannot read."""
    return UserError(f"{path} cannot be read ({error.strerror}); give another PATH")


def require_regular(path: Path) -> None:
    """Raise UserError where `path` exists and is neither a regular file nor a link to one.

    Opening a named pipe would block for ever.
    """
    try:
        # One call: another process may remove the file at any time.
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return  # Whoever opens it says why it cannot be read.
    if not regular:
        raise UserError(f"{path} is not a regular file; remove it or give another PATH")
