"""The page of trials: the score on dev of every row at every point of its grid."""

import json
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.records.frame import best_trials_first
from reports.figures import style
from reports.markdown import rendered
from reports.shown import failure, field_text
from reports.table import ROW, Cell, Line, grid
from reports.text import outdated_text, whole


def files(runs: pd.DataFrame) -> dict[str, bytes]:
    found = trials(runs)
    if found.empty:
        return {}
    sections = [_section(of_question) for _, of_question in found.groupby("question")]
    page = rendered("tuning.md.j2", studies=sections, outdated=outdated_text(found))
    return {"tuning.md": page.encode(), **style.images("tuning", None, draw, found)}


def trials(runs: pd.DataFrame) -> pd.DataFrame:
    found = runs[(runs["left_out"] == "") & (runs["role"] == "trial")] if len(runs) else runs
    if found.empty:
        return found
    found = best_trials_first(found).drop_duplicates(["question", "row", "point"])
    return found.assign(best=found["dev"].notna() & ~found.duplicated(["question", "row"]))


def draw(found: pd.DataFrame) -> Figure:
    return style.draw_panels([
        (str(title), partial(_panel, trials=of_question), of_question["row"].nunique())
        for title, of_question in found.groupby("question")
    ])  # fmt: skip


def _section(trials: pd.DataFrame) -> dict[str, Any]:
    first = trials.iloc[0]
    fields = json.loads(first["grid"])
    points = [dict(zip(fields, values, strict=True)) for values in product(*fields.values())]
    heads = {
        json.dumps(point): ", ".join(f"{field_text(p)} {v}" for p, v in point.items())
        for point in points
    }
    scores = grid(trials.sort_values("row", kind="stable"), ROW, heads, "point", _score)
    return {"title": first["question"], "setting": first["setting"], "table": scores.markdown()}


def _score(trial: Line) -> Cell | str:
    if trial["status"] != "ok":
        return failure(trial)
    text = f"{trial['dev']:z,.{int(trial['dev_digits'])}f}"
    return Cell(text, is_best=trial["best"])


def _panel(axes: Axes, trials: pd.DataFrame) -> None:
    field, values = next(iter(json.loads(trials["grid"].iloc[0]).items()))
    places = {whole(value): place for place, value in enumerate(values)}
    points = trials.assign(place=trials[field].map(whole).map(places))
    points = points[points["dev"].notna()].drop_duplicates(["row", "place"])
    style.draw_rows(axes, points.sort_values("place", kind="stable"), "place", "dev",
                    [*dict.fromkeys(trials["row"])])  # fmt: skip
    axes.set_xticks(range(len(places)), [style.label(str(value)) for value in places])
    label = f"dev {trials['dev_metric'].iloc[0]}"
    axes.set(xlabel=field_text(field), ylabel=label, xlim=(-0.3, len(places) - 0.7))
    missing = sorted({*trials["row"]} - {*points["row"]})
    style.not_shown(axes, [f"{row}: no trial finished" for row in missing])
