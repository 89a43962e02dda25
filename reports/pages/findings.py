"""The page of findings: what shallow models reach, and which published accuracies that explains."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.records.interval import wilson
from harness.records.shallow import ShallowModel, ShallowStudy
from reports.papers import Number, published_on
from reports.render import rendered

CONCLUSIONS = {
    "listops": (
        "The richest model matches brackets and counts operators and digits to depth 2; it applies "
        "no operator. It reaches {best}: only an accuracy above {high} %, about 60 %, shows that "
        "operators are composed."
    ),
    "text": (
        "Runs of four bytes reach {best}: only an accuracy above {high} % shows that more than "
        "local spelling is used. Published accuracies may be those of reviews cut at 1,000 bytes, "
        "as in the arena's released configuration."
    ),
    "image": (
        "A perceptron on the pixels, without any notion of neighbourhood, reaches {best}: only an "
        "accuracy above {high} % shows that a model uses more than each pixel at its place."
    ),
    "pathfinder": (
        "The positions of the two discs and their surroundings reach {best}, without following a "
        "curve: only an accuracy above {high} % shows that curves are followed."
    ),
}
"""What follows, by task; `{best}` is the best accuracy, `{high}` the end of its interval."""

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


class Explanation(NamedTuple):
    """A published accuracy, and the simplest shallow model that reaches it, if one does."""

    number: Number
    model: ShallowModel | None


def findings(studies: Sequence[ShallowStudy]) -> str:
    """The page as Markdown."""
    return rendered("findings.md.j2", studies=[_section(study) for study in studies])


def explain(study: ShallowStudy) -> list[Explanation]:
    """Every published accuracy on the task of a study, the lowest first."""
    numbers = sorted(_published(study), key=lambda number: float(number.value))
    return [
        Explanation(number, next((m for m in study.models if _reaches(study, m, number)), None))
        for number in numbers
    ]


def conclusion(study: ShallowStudy) -> str:
    """What the shallow models of a task show."""
    best, (_, high) = _best(study), _interval(study, _best(study))
    return CONCLUSIONS[study.name].format(best=f"{100 * best.test:.1f} %", high=f"{100 * high:.1f}")


def _best(study: ShallowStudy) -> ShallowModel:
    return max(study.models, key=lambda model: model.dev)


def _published(study: ShallowStudy) -> list[Number]:
    """Those on the version of the task; sizes of its splits may differ."""
    return published_on(study.task.partition("[")[0], "%")


def _reaches(study: ShallowStudy, model: ShallowModel, number: Number) -> bool:
    return 100 * _interval(study, model)[1] >= float(number.value)


def _interval(study: ShallowStudy, model: ShallowModel) -> tuple[float, float]:
    return wilson(model.test, study.sizes["test"])


def _section(study: ShallowStudy) -> dict[str, Any]:
    """What the page shows of a task."""
    explained = explain(study)
    return {
        "study": study,
        "conclusion": conclusion(study),
        "best": _best(study),
        "best_text": _text(study, _best(study)),
        "reached": sum(one.model is not None for one in explained),
        "models": [_line(study, model) for model in study.models],
        "published": [
            [number.attention, number.value, model.name if model else "none", number.reference]
            for number, model in explained
        ],
    }


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
