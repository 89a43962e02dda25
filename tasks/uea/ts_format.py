"""Reading `.ts` files: multivariate time series, each with a class.

Lines that begin with `#` or `%` are comments. A header of lines `@key value` ends with `@data`; its
keys are read in lower case, since archives write both `@classLabel` and `@classlabel`. Each line
after it is one series: its channels are separated by `:`, the values of a channel by `,`, and the
last part is the class. `?` and `NaN` are missing values. A byte-order mark is ignored.

Series may have different lengths; the channels of one series may not. Time stamps are rejected:
none of the ten sets has them.
"""

import io
import lzma
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from tasks.data.corpus import class_order
from tasks.data.files import Member, damaged
from zoo.registry import UserError

COMMENTS = ("#", "%")
MISSING = "?"


class Recordings(NamedTuple):
    series: list[Float32[np.ndarray, "_ f"]]  # NaN for a missing value
    targets: list[int]  # Indices in `labels`
    labels: tuple[str, ...]


def read(file: Member) -> Recordings:
    if file.name.endswith(".xz"):
        file = file._replace(stream=io.BytesIO(lzma.decompress(file.stream.read())))
    lines = _text(file)
    labels = _labels(lines, file.location)
    recordings = Recordings([], [], labels)
    for location, line in lines:
        *channels, label = line.split(":")
        if (name := label.strip()) not in labels:
            raise damaged(location, f"ends in the class {name[:20]!r}, which is not in @classLabel")
        recordings.series.append(_series(channels, location))
        recordings.targets.append(labels.index(name))
        first, latest = (recordings.series[i].shape[1] for i in (0, -1))
        if first != latest:
            raise damaged(location, f"has {latest} channels, the first series has {first}")
    if not recordings.series:
        raise damaged(file.location, "has no series after @data")
    return recordings


def _text(file: Member) -> Iterator[tuple[str, str]]:
    for location, line in file.lines():
        # Comments of published files have damaged characters; anything else is ASCII.
        text = line.decode("utf-8", "replace").removeprefix("\ufeff").strip()
        if text and not text.startswith(COMMENTS):
            yield location, text


def _labels(lines: Iterable[tuple[str, str]], location: str) -> tuple[str, ...]:
    header: dict[str, list[str]] = {}
    for line_location, line in lines:
        key, *values = line.split()
        if not key.startswith("@"):
            raise damaged(line_location, "is neither a key such as @data nor a comment")
        if key.lower() == "@data":
            if values:
                raise damaged(line_location, "has values after @data; a series is a line below it")
            break
        header[key.lower()] = values
    else:
        raise damaged(location, "has no line @data")
    flag, *labels = header.get("@classlabel", ["false"])
    if flag.lower() != "true" or not labels:
        raise UserError(f"{location} names no classes in @classLabel; give a set with classes")
    if header.get("@timestamps", ["false"])[0].lower() != "false":
        raise UserError(f"{location} has time stamps, which are not read; give a set without")
    if len(class_order(location, labels)) < len(labels) or "\ufffd" in "".join(labels):
        raise UserError(f"{location} has a repeated class or one that is not UTF-8; correct it")
    return tuple(labels)


def _series(channels: list[str], location: str) -> Float32[np.ndarray, "l f"]:
    try:
        if any("_" in channel or not channel.isascii() for channel in channels):
            raise ValueError("other characters than those of ASCII numbers")
        texts = [channel.replace(MISSING, "nan").split(",") for channel in channels]
        with np.errstate(over="ignore"):  # too large a number becomes infinite
            columns = [np.array(values, np.float32) for values in texts]
    except ValueError as error:
        raise damaged(location, f"has a value that is no number ({error})") from error
    lengths = sorted({len(column) for column in columns})
    if len(lengths) != 1:
        raise damaged(location, f"has channels of {' and '.join(map(str, lengths)) or 'no'} values")
    series = np.stack(columns, axis=1)
    if np.isinf(series).any():
        raise damaged(location, "has an infinite value")
    return series
