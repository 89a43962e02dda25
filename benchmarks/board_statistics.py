"""Intervals and tiers of simulated boards, whose true accuracies are known.

An answer is correct if a normal score exceeds 0. The score is a sum: the mean of the row, random
effects of the seed, of the sequence and of the example, an interaction of example and row, and a
residual. All rows have the same effects of sequences and examples. The accuracy over all seeds and
examples is then known exactly. A board is *falsely separated* if two rows of equal accuracy share
no tier, or two rows of different accuracies are separated in the wrong order. Neither the coverage
nor the separations depend on the device.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from statistics import mean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.claims import Claim, Finding, Setting
from harness.measure import quartiles
from reports.statistics import LEVEL, Sample, score_interval, separable_pairs

TOLERANCE = 0.02
"""The largest deviation of the coverage from 95 % that is allowed."""

SEQUENCE, EXAMPLE, INTERACTION = 0.7, 0.7, 0.5
"""Standard deviations of the effects of sequence and example, and of the interaction of example and
row; that of the residual is 1."""

BOARDS, ROWS, RESAMPLED = 500, 8000, 20
"""Simulated boards of each kind, rows of each kind, and rows of each kind with a bootstrap."""

RESAMPLES = 400
"""Resamples of a bootstrap."""

CLAIMS = [
    Claim(
        name="statistics-coverage",
        what="Deviation of the coverage of intervals from 95 %, over all kinds of rows, over the 2 "
        "points allowed",
        bounds={"cpu": 1.0},
        limit="0, where exactly 95 % contain the accuracy.",
    ),
    Claim(
        name="statistics-coverage-worst",
        what="The same for the kind of row that deviates most",
        bounds={"cpu": 1.0},
        limit="About 0.3, the largest deviation of 48 kinds of 8,000 rows by chance.",
    ),
    Claim(
        name="statistics-coverage-bootstrap",
        what="The same over all kinds for percentile intervals of a hierarchical bootstrap over "
        "seeds and sequences",
        bounds={"cpu": None},
        limit="0, where exactly 95 % contain the accuracy.",
    ),
    Claim(
        name="statistics-false-separations",
        what="Share of falsely separated boards, over all kinds, over 5 %",
        bounds={"cpu": 1.0},
        limit="0, where rows are never separated.",
    ),
    Claim(
        name="statistics-false-separations-worst",
        what="The same for the kind of board that has most",
        bounds={"cpu": None},
        limit="0, where rows are never separated.",
    ),
]


class Kind(NamedTuple):
    """A kind of board.

    Attributes:
        seeds: of each row.
        sequences: of the test split.
        answers: of each sequence.
        accuracies: of each row.
        effects: standard deviation of the score between seeds, of each row.
    """

    seeds: int
    sequences: int
    answers: int
    accuracies: tuple[float, ...]
    effects: tuple[float, ...]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    rng = np.random.default_rng(0)
    kinds = interval_kinds()[: setting.size(1000, 2)]
    rows = setting.size(ROWS, 4)
    sizes = f"{len(kinds)} kinds, 3 and 5 seeds, 2,000 sequences of 1 answer or 500 of 8"
    covered = [coverage(kind, rows, rng) for kind in kinds]
    for suffix, one in (("", mean(covered)), ("-worst", max(covered, key=deviation))):
        yield finding_of(f"coverage{suffix}", f"{rows:,} rows of {sizes}", deviation(one), covered)
    rows = setting.size(RESAMPLED, 2)
    covered = [coverage(kind, rows, rng, bootstrap_covers) for kind in kinds]
    text = f"{rows:,} rows of {sizes}, {RESAMPLES} resamples"
    yield finding_of("coverage-bootstrap", text, deviation(mean(covered)), covered)
    kinds, boards = board_kinds()[: setting.size(1000, 2)], setting.size(BOARDS, 4)
    text = f"{boards:,} boards of {len(kinds)} kinds, 3 and 5 seeds, 3 to 12 rows, 2,000 answers"
    false = [false_separations(kind, boards, rng) for kind in kinds]
    for suffix, one in (("", mean(false)), ("-worst", max(false))):
        yield finding_of(f"false-separations{suffix}", text, one / LEVEL, false)


def finding_of(name: str, setting: str, ratio: float, shares: Sequence[float]) -> Finding:
    """A finding with the quartiles of the shares of all kinds, in percent."""
    # Quartiles of a record are positive.
    percent = quartiles(max(100 * share, 1e-3) for share in shares)
    return Finding(
        name=f"statistics-{name}", setting=setting, ratios=[max(ratio, 1e-3)],
        figures={"share by kind (%)": percent},
    )  # fmt: skip


def deviation(coverage: float) -> float:
    """The deviation from 95 % over what is allowed."""
    return abs(coverage - 0.95) / TOLERANCE


def interval_kinds() -> list[Kind]:
    """Kinds of boards whose rows have one accuracy."""
    grid = product((3, 5), ((2000, 1), (500, 8)), (0.1, 0.5, 0.95), (0.0, 0.03, 0.1, 0.3))
    return [Kind(k, *shape, (accuracy,), (effect,)) for k, shape, accuracy, effect in grid]


def board_kinds() -> list[Kind]:
    """Kinds of boards with equal rows: all of them, or by three; with equal and other effects."""
    effects = [(0.0,) * 12, (0.03,) * 12, (0.1,) * 12, (0.3,) * 12, (0.02, 0.1, 0.3, 0.05) * 3]
    levels = [(0.5,) * 3, (0.5,) * 12, (0.9,) * 12, (0.7, 0.6, 0.5, 0.4) * 3]
    return [
        Kind(k, 2000, 1, accuracies, effect[: len(accuracies)])
        for k, effect, accuracies in product((3, 5), effects, levels)
    ]


def board(kind: Kind, rng: np.random.Generator) -> list[Sample]:
    """One board: the answers of each row."""

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    sequences, answers = kind.sequences, kind.answers
    shared = SEQUENCE * normal(sequences, 1) + EXAMPLE * normal(sequences, answers)
    rows = []
    for accuracy, effect in zip(kind.accuracies, kind.effects, strict=True):
        deviation = (SEQUENCE**2 + EXAMPLE**2 + INTERACTION**2 + effect**2 + 1) ** 0.5
        interaction = INTERACTION * normal(sequences, answers)
        score = float(ndtri(accuracy)) * deviation + shared + interaction
        score = score + effect * normal(kind.seeds, 1, 1) + normal(kind.seeds, sequences, answers)
        correct = (score > 0).sum(2, dtype=np.float64)
        rows.append(Sample(correct, np.full(sequences, float(answers))))
    return rows


def covers(sample: Sample, accuracy: float, rng: np.random.Generator) -> bool:
    """Whether the interval of a leaderboard contains the accuracy."""
    _, low, high, _ = score_interval(sample)
    return low <= accuracy <= high


def bootstrap_covers(sample: Sample, accuracy: float, rng: np.random.Generator) -> bool:
    """Whether the percentile interval of a hierarchical bootstrap contains the accuracy."""
    k, c = sample.totals.shape
    seeds = rng.multinomial(k, np.full(k, 1 / k), RESAMPLES) @ sample.totals / k
    clusters = rng.multinomial(c, np.full(c, 1 / c), RESAMPLES)
    means = np.sum(seeds * clusters, 1) / (clusters @ sample.sizes)
    low, high = np.quantile(means, [0.025, 0.975])
    return bool(low <= accuracy <= high)


def coverage(
    kind: Kind,
    boards: int,
    rng: np.random.Generator,
    covers: Callable[[Sample, float, np.random.Generator], bool] = covers,
) -> float:
    """The share of intervals that contain the accuracy of their row."""
    found = [
        covers(sample, accuracy, rng)
        for _ in range(boards)
        for sample, accuracy in zip(board(kind, rng), kind.accuracies, strict=True)
    ]
    return sum(found) / len(found)


def false_separations(kind: Kind, boards: int, rng: np.random.Generator) -> float:
    """The share of boards that are falsely separated."""
    return sum(_is_false(board(kind, rng), kind.accuracies) for _ in range(boards)) / boards


def _is_false(samples: Sequence[Sample], accuracies: Sequence[float]) -> bool:
    means, truth = np.array([one.mean for one in samples]), np.array(accuracies)
    found, true = (np.sign(one[:, None] - one) for one in (means, truth))
    return bool((separable_pairs(samples) & (found != true)).any())
