"""Loss and score on dev against steps and seconds of training, over the seeds of each row."""

from functools import partial
from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports import unnamed
from reports.figures import style

# What panels show values against: a column, and its text.
AXES = {"step": "steps", "seconds": "seconds of training"}

COLUMNS = [
    "question", "attention", "row", "seed", "step", "seconds", "loss", "losses", "dev",
    "dev_metric",
]  # fmt: skip


def files(runs: pd.DataFrame, points: pd.DataFrame) -> dict[str, bytes]:
    found = curves(runs, points)
    return style.table_with_images("curves", found[COLUMNS], draw, found)


def curves(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    names = [
        "id", "machine", "started", "question", "row", "attention", "seed", "dev_metric", "score",
        "better",
    ]  # fmt: skip
    suite, found = unnamed.chosen(runs)
    titles = {question.name: question.note for question in suite.questions}
    found = found.assign(question=found["question"].map(titles))[names]
    found = found.merge(points, on=["id", "machine", "started"])
    return found.sort_values(["question", "row", "seed", "step"], ignore_index=True)


def over_seeds(points: pd.DataFrame, value: str) -> pd.DataFrame:
    groups = points.dropna(subset=value).groupby(["attention", "row", "step"], as_index=False)
    return groups.agg(
        seconds=("seconds", "mean"), mean=(value, "mean"), low=(value, "min"), high=(value, "max")
    )


def draw(found: pd.DataFrame) -> Figure:
    panels = product(found.groupby("question"), ("loss", "dev"), AXES)
    return style.draw_panels([
        (str(title), partial(_panel, points=points, value=value, against=against),
         points["row"].nunique())
        for (title, points), value, against in panels
    ])  # fmt: skip


def _panel(axes: Axes, points: pd.DataFrame, value: str, against: str) -> None:
    scores = points.groupby("row")["score"].mean()
    order = scores.sort_values(ascending=points["better"].iloc[0] == "lower").index
    style.draw_rows(axes, over_seeds(points, value), against, "mean", [*order])
    metric = points["dev_metric"].iloc[0]
    axes.set(xlabel=AXES[against], ylabel=f"dev {metric}" if value == "dev" else value)
