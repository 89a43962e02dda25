"""The predictions of a run for test targets, by cluster: bits, or sums of values."""

import base64
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from harness.records.fields import Count, Frozen

Sums = NDArray[np.float64]
MOST_ANSWERS = 10**9  # Answers of the largest test split that a record may have
MOST_CLUSTERS = 10**7  # Clusters of the largest test split whose values a record may have


class CorrectAnswers(Frozen):
    """Whether each answer of a test split is correct, cluster by cluster.

    The answers about one sequence depend on each other: they are a cluster, and clusters are the
    sample. Runs on the same test split have the same clusters.
    """

    kind: Literal["bits"] = "bits"
    bits: str  # Base64 of one bit an answer, 1 if correct, highest bit of a byte first; the rest 0
    # Pairs of a number of answers and the count of successive clusters of that size
    clusters: Annotated[tuple[tuple[Count, Count], ...], Field(min_length=1)]
    _packed: bytes = PrivateAttr()

    @classmethod
    def pack(cls, correct: Sequence[bool], sizes: Sequence[int]) -> "CorrectAnswers":
        edges = np.flatnonzero(np.diff(sizes, prepend=0, append=0))
        runs = zip(edges[:-1], np.diff(edges), strict=True)
        return cls(
            bits=base64.b64encode(np.packbits(np.asarray(correct, dtype=bool)).tobytes()).decode(),
            clusters=tuple((int(sizes[start]), int(count)) for start, count in runs),
        )

    @property
    def count(self) -> int:
        return sum(size * clusters for size, clusters in self.clusters)

    @property
    def mean(self) -> float:
        return int.from_bytes(self._packed).bit_count() / self.count

    @property
    def correct(self) -> NDArray[np.uint8]:
        packed = np.frombuffer(self._packed, dtype=np.uint8)
        return np.unpackbits(packed, count=self.count)

    def by_position(self) -> Sums | None:
        # The accuracy at each place of a cluster; None where clusters differ in size.
        (size, _), *others = self.clusters
        return None if others else self.correct.reshape(-1, size).mean(0)

    def cluster_sizes(self) -> Sums:
        return _sizes(self.clusters)[0]

    def cluster_sums(self) -> Sums:
        return np.frombuffer(self._counts, dtype=np.int32).astype(np.float64)

    @cached_property
    def _counts(self) -> bytes:
        # Not an array, which has no single truth of equality.
        counts = np.add.reduceat(self.correct, _sizes(self.clusters)[1], dtype=np.int32)
        return counts.tobytes()

    def model_post_init(self, _: Any) -> None:
        count, packed = self.count, base64.b64decode(self.bits, validate=True)
        self._packed = packed
        if count > MOST_ANSWERS:
            raise ValueError(f"{count:,} answers are more than {MOST_ANSWERS:,}")
        if len(packed) != -(-count // 8):
            raise ValueError(f"{len(packed)} bytes do not hold {count} answers, one bit each")
        if int.from_bytes(packed) % 2 ** (-count % 8):
            raise ValueError(f"bits after the last of {count} answers are not 0")


@cache
def _sizes(clusters: tuple[tuple[int, int], ...]) -> tuple[Sums, NDArray[np.int64]]:
    # Of each cluster, and the index of its first answer.
    sizes = np.repeat(*np.array(clusters, dtype=np.int64).T)
    return sizes.astype(np.float64), np.cumsum(sizes) - sizes


class ClusterValues(Frozen):
    """Sums of values of predictions, cluster by cluster, such as the articles of a text.

    Values are cross-entropies in nats, or returns of episodes; `sizes` count predictions.
    """

    kind: Literal["values"] = "values"
    sizes: Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_CLUSTERS)]
    sums: tuple[Annotated[float, Field(gt=-1e15, lt=1e15)], ...]

    @property
    def count(self) -> int:
        return sum(self.sizes)

    @property
    def mean(self) -> float:
        return sum(self.sums) / self.count

    def cluster_sizes(self) -> Sums:
        return np.array(self.sizes, dtype=np.float64)

    def cluster_sums(self) -> Sums:
        return np.array(self.sums, dtype=np.float64)

    def model_post_init(self, _: Any) -> None:
        if len(self.sizes) != len(self.sums):
            raise ValueError("sizes and sums have one number for each cluster")


# Both forms have `count`, `mean`, `cluster_sizes()` and `cluster_sums()`.
Answers = Annotated[CorrectAnswers | ClusterValues, Field(discriminator="kind")]
