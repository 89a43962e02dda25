"""The page of trials: the score on dev of every row at every point of its grid."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.figures import style
from reports.markdown import escape, frame_table, rendered
from reports.questions import failure, field_text, lines, questions, whole
from reports.text import best_first, grid


class Study(NamedTuple):
    """The trials of one task, recipe, grid and machine.

    Attributes:
        title, setting: of the question.
        grid: the values of each field, by its path.
        trials: the best of each row first, with its `point` as JSON, and whether it is `best`.
    """

    title: str
    setting: str
    grid: Mapping[str, Sequence[Any]]
    trials: pd.DataFrame


def files(runs: pd.DataFrame) -> dict[str, bytes]:
    """What `tuning.md`, `tuning.png` and `tuning.svg` hold, by name; none without trials."""
    found = [*studies(runs)]
    if not found:
        return {}
    page = rendered("tuning.md.j2", studies=[_section(study) for study in found])
    return {"tuning.md": page.encode(), **style.images("tuning", None, draw, found)}


def studies(runs: pd.DataFrame) -> Iterator[Study]:
    """The trials of runs, by question; of equal trials that nearest to the recipe is better."""
    for title, trials in questions(runs, trials=True).groupby("question"):
        grid = json.loads(trials["grid"].iloc[0])
        points = [json.dumps({path: whole(run[path]) for path in grid}) for run in lines(trials)]
        order = best_first(trials["dev"], trials["dev_better"])
        trials = trials.assign(point=points, order=order)
        trials = trials.sort_values(["order", "distance", "point"])
        trials = trials.drop_duplicates(["row", "point"])
        best = trials["dev"].notna() & ~trials["row"].duplicated()
        yield Study(str(title), trials["setting"].iloc[0], grid, trials.assign(best=best))


def draw(found: Sequence[Study]) -> Figure:
    """A panel for each study, up to `MOST_PANELS`."""
    figure, axes = style.panels_of_rows([study.trials["row"].nunique() for study in found])
    for panel, study in zip(axes, found, strict=False):
        style.heading(panel, study.title)
        _panel(panel, study)
    return figure


def _section(study: Study) -> dict[str, Any]:
    """The table of a study: a line for each row, a cell for each point of the grid in order."""
    points = [dict(zip(study.grid, v, strict=True)) for v in product(*study.grid.values())]
    heads = {
        json.dumps(point): ", ".join(f"{field_text(p)} {v}" for p, v in point.items())
        for point in points
    }
    texts = [_text(trial) for trial in lines(study.trials)]
    cells = grid(study.trials, "row", "point", texts, heads).rename(columns=heads)
    table = frame_table(cells, "attention")
    return {"title": study.title, "setting": study.setting, "table": table}


def _text(trial: Mapping[Hashable, Any]) -> str:
    if trial["status"] != "ok":
        return escape(failure(trial))
    text = f"{trial['dev']:z,.{int(trial['dev_digits'])}f}"
    return f"**{text}**" if trial["best"] else text


def _panel(axes: Axes, study: Study) -> None:
    """The best score at each value of the first field, over the values of all others."""
    field = next(iter(study.grid))
    places = {whole(value): place for place, value in enumerate(study.grid[field])}
    trials = study.trials.assign(place=study.trials[field].map(whole).map(places))
    trials = trials[trials["dev"].notna()].drop_duplicates(["row", "place"])
    style.draw_rows(axes, trials.sort_values("place", kind="stable"), "place", "dev",
                    [*dict.fromkeys(study.trials["row"])])  # fmt: skip
    axes.set_xticks(range(len(places)), [style.label(str(value)) for value in places])
    axes.xaxis.set_minor_locator(NullLocator())
    label = f"dev {study.trials['dev_metric'].iloc[0]}"
    axes.set(xlabel=field_text(field), ylabel=label, xlim=(-0.3, len(places) - 0.7))
    missing = sorted({*study.trials["row"]} - {*trials["row"]})
    style.not_shown(axes, [f"{row}: no trial finished" for row in missing])
