"""The answers of a run, its predictions of test targets, by cluster: bits, or sums of values."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from harness.records.fields import Count, Frozen

Sums = NDArray[np.float64]

MOST_ANSWERS = 10**9
"""Answers of the largest test split that a record may have."""

MOST_CLUSTERS = 10**7
"""Clusters of the largest test split whose values a record may have."""


def _check_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("it is not base64") from error
    return text


class CorrectAnswers(Frozen):
    """The correct and the wrong answers of a test split, cluster by cluster.

    A cluster holds the answers that refer to one sequence: they depend on each other, so that the
    clusters, and not the answers, are a sample. Runs on the same test split have the same clusters
    and answers in the same order.

    Attributes:
        bits: base64 of a bit for each answer, 1 for a correct one, the first in the highest bit of
            the first byte; the unused bits of the last byte are 0.
        clusters: pairs of a number of answers and the number of successive clusters that have as
            many: `((8, 1000),)` for 1,000 sequences of 8 answers each.
    """

    kind: Literal["bits"] = "bits"
    bits: Annotated[str, AfterValidator(_check_base64)]
    clusters: Annotated[tuple[tuple[Count, Count], ...], Field(min_length=1)]

    @classmethod
    def pack(cls, correct: Sequence[bool], sizes: Sequence[int]) -> "CorrectAnswers":
        """Pack every answer in order of the clusters, whose numbers of answers are `sizes`."""
        edges = np.flatnonzero(np.diff(sizes, prepend=0, append=0))
        runs = zip(edges[:-1], np.diff(edges), strict=True)
        return cls(
            bits=base64.b64encode(np.packbits(np.asarray(correct, dtype=bool)).tobytes()).decode(),
            clusters=tuple((int(sizes[start]), int(count)) for start, count in runs),
        )

    @property
    def count(self) -> int:
        """The number of answers."""
        return sum(size * clusters for size, clusters in self.clusters)

    @property
    def correct(self) -> int:
        """The number of correct answers."""
        return int.from_bytes(base64.b64decode(self.bits)).bit_count()

    @property
    def mean(self) -> float:
        """The fraction of correct answers."""
        return self.correct / self.count

    def cluster_sizes(self) -> Sums:
        """The number of answers of each cluster, (c,)."""
        sizes, repeats = np.array(self.clusters, dtype=np.float64).T
        return np.repeat(sizes, repeats.astype(np.int64))

    def cluster_sums(self) -> Sums:
        """The number of correct answers of each cluster, (c,)."""
        packed = np.frombuffer(base64.b64decode(self.bits), dtype=np.uint8)
        answers, start, totals = np.unpackbits(packed, count=self.count), 0, []
        for size, clusters in self.clusters:
            part = answers[start : start + size * clusters].reshape(clusters, size)
            totals.append(part.sum(1, dtype=np.float64))
            start += size * clusters
        return np.concatenate(totals)

    @model_validator(mode="after")
    def _agree(self) -> "CorrectAnswers":
        count, packed = self.count, base64.b64decode(self.bits)
        if count > MOST_ANSWERS:
            raise ValueError(f"{count:,} answers are more than {MOST_ANSWERS:,}")
        if len(packed) != -(-count // 8):
            raise ValueError(f"{len(packed)} bytes do not hold {count} answers, one bit each")
        if int.from_bytes(packed) % 2 ** (-count % 8):
            raise ValueError(f"bits after the last of {count} answers are not 0")
        return self


class ClusterValues(Frozen):
    """The sum of a value of each answer, cluster by cluster, such as the articles of a text.

    Runs on the same test split have the same clusters in the same order.

    Attributes:
        sizes: the number of answers of each cluster.
        sums: the sum of their values: cross-entropies in nats, or the return of an episode.
    """

    kind: Literal["values"] = "values"
    sizes: Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_CLUSTERS)]
    sums: tuple[Annotated[float, Field(gt=-1e15, lt=1e15)], ...]

    @property
    def count(self) -> int:
        """The number of answers."""
        return sum(self.sizes)

    @property
    def mean(self) -> float:
        """The mean value of an answer."""
        return sum(self.sums) / self.count

    def cluster_sizes(self) -> Sums:
        """The number of answers of each cluster, (c,)."""
        return np.array(self.sizes, dtype=np.float64)

    def cluster_sums(self) -> Sums:
        """The sum of the values of each cluster, (c,)."""
        return np.array(self.sums, dtype=np.float64)

    @model_validator(mode="after")
    def _agree(self) -> "ClusterValues":
        if len(self.sizes) != len(self.sums):
            raise ValueError("sizes and sums have one number for each cluster")
        return self


Answers = Annotated[CorrectAnswers | ClusterValues, Field(discriminator="kind")]
"""Both forms have `count`, `mean`, `cluster_sizes()` and `cluster_sums()`."""
