"""Standings of the rows of a board, and what the board settles."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from harness.records.baselines import missing
from reports.statistics import Sample, compare, is_comparable, tiers
from reports.tables.rows import Row, Standing, group_by
from reports.tables.scores import Baselines, worst_end

NO_EVIDENCE_TEXT = "no evidence of attention"


def with_standings(rows: Sequence[Row], baselines: Baselines) -> tuple[Row, ...]:
    """The rows of one board, the best first, each with its standing; `baselines` are scores.

    Compared are rows of at least two finished seeds that store their answers, to the same test
    split, and that have not failed (`is_comparable`). A row beats the baselines of the task if
    its interval is above them, and a model without attention if the two are separated, or not
    compared and the interval is above its accuracy.
    """
    rows = _compared(rows, _obstacles(rows, baselines))
    strongest = strongest_baseline(rows, baselines)
    return tuple(_against_baselines(row, rows, baselines, strongest) for row in rows)


def strongest_baseline(rows: Sequence[Row], baselines: Baselines) -> tuple[str, float] | None:
    """The name and score of the best baseline, a row without attention included."""
    models = [(row.label, row.score.mean) for row in _models(rows) if row.score]
    every = [*baselines, *models]
    return max(every, key=lambda one: rows[0].metric.sign * one[1], default=None)


def verdict(rows: Sequence[Row], baselines: Baselines) -> str:
    """What a board settles: its separable pairs, and the rows that beat every baseline.

    Without `baselines` there is no verdict on them, but the file that is missing.
    """
    return " ".join(filter(None, [_pairs(rows), _evidence(rows, baselines)]))


def separated(first: Row, second: Row) -> bool:
    """Whether both rows are compared, and share no tier."""
    one, other = {*first.standing.tiers}, {*second.standing.tiers}
    return bool(one and other) and not one & other


def _compared(rows: Sequence[Row], obstacles: Sequence[str]) -> list[Row]:
    standings = [Standing(not_compared=obstacle) for obstacle in obstacles]
    samples = {i: row.compared for i, row in enumerate(rows) if row.compared and not obstacles[i]}
    if len(samples) > 1:
        compared = compare([*samples.values()])
        for i, tier, best in zip(samples, tiers(compared.separable), compared.best, strict=True):
            standings[i] = Standing(tiers=tier, best=float(best))
    return [row.with_standing(standing) for row, standing in zip(rows, standings, strict=True)]


def _obstacles(rows: Sequence[Row], baselines: Baselines) -> list[str]:
    """What keeps each row from being compared; empty where nothing does."""
    models = [row.score.mean for row in _models(rows) if row.score]
    of_task = [_compared_mean(rows[0], score) for _, score in baselines]
    with_models = of_task + [_compared_mean(rows[0], score) for score in models]
    obstacles: list[str] = []
    first: Sample | None = None
    for row in rows:
        obstacles.append(_obstacle(row, of_task if row.without_attention else with_models, first))
        if not obstacles[-1] and first is None:
            first = row.compared
    return obstacles


def _compared_mean(row: Row, score: float) -> float:
    """A score in the unit of `Row.compared`."""
    return row.metric.sign * row.metric.mean(score)


def _obstacle(row: Row, baselines: Sequence[float], first: Sample | None) -> str:
    if not row.compared:
        return "no stored test answers"
    if row.compared.seeds == 1:
        return "one seed"
    if not baselines:
        return "no baseline"
    if not is_comparable(row.compared, baselines):
        return "seeds at a baseline"
    if first and not np.array_equal(row.compared.sizes, first.sizes):
        return "answers to other test examples"
    return ""


def _against_baselines(
    row: Row, rows: Sequence[Row], baselines: Baselines, strongest: tuple[str, float] | None
) -> Row:
    if row.score is None or row.without_attention or strongest is None or not baselines:
        return row
    sign, worst = row.metric.sign, worst_end(row.score, row.metric)
    beats = all(worst > sign * value for _, value in baselines) and all(
        _beats(row, model) for model in _models(rows)
    )
    at_baseline = sum(sign * (final.score - strongest[1]) <= 0 for final in row.finals)
    standing = replace(row.standing, beats_baselines=beats, at_baseline=at_baseline)
    return row.with_standing(standing)


def _models(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.without_attention]


def _beats(row: Row, model: Row) -> bool:
    if not model.score or not row.score:
        return True
    sign = row.metric.sign
    if row.standing.tiers and model.standing.tiers:
        return sign * (row.score.mean - model.score.mean) > 0 and separated(row, model)
    return worst_end(row.score, row.metric) > sign * model.score.mean


def _pairs(rows: Sequence[Row]) -> str:
    finished = [row for row in rows if row.score]
    compared = [row for row in finished if row.standing.tiers]
    if len(finished) < 2:
        return ""
    reasons = group_by(
        (row for row in finished if row.standing.not_compared), lambda r: r.standing.not_compared
    )
    if not compared:
        return f"No pair of rows is compared, as rows have {' or '.join(sorted(reasons))}."
    pairs = [*combinations(compared, 2)]
    count = sum(separated(*pair) for pair in pairs)
    parts = [f"{count} of {len(pairs)} pairs of rows are separable."]
    parts += [
        f"Not compared, with {reason}: {', '.join(row.label for row in reasons[reason])}."
        for reason in sorted(reasons)
    ]
    return " ".join(parts)


def _evidence(rows: Sequence[Row], baselines: Baselines) -> str:
    if not baselines and any(row.score for row in rows):
        return f"No verdict on baselines: {missing(rows[0].spec.task)}."
    strongest = strongest_baseline(rows, baselines)
    known = [r.standing.beats_baselines for r in rows if r.standing.beats_baselines is not None]
    if not known or strongest is None:
        return ""
    name = f"strongest: {strongest[0]}, {rows[0].metric.sentence(strongest[1])}"
    if any(known):
        return f"{sum(known)} of {len(known)} rows with attention beat every baseline ({name})."
    return (
        f"No row beats every baseline ({name}): the board is {NO_EVIDENCE_TEXT}, and shows only "
        "which row learns faster under this recipe."
    )
