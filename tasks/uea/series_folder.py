"""Series: a user's folder in the format of the UEA and UCR archives.

>>> import tasks
>>> task = tasks.create("series", path="GunPoint")
>>> train = task.load("train")
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from typing_extensions import override

from tasks.contract import SplitName
from tasks.data.corpus import MAX_CLASSES
from tasks.data.files import Member, Stamp, decoding, stamp, system_errors
from tasks.registry import tasks
from tasks.uea.series import DEV_SHARE, Series, Signals, filled, hold_out
from tasks.uea.ts_format import Recordings, read
from zoo.registry import UserError, require_at_least

FILE = re.compile(r"([^.].*)_(TRAIN|TEST)\.ts(?:\.xz)?", re.IGNORECASE)


@tasks.register("series")
@dataclass(frozen=True, kw_only=True)
class SeriesFolder(Signals):
    """Time series of one channel or several, in `NAME_TRAIN.ts` and `NAME_TEST.ts` of a folder.

    TEST is test, which is read once; a fifth of TRAIN is dev. Missing values and normalisation are
    those of the sets of the archive: see `tasks.uea.series`.

    Attributes:
        path: the folder; each file may be compressed by xz.
        points: time points to which a series is truncated; 0 for those of the longest.
    """

    name = "series"
    version = 1

    path: str
    points: int = 0

    def __post_init__(self) -> None:
        """Read the files; raise UserError where an option or a file cannot be used."""
        require_at_least(0, self.name, points=self.points)
        train, test = _read(*_files(self.path))
        longest = max(map(len, train.series + test.series))
        self._derive(
            classes=len(train.labels),
            channels=train.series[0].shape[1],
            max_len=min(self.points or longest, longest),
        )

    def class_name(self, target: int) -> str:
        """The name in the header."""
        return _read(*_files(self.path))[0].labels[target]

    @override
    def _filled(self, split: SplitName) -> tuple[Series, UInt8[np.ndarray, " n"]]:
        found = _read(*_files(self.path))[split == "test"]
        targets = np.array(found.targets, np.uint8)
        chosen = np.arange(len(targets)) if split == "test" else hold_out(targets)[split]
        return [filled(found.series[index][: self.max_len]) for index in chosen], targets[chosen]


def _files(path: str) -> tuple[Stamp, Stamp]:
    """The files of train and of test, each with what its content is cached by."""
    with system_errors(path):
        found = [(file, FILE.fullmatch(file.name)) for file in sorted(Path(path).iterdir())]
    files = [(file, match[1], match[2].upper()) for file, match in found if match]
    parts = sorted(part for *_, part in files)
    if parts != ["TEST", "TRAIN"] or files[0][1] != files[1][1]:
        names = ", ".join(file.name for file, *_ in files) or "none"
        raise UserError(
            f"{path} has of the files NAME_TRAIN.ts and NAME_TEST.ts of one set: {names}; give a "
            "folder with both"
        )
    of_part = {part: stamp(str(file), "its target") for file, _, part in files}
    return of_part["TRAIN"], of_part["TEST"]


@lru_cache(maxsize=1)  # a run builds its task several times
def _read(train: Stamp, test: Stamp) -> tuple[Recordings, Recordings]:
    of_train, of_test = _recordings(train[0]), _recordings(test[0])
    for what, first, other in (
        ("classes", of_train.labels, of_test.labels),
        ("channels", of_train.series[0].shape[1], of_test.series[0].shape[1]),
    ):
        if first != other:
            raise UserError(
                f"{test[0]} has other {what} than {train[0].name}: {other}, not {first}; give both "
                "of one set"
            )
    if not 2 <= len(of_train.labels) <= MAX_CLASSES:
        raise UserError(
            f"{train[0]} has {len(of_train.labels)} classes; give 2 to {MAX_CLASSES} in @classLabel"
        )
    if len(of_train.targets) < DEV_SHARE:
        raise UserError(
            f"{train[0]} has {len(of_train.targets)} series; give at least {DEV_SHARE}, one of "
            "them for dev"
        )
    return of_train, of_test


def _recordings(file: Path) -> Recordings:
    with decoding(file, "correct it"), file.open("rb") as stream:
        return read(Member(file.name, str(file), stream))
