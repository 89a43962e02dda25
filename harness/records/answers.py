"""Which answers of the test split a run gave correctly: one bit for each."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from harness.records.spec import Count, Frozen

MOST_ANSWERS = 10**9
"""Answers of the largest test split that a record may have."""


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

    bits: Annotated[str, AfterValidator(_check_base64)]
    clusters: Annotated[tuple[tuple[Count, Count], ...], Field(min_length=1)]

    @classmethod
    def pack(cls, correct: Sequence[bool], sizes: Sequence[int]) -> "CorrectAnswers":
        """From every answer in order of the clusters, and the number of answers of each cluster."""
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
    def sizes(self) -> NDArray[np.int64]:
        """The number of answers of each cluster, (c,)."""
        sizes, repeats = np.array(self.clusters, dtype=np.int64).T
        return np.repeat(sizes, repeats)

    def correct_by_cluster(self) -> NDArray[np.int64]:
        """The number of correct answers of each cluster, (c,)."""
        packed = np.frombuffer(base64.b64decode(self.bits), dtype=np.uint8)
        answers, start, totals = np.unpackbits(packed, count=self.count), 0, []
        for size, clusters in self.clusters:
            part = answers[start : start + size * clusters].reshape(clusters, size)
            totals.append(part.sum(1, dtype=np.int64))
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
