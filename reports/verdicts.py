"""Verdicts on a variant and a question: able, unable, undecided; see docs/decisions/suites.md."""

import math
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.records.record import FINAL
from reports.shown import points_of
from reports.text import number

ABLE, UNABLE, UNDECIDED = "able", "unable", "undecided"

DECIDED = (ABLE, UNABLE, UNDECIDED)
"""The verdicts on an entry that has all of its runs."""

MISSING = "runs missing"
"""In place of a verdict where trials or seeds are missing."""

FLAT_FROM = 1 / 2
"""The share of the budget behind which a curve must be flat. The learning rate falls to zero at the
end: a curve that is flat in the last third alone may have stopped for that reason."""

LEAST_POINTS = 4
"""Evaluations behind `FLAT_FROM` without which no curve is flat."""

ERRORS = 2.0
"""Standard errors by which a rising curve rises."""

LEAST = 1 / 50
"""The share of the distance to the ceiling by which a rising curve rises, at least: of four to six
flat curves of a row, one has a slope of more than two standard errors by chance in 15 to 25 %."""

MOST = 1 / 20
"""The share of the distance to the ceiling that a flat curve rises at most, with its errors: a
noisy curve is not flat."""

NEAR = 1 / 10
"""The distance from the ceiling, as a share of it, within which no row is unable."""

FAST = 1 / 3
"""The share of the budget in which another row must have reached the ceiling."""

NO_VERDICT: Mapping[str, Any] = {
    "verdict": "", "part": "", "steps": math.nan, "reached": 0, "runs": 0, "rise": math.nan,
    "error": math.nan, "distance": math.nan, "budget": 0, "trial_rises": False,
    "farthest": math.nan,
}  # fmt: skip
"""The columns of verdicts, with their values where there is none."""


class Rise(NamedTuple):
    """The rise of a curve over the end of a budget: its slope times its span, and its error.

    All are in the unit of the score; a positive rise is an improvement. `distance` is what is left
    to the ceiling.
    """

    rise: float
    error: float
    distance: float = 0.0

    @property
    def is_flat(self) -> bool:
        """Return whether the curve does not rise; False where too few points tell."""
        most = self.rise + ERRORS * self.error
        return not self.is_rising and most <= MOST * self.distance

    @property
    def is_rising(self) -> bool:
        """Return whether the curve rises; False where too few points tell."""
        return self.rise > max(ERRORS * self.error, LEAST * self.distance)


def rise_of(steps: Sequence[float], scores: Sequence[float], budget: int, sign: int = 1) -> Rise:
    """The rise of a curve on dev behind `FLAT_FROM` of the budget of steps, by least squares.

    `sign` is 1 where more is better, else -1.
    """
    x, y = np.asarray(steps, dtype=float), sign * np.asarray(scores, dtype=float)
    late = x >= FLAT_FROM * budget
    x, y = x[late], y[late]
    if len(x) < LEAST_POINTS:
        return Rise(math.nan, math.nan)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - slope * centred
    variance = float(residuals @ residuals) / (len(x) - 2)
    error = math.sqrt(variance / float(centred @ centred))
    span = float(x[-1] - x[0])
    return Rise(slope * span, error * span)


def steps_to(steps: Sequence[int], scores: Sequence[float], ceiling: float, sign: int = 1) -> float:
    """The first step at which two successive evaluations reach the ceiling; NaN if none do.

    The last evaluation is enough by itself.
    """
    reached = [sign * (score - ceiling) >= 0 for score in scores]
    for step, *both in zip(steps, reached, [*reached, True][1:], strict=True):
        if all(both):
            return float(step)
    return math.nan


def verdicts(
    runs: pd.DataFrame, ceilings: Mapping[str, float],
    seeds: Mapping[str, int] = MappingProxyType({}),
) -> pd.DataFrame:  # fmt: skip
    """The verdict on each variant and question that has runs.

    Returns:
        A line for each question and row: `verdict`; `part`, the runs that there are where others
        are missing, else empty; `steps`, the median over the final runs of the steps to the
        ceiling, NaN unless all reach it; `reached`, how many do, of `runs`; `rise`, behind half of
        the budget, the largest of the final runs, its `error` and the `distance` to the ceiling;
        `budget`, the steps of the recipe; `trial_rises`, whether the curve of any trial rises;
        `farthest`, the largest distance to the ceiling at the end of a final run without it.
    """
    judged = [
        {**run, **_run(run, ceilings.get(str(run["question"]), math.nan))}
        for run in runs.to_dict("records")
    ]
    if not judged:
        return pd.DataFrame(columns=["question", "row", *NO_VERDICT])
    lines: list[dict[str, Any]] = []
    for question, of_rows in pd.DataFrame(judged).groupby("question", sort=False):
        every, rows = seeds.get(str(question), 1), [*of_rows.groupby("row", sort=False)]
        shares = [_share(same, every) for _, same in rows]
        for row, same in rows:
            part, of = _part(same, every), {"verdict": ""}
            if question in ceilings:
                of = _verdict(same, min(shares), every)
            lines.append({**NO_VERDICT, "question": question, "row": row, "part": part, **of,
                          **({"verdict": MISSING} if part else {})})  # fmt: skip
    return pd.DataFrame(lines)


def is_unable_possible(answers: pd.DataFrame) -> bool:
    """Return whether an able row of a question was so fast that others can be unable."""
    able = answers[answers["verdict"] == ABLE]
    return bool((able["steps"] < FAST * able["budget"]).any())


def words(of: Mapping[Hashable, Any]) -> str:
    """A verdict in words, with the columns of `verdicts`: the steps, or how far the variant got."""
    verdict, rise = of["verdict"], Rise(of["rise"], of["error"], of["distance"])
    if of["part"]:
        return f"{verdict}: {of['part']}"
    if verdict == ABLE:
        return f"{verdict}, {of['steps']:,.0f} steps"
    if verdict != UNDECIDED:
        return f"{verdict} in {of['budget']:,} steps" if verdict else ""
    if of["reached"]:
        ended = f"; the farthest ended {number(of['farthest'])} from it"
        return f"{verdict}, {of['reached']} of {of['runs']} runs at the ceiling{ended}"
    if rise.is_rising:
        return f"{verdict}, still improves by {number(rise.rise)}"
    ends = "flat" if rise.is_flat else "no rise shown"
    return f"{verdict}, {ends}{'; a trial rises' * bool(of['trial_rises'])}"


def _run(run: Mapping[Hashable, Any], ceiling: float) -> dict[str, object]:
    budget, sign = run["train.steps"], 1 if run["dev_better"] == "higher" else -1
    evaluated = [step for step, _ in run["evaluations"]], [dev for _, dev in run["evaluations"]]
    steps, rise = steps_to(*evaluated, ceiling, sign), rise_of(*evaluated, budget, sign)
    scores = [sign * (score - ceiling) for score in evaluated[1]]
    rise = rise._replace(distance=abs(scores[-1]) if scores else math.nan)
    return {
        "final": run["role"] != "trial", "steps": steps, "share": steps / budget,
        "flat": rise.is_flat, "rises": rise.is_rising, **rise._asdict(),
        "near": max(scores, default=-math.inf) >= -NEAR * abs(ceiling),
    }  # fmt: skip


def _part(runs: pd.DataFrame, seeds: int) -> str:
    """The runs of an entry that have ended, in words, where others are missing; else empty."""
    ended = runs[runs["status"].isin(FINAL)]
    finals, trials = int(ended["final"].sum()), ended.loc[~ended["final"], "point"].nunique()
    points = points_of(runs["grid"].iloc[0])
    if finals >= seeds or (trials >= points and not ended["status"].eq("ok").any()):
        return ""
    if finals:
        return f"{finals} of {seeds} seeds"
    return "trial, 1 seed" if trials >= points > 0 else f"{trials} of {points} trials"


def _share(runs: pd.DataFrame, seeds: int) -> float:
    """The share of the budget until the ceiling, the median of the seeds; infinite if not able."""
    finals = runs[runs["final"]]
    able = len(finals) >= seeds and finals["steps"].notna().all()
    return float(finals["share"].median()) if able else math.inf


def _verdict(runs: pd.DataFrame, fastest: float, seeds: int) -> dict[str, Any]:
    """The verdict on a row from its runs; `fastest` is the least share of the budget of any row."""
    finals = runs[runs["final"]] if runs["final"].any() else runs
    able = not math.isinf(_share(runs, seeds))
    # The budget of the question was enough for another row.
    complete = int(runs["final"].sum()) >= seeds and fastest < FAST
    unable = complete and runs["flat"].all() and not runs["near"].any()
    largest = finals.sort_values("rise", na_position="first").iloc[-1]
    return {
        "verdict": ABLE if able else UNABLE if unable else UNDECIDED,
        "steps": float(finals["steps"].median()) if able else math.nan,
        "reached": int(finals["steps"].notna().sum()), "runs": len(finals),
        "budget": int(runs["train.steps"].max()),
        "trial_rises": bool(runs.loc[~runs["final"], "rises"].any()),
        "farthest": float(finals.loc[finals["steps"].isna(), "distance"].max()),
        **{name: float(largest[name]) for name in Rise._fields},
    }  # fmt: skip
