"""The files that data are imported from, and the proof that a given file is one of them."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from zoo.registry import Refused


@dataclass(frozen=True, kw_only=True)
class File:
    """What is known of one file.

    Attributes:
        name: its usual name.
        size: bytes, as packed.
        sha256: of the packed file, in hexadecimal.
        rows: examples, by the official split that they belong to.
        contents: SHA-256 of each part that is inside.
    """

    name: str
    size: int
    sha256: str
    rows: Mapping[str, int]
    contents: Mapping[str, str]

    def read(self, path: Path) -> bytes:
        """The bytes of `path`, if they are this file's.

        Raises:
            Refused: it is missing, unreadable, of another size, or differs in content.
        """
        try:
            size = path.stat().st_size
            if size != self.size:
                raise Refused(f"{path} has {size} bytes, {self.size} expected; get it again")
            packed = path.read_bytes()
        except OSError as error:
            raise Refused(f"{path} cannot be read ({error.strerror}); give another PATH") from error
        found = hashlib.sha256(packed).hexdigest()
        if found != self.sha256:
            raise Refused(f"{path} has SHA-256 {found}, {self.sha256} expected; get it again")
        return packed

    def verify(self, part: str, data: bytes) -> None:
        """Refuse a part whose bytes are not the known ones.

        Raises:
            Refused: its SHA-256 is another.
        """
        found = hashlib.sha256(data).hexdigest()
        if found != self.contents[part]:
            raise Refused(
                f"{part} in {self.name} has SHA-256 {found}, {self.contents[part]} expected; "
                "get it again"
            )


@dataclass(frozen=True, kw_only=True)
class Source:
    """The known files of a task.

    Attributes:
        title: what they hold.
        origin: address of the public original.
        terms: licence, and whom to cite.
        files: each of them.
    """

    title: str
    origin: str
    terms: str
    files: tuple[File, ...]

    def locate(self, path: Path) -> list[Path]:
        """Where the files are: in the folder `path`, or `path` itself where there is one file only.

        Raises:
            Refused: `path` does not exist, or is one file of several.
        """
        if path.is_dir():
            return [path / file.name for file in self.files]
        if not path.exists():
            raise Refused(f"{path} does not exist; give the folder of {self.listing}")
        if len(self.files) > 1:
            raise Refused(f"{path} is one file of several; give the folder of {self.listing}")
        return [path]

    @property
    def listing(self) -> str:
        """The names of the files, for a message."""
        return " and ".join(file.name for file in self.files)


def source_of(task: str) -> Source:
    """What `sources.toml` says of an imported task."""
    known = tomllib.loads(resources.files("tasks").joinpath("sources.toml").read_text("utf-8"))[
        task
    ]
    files = tuple(File(**file) for file in known.pop("files"))
    return Source(files=files, **known)
