"""The page of findings: what shallow models reach, and which published accuracies that explains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.records.interval import wilson
from harness.records.results import ShallowModel, ShallowStudy
from reports.markdown import rendered
from reports.papers import published

# Test accuracies in % of an independent implementation, lowest and highest, by task and model.
REFERENCE: dict[Any, Any] = {
    (of.task, of.model): (of.lowest, of.highest)
    for of in pd.read_csv(Path(__file__).with_name("shallow.csv")).itertuples()
}


def findings(studies: Sequence[ShallowStudy]) -> str:
    return rendered("findings.md.j2", studies=[_section(study) for study in studies])


def explain(study: ShallowStudy) -> pd.DataFrame:
    found = published(task=study.task.partition("[")[0], unit="%")
    highest = {model.name: 100 * _interval(study, model)[1] for model in study.models}
    models = [
        next((name for name, high in highest.items() if high >= value), "none")
        for value in found["value"]
    ]
    return found.assign(model=models).sort_values("value", kind="stable")


def conclusion(study: ShallowStudy) -> str:
    best, (_, high) = _best(study), _interval(study, _best(study))
    best, high = f"{100 * best.test:.1f} %", f"{100 * high:.1f}"
    return rendered("conclusion.txt.j2", name=study.name, best=best, high=high).strip()


def _best(study: ShallowStudy) -> ShallowModel:
    return max(study.models, key=lambda model: model.dev)


def _interval(study: ShallowStudy, model: ShallowModel) -> tuple[float, float]:
    return wilson(model.test, study.sizes["test"])


def _section(study: ShallowStudy) -> dict[str, Any]:
    explained, best = explain(study), _best(study)
    return {
        "study": study, "conclusion": conclusion(study), "best": best,
        "best_text": _text(study, best), "reached": int((explained["model"] != "none").sum()),
        "models": [_line(study, model) for model in study.models],
        "count": len(explained),
        "published": [
            [model, ", ".join(f"{row} {text}" for row, text in of[["attention", "printed"]].values)]
            for model, of in explained.groupby("model", sort=False)
        ],
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
