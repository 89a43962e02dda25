"""The page of findings: what shallow models reach, and which published accuracies that explains."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.records.interval import wilson
from harness.records.shallow import ShallowModel, ShallowStudy
from reports.papers import published
from reports.render import rendered

REFERENCE = {
    ("listops", "first 1 token"): (36.4, 36.4),
    ("listops", "first 2 tokens"): (37.3, 38.3),
    ("listops", "first 4 tokens"): (37.3, 38.3),
    ("listops", "first 8 tokens"): (37.3, 38.3),
    ("listops", "first 8 and last 8 tokens"): (43.2, 43.2),
    ("listops", "root operator, digits at depth 1"): (50.0, 50.0),
    ("listops", "+ operators at depth 1"): (57.0, 57.0),
    ("listops", "+ digits at depth 2"): (59.0, 59.0),
    ("text", "1-grams"): (65.3, 65.3),
    ("text", "2-grams"): (79.6, 79.6),
    ("text", "3-grams"): (86.0, 86.0),
    ("text", "4-grams"): (88.4, 88.9),
    ("image", "pixels, linear"): (30.8, 30.8),
    ("image", "pixels, perceptron"): (48.2, 48.2),
    ("pathfinder", "disc places"): (66.5, 66.5),
    ("pathfinder", "disc places, 5 x 5 pixels"): (68.5, 68.5),
}
"""Test accuracies in % of an independent implementation, lowest and highest, by task and model."""


def findings(studies: Sequence[ShallowStudy]) -> str:
    """The page as Markdown."""
    return rendered("findings.md.j2", studies=[_section(study) for study in studies])


def explain(study: ShallowStudy) -> pd.DataFrame:
    """Every published accuracy on the task of a study, the lowest first.

    Columns: those of `reports.papers.published`, of this version of the task, and `model`, the
    simplest shallow model that reaches it, `none` without one; sizes of splits may differ.
    """
    found = published(task=study.task.partition("[")[0], unit="%")
    highest = {model.name: 100 * _interval(study, model)[1] for model in study.models}
    models = [
        next((name for name, high in highest.items() if high >= value), "none")
        for value in found["value"]
    ]
    return found.assign(model=models).sort_values("value", kind="stable")


def conclusion(study: ShallowStudy) -> str:
    """What the shallow models of a task show."""
    best, (_, high) = _best(study), _interval(study, _best(study))
    best, high = f"{100 * best.test:.1f} %", f"{100 * high:.1f}"
    return rendered("conclusion.txt.j2", name=study.name, best=best, high=high).strip()


def _best(study: ShallowStudy) -> ShallowModel:
    return max(study.models, key=lambda model: model.dev)


def _interval(study: ShallowStudy, model: ShallowModel) -> tuple[float, float]:
    return wilson(model.test, study.sizes["test"])


def _section(study: ShallowStudy) -> dict[str, Any]:
    """What the page shows of a task."""
    explained, best = explain(study), _best(study)
    return {
        "study": study, "conclusion": conclusion(study), "best": best,
        "best_text": _text(study, best), "reached": int((explained["model"] != "none").sum()),
        "models": [_line(study, model) for model in study.models],
        "published": explained[["attention", "printed", "model", "reference"]].values.tolist(),
    }  # fmt: skip


def _line(study: ShallowStudy, model: ShallowModel) -> list[str]:
    reference, agrees = "", ""
    if (study.name, model.name) in REFERENCE:
        lowest, highest = REFERENCE[study.name, model.name]
        reference = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
        low, high = _interval(study, model)
        ends = [wilson(accuracy / 100, study.sizes["test"]) for accuracy in (lowest, highest)]
        agrees = "yes" if ends[0][0] <= high and low <= ends[1][1] else "no"
    return [model.name, _text(study, model), reference, agrees, f"{model.seconds:.0f}"]


def _text(study: ShallowStudy, model: ShallowModel) -> str:
    low, high = _interval(study, model)
    return f"{100 * model.test:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
