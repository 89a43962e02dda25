"""Time series: the ten UEA sets in Table 1 of Chen et al. (2023), each a task, and a user's own.

Bagnall et al., "The UEA multivariate time series classification archive, 2018", arXiv 1811.00075.
`sets.csv` has a row for each set, with the sizes of the archive: train has four fifths of TRAIN.

Dev, normalisation and length: docs/decisions/data.md. A missing value is interpolated
linearly within its channel of its series, and has the nearest value beyond both ends; a channel
without any value has the channel's mean in train.
"""

import csv
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64, UInt8

from tasks.baselines import rocket
from tasks.contract import Baseline, Split, SplitName, Task
from tasks.data import files as data_files
from tasks.data.corpus import DEV_SEED, MAX_CLASSES, official
from tasks.data.files import Member, SourceFiles, Stamp, damaged, decoding, stamp, system_errors
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from tasks.uea.ts_format import Recordings, read
from zoo.registry import UserError, require_at_least, require_memory

DEV_SHARE = 5  # One in so many examples of the official TRAIN file is in dev
SHOWN_CHANNELS, SHOWN_POINTS = 3, 12  # What is shown of a series as text

FILE = re.compile(r"([^.].*)_(TRAIN|TEST)\.ts(?:\.xz)?", re.IGNORECASE)

OPTIONS = ("max_len", "train", "dev", "test")

Series = list[Float32[np.ndarray, "_ f"]]
PerChannel = Float64[np.ndarray, " f"]


class Signals(Task):
    vocabulary = 0

    def load(self, split: SplitName) -> Split:
        series, targets = self._filled("train")
        mean, deviation = scale_of(series)
        if split != "train":
            series, targets = self._filled(split)
        what = f"{len(series)} series of {self.max_len:.3g} points"
        require_memory(4 * len(series) * self.max_len * self.channels, what, "lower their number")
        sequences = torch.zeros(len(series), self.max_len, self.channels)
        for row, values in zip(sequences, series, strict=True):
            row[: len(values)] = torch.from_numpy(normalised(values, mean, deviation))
        lengths = torch.tensor([len(values) for values in series], dtype=torch.int32)
        return Split.single(sequences, lengths, torch.from_numpy(targets.astype(np.int64)))

    def show(self, split: Split, example: int) -> list[str]:
        sequence = int(split.sequence_ids[example, 0])
        signal = split.sequences[sequence, : int(split.lengths[sequence])]
        more = " …" if len(signal) > SHOWN_POINTS else ""
        points = signal[:SHOWN_POINTS, :SHOWN_CHANNELS].T.tolist()
        return [" ".join(f"{value:.2f}" for value in channel) + more for channel in points]

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        return rocket.MODELS

    def subset(self, split: SplitName, indices: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " c"]:
        return indices

    @abstractmethod
    def _series(self, part: SplitName) -> tuple[Series, UInt8[np.ndarray, " n"]]:
        """The series of TRAIN or of TEST, and their classes."""

    def _filled(self, split: SplitName) -> tuple[Series, UInt8[np.ndarray, " n"]]:
        series, targets = self._series(official(split))
        indices = np.arange(len(targets)) if split == "test" else hold_out(targets)[split]
        chosen = self.subset(split, indices)
        return [filled(series[index][: self.max_len]) for index in chosen], targets[chosen]


@dataclass(frozen=True, kw_only=True)
class SeriesTask(ImportedTask, Signals):
    """A set of the archive; its subclasses give its name and sizes.

    Attributes:
        max_len: time points to which a series is truncated.
        train, dev, test: series in the split of that name.
    """

    max_len: int
    train: int
    dev: int
    test: int

    def __post_init__(self) -> None:
        require_at_least(1, self.name, max_len=self.max_len)

    @classmethod
    def convert(cls, files: SourceFiles) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {}
        labels = set()
        for file in files:
            part = "train" if "_TRAIN" in file.name else "test"
            content = read(file)
            channels, classes = content.series[0].shape[1], len(content.labels)
            if (channels, classes) != (cls.channels, cls.classes):
                expected = f"{cls.channels} and {cls.classes} expected"
                found = f"has {channels} channels and {classes} classes, {expected}"
                raise damaged(file.location, found)
            lengths = [len(series) for series in content.series]
            arrays[f"{part}_values"] = np.concatenate(content.series)
            arrays[f"{part}_ends"] = np.cumsum(lengths, dtype=np.int64)
            arrays[f"{part}_targets"] = np.array(content.targets, np.uint8)
            labels.add(content.labels)
        if len(labels) > 1:
            raise UserError(f"{files.location} has other classes than TRAIN; get both again")
        return arrays

    def _series(self, part: SplitName) -> tuple[Series, UInt8[np.ndarray, " n"]]:
        fields = {"values": f"float32 v {self.channels}", "ends": "int64 s", "targets": "uint8 s"}
        values, ends, targets = self.arrays(fields, part)
        return np.split(values, ends[:-1]), targets


def hold_out(targets: UInt8[np.ndarray, " n"]) -> Mapping[str, Int64[np.ndarray, " count"]]:
    # Dev is every fifth example, sorted by class, at random within a class.
    keys = np.random.Generator(np.random.PCG64(DEV_SEED)).random(len(targets))
    order = np.lexsort((keys, targets))
    dev = order[DEV_SHARE // 2 :: DEV_SHARE][: len(targets) // DEV_SHARE]
    is_dev = np.isin(np.arange(len(targets)), dev)
    return {"train": np.flatnonzero(~is_dev), "dev": np.flatnonzero(is_dev)}


def filled(series: Float32[np.ndarray, "l f"]) -> Float32[np.ndarray, "l f"]:
    # An empty channel stays NaN; see the module.
    missing = np.isnan(series)
    if not missing.any():
        return series
    series, times = series.copy(), np.arange(len(series))
    for column, absent in zip(series.T, missing.T, strict=True):
        if absent.any() and not absent.all():
            column[absent] = np.interp(times[absent], times[~absent], column[~absent])
    return series


def scale_of(series: Series) -> tuple[PerChannel, PerChannel]:
    # The deviation of a constant channel is 1.
    values = np.concatenate(series).astype(np.float64)
    values[:, np.isnan(values).all(0)] = 0.0
    deviation = np.nanstd(values, axis=0)
    return np.nanmean(values, axis=0), np.where(deviation > 0, deviation, 1.0)


def normalised(
    series: Float32[np.ndarray, "l f"], mean: PerChannel, deviation: PerChannel
) -> Float32[np.ndarray, "l f"]:
    # A channel without values becomes 0.
    return np.nan_to_num((series.astype(np.float64) - mean) / deviation).astype(np.float32)


@tasks.register("series")
@dataclass(frozen=True, kw_only=True)
class SeriesFolder(Signals):
    """Time series of one channel or several, in `NAME_TRAIN.ts` and `NAME_TEST.ts` of a folder.

    TEST is test, which is read once; a fifth of TRAIN is dev. Missing values and normalisation: see
    the module.

    Attributes:
        path: the folder; each file may be compressed by xz.
        points: time points to which a series is truncated; 0 for those of the longest.
    """

    name = "series"
    version = 1

    path: str
    points: int = 0

    def __post_init__(self) -> None:
        require_at_least(0, self.name, points=self.points)
        train, test = _read(*_files(self.path))
        longest = max(map(len, train.series + test.series))
        self._derive(classes=len(train.labels), channels=train.series[0].shape[1])
        self._derive(max_len=min(self.points or longest, longest))

    def class_name(self, target: int) -> str:
        return _read(*_files(self.path))[0].labels[target]

    def _series(self, part: SplitName) -> tuple[Series, UInt8[np.ndarray, " n"]]:
        found = _read(*_files(self.path))[part == "test"]
        return found.series, np.array(found.targets, np.uint8)


def _files(path: str) -> tuple[Stamp, Stamp]:
    with system_errors(path):
        found = [(file, FILE.fullmatch(file.name)) for file in sorted(Path(path).iterdir())]
    files = [(file, match[1], match[2].upper()) for file, match in found if match]
    if sorted(part for *_, part in files) != ["TEST", "TRAIN"] or files[0][1] != files[1][1]:
        names = ", ".join(file.name for file, *_ in files) or "none"
        raise UserError(f"{path} needs NAME_TRAIN.ts and NAME_TEST.ts, it has {names}; give both")
    stamps = {part: stamp(str(file), "its target") for file, _, part in files}
    return stamps["TRAIN"], stamps["TEST"]


@lru_cache(maxsize=1)  # a run builds its task several times
def _read(train: Stamp, test: Stamp) -> tuple[Recordings, Recordings]:
    of_train, of_test = _recordings(train[0]), _recordings(test[0])
    forms = [(of.labels, of.series[0].shape[1]) for of in (of_train, of_test)]
    if forms[0] != forms[1]:
        differ = f"{forms[1]}, not {forms[0]}"
        raise UserError(f"{test[0]} has other classes or channels: {differ}; give both of one set")
    classes, count = len(of_train.labels), len(of_train.targets)
    if not 2 <= classes <= MAX_CLASSES:
        raise UserError(f"{train[0]} has {classes} classes; give 2 to {MAX_CLASSES} in @classLabel")
    if count < DEV_SHARE:
        raise UserError(f"{train[0]} has {count} series; give at least {DEV_SHARE}, one for dev")
    return of_train, of_test


def _recordings(file: Path) -> Recordings:
    with decoding(file, "correct it"), file.open("rb") as stream:
        return read(Member(file.name, str(file), stream))


def make_task(row: Mapping[str, str]) -> type[SeriesTask]:
    archive = row["archive"]
    sizes = {name: int(row[name]) for name in ("classes", "channels", *OPTIONS)}
    source = data_files.source_of(
        archive,
        title=f"{archive} of the UEA multivariate time series archive: {sizes['channels']} "
        f"channels, {sizes['classes']} classes",
        origin=f"https://www.timeseriesclassification.com/description.php?Dataset={archive}",
        terms="no single licence; cite Bagnall et al., arXiv 1811.00075",
        give=f"the folder of {archive}",
        pattern=rf"(?:uea_)?{re.escape(archive)}_(?:TRAIN|TEST)\.ts(?:\.xz)?",
        examples={"train": sizes["train"] + sizes["dev"], "test": sizes["test"]},
    )
    attributes = {
        "__doc__": row["description"], "__module__": __name__, "name": row["name"], "version": 1,
        "classes": sizes["classes"], "channels": sizes["channels"], "source": source,
    }  # fmt: skip
    task: Any = make_dataclass(
        archive.replace("-", ""), [(option, int, sizes[option]) for option in OPTIONS],
        bases=(SeriesTask,), namespace=attributes, frozen=True, kw_only=True,
    )  # fmt: skip
    return task


_TABLE = resources.files("tasks.uea").joinpath("sets.csv").read_text("utf-8")
for _row in csv.DictReader(_TABLE.splitlines()):
    tasks.register(_row["name"])(make_task(_row))
