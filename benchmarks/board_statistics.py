"""Intervals and tiers of simulated boards, whose true accuracies are known.

An answer is correct if a normal score exceeds 0: the sum of a level of the row, the effects of the
seed, of the sequence and of the example, which rows share, of the example for the row, and a rest.
The accuracy over all seeds and examples is then known exactly. A *missed* interval does not contain
it. A board is *falsely separated* if two rows of one accuracy share no tier, or two others are
separated in the wrong order. Neither depends on the device.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.claims import Claim, Finding, Setting
from harness.measure import quartiles
from reports.statistics import LEVEL, Sample, score_interval, separable_pairs

TOLERANCE = 0.02
"""By how much the coverage may differ from 95 %."""

SEQUENCE, EXAMPLE, ROW = 0.7, 0.7, 0.5
"""Standard deviations of the effects of sequence, example, and example for a row; of the rest 1."""

BOARDS = 500
"""Boards of each kind."""

CLAIMS = [
    Claim(
        name="statistics-coverage",
        what="Missed intervals, their share over all kinds of boards, less 5 points, in either "
        "direction, over the 2 points allowed",
        bounds={"cpu": 1.0},
        limit="0, where exactly 5 % are missed.",
    ),
    Claim(
        name="statistics-coverage-worst",
        what="The same for the kind of board that is furthest from 5 %",
        bounds={"cpu": 1.0},
        limit="About 0.7, which 60 kinds would have by chance if each missed 5 %.",
    ),
    Claim(
        name="statistics-coverage-bootstrap",
        what="The same over all kinds for the percentile interval of a hierarchical bootstrap over "
        "seeds and sequences",
        bounds={"cpu": None},
        limit="0, where exactly 5 % are missed.",
    ),
    Claim(
        name="statistics-false-separations",
        what="Falsely separated boards, their share for the kind that has most, over 5 %",
        bounds={"cpu": 1.0},
        limit="0, where rows are never separated.",
    ),
]


class Kind(NamedTuple):
    """A kind of board: seeds, sequences, answers of each, and each row's accuracy and seed effect.

    The effect is the standard deviation of the score between seeds.
    """

    seeds: int
    sequences: int
    answers: int
    accuracies: tuple[float, ...]
    effects: tuple[float, ...]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    boards, rng = setting.size(BOARDS, 4), np.random.default_rng(0)
    kinds = interval_kinds()[: setting.size(1000, 2)]
    shape = f"{boards:,} boards of each of {{}} kinds with 3 and 5 seeds"
    covered = [coverage(kind, boards, rng) for kind in kinds]
    text = f"{shape.format(len(kinds))}, 2,000 sequences of 1 answer or 500 of 8, 6 rows"
    shares = {"missed (%)": [100 * max(1 - one, 1e-6) for one in covered]}
    figures = {name: quartiles(values) for name, values in shares.items()}
    worst = max(covered, key=lambda one: abs(one - 0.95))
    for name, one in (("", float(np.mean(covered))), ("-worst", worst)):
        yield Finding(
            name=f"statistics-coverage{name}", setting=text, figures=figures,
            ratios=[max(abs(one - 0.95), 1e-6) / TOLERANCE],
        )  # fmt: skip
    few = setting.size(50, 2)
    plain = [coverage(kind, few, rng, bootstrap_covers) for kind in kinds]
    yield Finding(
        name="statistics-coverage-bootstrap",
        setting=f"{few} boards of each kind, {RESAMPLES} resamples",
        ratios=[max(abs(float(np.mean(plain)) - 0.95), 1e-6) / TOLERANCE],
        figures={"missed (%)": quartiles(100 * max(1 - one, 1e-6) for one in plain)},
    )
    kinds = board_kinds()[: setting.size(1000, 2)]
    false = [false_separations(kind, boards, rng) for kind in kinds]
    yield Finding(
        name="statistics-false-separations",
        setting=f"{shape.format(len(kinds))}, 2,000 answers, 3 to 12 rows",
        ratios=[max(*false, 1e-6) / LEVEL],
        figures={"falsely separated (%)": quartiles(100 * max(one, 1e-6) for one in false)},
    )


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
        deviation = (SEQUENCE**2 + EXAMPLE**2 + ROW**2 + effect**2 + 1) ** 0.5
        score = float(ndtri(accuracy)) * deviation + shared + ROW * normal(sequences, answers)
        score = score + effect * normal(kind.seeds, 1, 1) + normal(kind.seeds, sequences, answers)
        correct = (score > 0).sum(2, dtype=np.float64)
        rows.append(Sample(correct, np.full(sequences, float(answers))))
    return rows


def covers(sample: Sample, accuracy: float, rng: np.random.Generator) -> bool:
    """Whether the interval of a leaderboard contains the accuracy."""
    _, low, high, _ = score_interval(sample)
    return low <= accuracy <= high


RESAMPLES = 400


def bootstrap_covers(sample: Sample, accuracy: float, rng: np.random.Generator) -> bool:
    """Whether the percentile interval of a hierarchical bootstrap does."""
    k, c = sample.totals.shape
    seeds = rng.multinomial(k, np.full(k, 1 / k), RESAMPLES) @ sample.totals / k
    clusters = rng.multinomial(c, np.full(c, 1 / c), RESAMPLES)
    means = np.sum(seeds * clusters, 1) / (clusters @ sample.sizes)
    low, high = np.quantile(means, [0.025, 0.975])
    return bool(low <= accuracy <= high)


def coverage(kind: Kind, boards: int, rng: np.random.Generator, covers=covers) -> float:
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
