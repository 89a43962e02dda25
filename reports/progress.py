"""The progress of runs: seeds that reach the ceiling of a question, and curves that still rise."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.records.answers import CorrectAnswers
from harness.records.record import FINAL
from reports.shown import points_of

LATE = 1 / 2  # A curve is rising if it rises after this share of the steps
LEAST_POINTS = 3  # Evaluations after `LATE` that this needs
ERRORS = 2.0  # The least rise, in standard errors

# The least rise as a share of the distance to the best score: of four to six flat curves, one has a
# slope of more than two standard errors by chance in 15 to 25 %.
LEAST = 1 / 50

# The columns of `progress`, with their values where there are no runs.
NO_PROGRESS: Mapping[str, Any] = {
    "part": "", "solved": False, "reached": 0, "runs": 0, "steps": math.nan, "rising": False,
    "budget": 0,
}  # fmt: skip

# The columns of runs with curves, and those of `progress`: the other hundred are not copied
OF_CURVES = ["dev_better", "evaluations", "unit", "train.steps"]
READ = ["question", "row", "role", "status", "point", "grid", *OF_CURVES]
SOLVED = 90.0  # The accuracy in percent with which a position is solved


class Rise(NamedTuple):
    rise: float  # Over the late part of a curve: its slope times its span
    error: float  # Standard error
    distance: float  # From the last score to the ceiling

    @property
    def is_rising(self) -> bool:
        return self.rise > max(ERRORS * self.error, LEAST * self.distance)


def rise_of(
    steps: Sequence[float], scores: Sequence[float], budget: int, ceiling: float, sign: int = 1
) -> Rise:
    # `sign` is 1 where more is better, else -1.
    x, y = np.asarray(steps, dtype=float), sign * np.asarray(scores, dtype=float)
    late = x >= LATE * budget
    x, y = x[late], y[late]
    if len(x) < LEAST_POINTS:
        return Rise(math.nan, math.nan, math.nan)
    # Not `mean`, which takes longer than the rest.
    centred = x - x.sum() / len(x)
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.sum() / len(y) - slope * centred
    variance = float(residuals @ residuals) / (len(x) - 2)
    error = math.sqrt(variance / float(centred @ centred))
    span = float(x[-1] - x[0])
    return Rise(slope * span, error * span, abs(sign * ceiling - float(y[-1])))


def steps_to(steps: Sequence[int], scores: Sequence[float], ceiling: float, sign: int = 1) -> float:
    # The last evaluation is enough by itself.
    reached = [sign * (score - ceiling) >= 0 for score in scores]
    for step, *both in zip(steps, reached, [*reached, True][1:], strict=True):
        if all(both):
            return float(step)
    return math.nan


def progress(
    runs: pd.DataFrame, ceilings: Mapping[str, float],
    seeds: Mapping[str, int] = MappingProxyType({}),
) -> pd.DataFrame:  # fmt: skip
    # A line for each question and row. `part`: the finished runs if others are missing, else empty.
    # `reached`: how many of the final `runs` reach the ceiling. `solved`: all do; a single run
    # counts only if no other is missing. `steps`: the median of their steps to the ceiling, NaN
    # unless solved. `rising`: the curve of a run below the ceiling still rises. Without a ceiling,
    # accuracies rise to 100 %, other scores never. `budget`: the steps of the recipe.
    lines: list[dict[str, Any]] = []
    groups = runs[READ].groupby(["question", "row"], sort=False) if len(runs) else ()
    for (name, row), same in groups:
        question = str(name)
        part = _part(same, seeds.get(question, 1))
        finals = same.loc[same["role"] != "trial", OF_CURVES]
        found = [_run(run, ceilings.get(question)) for run in finals.to_dict("records")]
        to_ceiling = [steps for steps, _ in found]
        several = bool(found) and (len(found) > 1 or not part)
        solved = several and not any(map(math.isnan, to_ceiling))
        lines.append({
            "question": question, "row": row, "part": part, "solved": solved,
            "reached": sum(not math.isnan(steps) for steps in to_ceiling), "runs": len(found),
            "steps": float(np.median(to_ceiling)) if solved else math.nan,
            "rising": any(rises for _, rises in found),
            "budget": int(same["train.steps"].max()),
        })  # fmt: skip
    return pd.DataFrame(lines, columns=["question", "row", *NO_PROGRESS])


def horizons(seeds: pd.DataFrame, firsts: Mapping[str, int]) -> pd.DataFrame:
    # `firsts` has the position of the first target of each question that has a horizon, else 0. NaN
    # where the accuracy of all seeds together is below `SOLVED` at the first position.
    lines = []
    read = ["question", "row", "sample"]
    groups = seeds[read].groupby(read[:2], sort=False) if len(seeds) else ()
    for (question, row), same in groups:
        samples = same["sample"].dropna() if firsts[str(question)] else ()
        every = [of.by_position() for of in samples if isinstance(of, CorrectAnswers)]
        found = [of for of in every if of is not None]
        if len({len(of) for of in found}) != 1 or len(found) < len(every):
            continue
        solved = np.mean(found, axis=0) >= SOLVED / 100
        reached = float(np.argmin(np.append(solved, False)))
        horizon = firsts[str(question)] + reached - 1 if reached else math.nan
        lines.append({"question": question, "row": row, "horizon": horizon})
    return pd.DataFrame(lines, columns=["question", "row", "horizon"])


def _run(run: Mapping[Any, Any], ceiling: float | None) -> tuple[float, bool]:
    sign = 1 if run["dev_better"] == "higher" else -1
    steps, scores = [at for at, _ in run["evaluations"]], [dev for _, dev in run["evaluations"]]
    reached = math.nan if ceiling is None else steps_to(steps, scores, ceiling, sign)
    best = 100.0 if ceiling is None and sign == 1 and run["unit"] == "%" else ceiling
    if best is None or not math.isnan(reached):
        return reached, False
    return reached, rise_of(steps, scores, run["train.steps"], best, sign).is_rising


def _part(runs: pd.DataFrame, seeds: int) -> str:
    ended, is_trial = runs[runs["status"].isin(FINAL)], runs["role"] == "trial"
    finals, trials = int((~is_trial[ended.index]).sum()), ended.loc[is_trial, "point"].nunique()
    points = points_of(runs["grid"].iloc[0])
    if finals >= seeds or (trials >= points > 0 and not ended["status"].eq("ok").any()):
        return ""
    if finals:
        return f"{finals} of {seeds} seeds"
    return "trial, 1 seed" if trials >= points > 0 else f"{trials} of {points} trials"
