"""The page of findings: what shallow models reach, and which published accuracies that explains."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from harness.records.interval import wilson
from harness.records.shallow import ShallowModel, ShallowStudy
from reports.markdown import escape, table
from reports.papers import Number, published_on

HEAD = """\
# What shallow models reach on the Long Range Arena

The models of this page have no attention: linear models, boosted trees, one perceptron. They are
fitted to train, chosen on dev, and read test once, at the length of the published tasks.
`python -m harness.cli.pages --fit` fits them; the records are in `results/shallow/`.

A published accuracy that such a model reaches is no evidence of attention: the *simplest model that
reaches it* is the first of the task's list whose 95 % interval (Wilson, of the test split) ends at
or above it. *Reference*: the accuracy of an independent implementation, with other penalties,
rounds and random draws; *yes*: its interval on a test split of that size and ours overlap.
"""

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
    parts = [HEAD, *_overview(studies)]
    for study in studies:
        parts += _section(study)
    return "\n".join(parts)


def explain(study: ShallowStudy) -> list[Explanation]:
    """Every published accuracy on the task of a study, the lowest first."""
    numbers = sorted(_published(study), key=lambda number: float(number.value))
    return [
        Explanation(number, next((m for m in study.models if _reaches(study, m, number)), None))
        for number in numbers
    ]


def conclusion(study: ShallowStudy) -> str:
    """What the shallow models of a task show."""
    best = max(study.models, key=lambda model: model.dev)
    high = f"{100 * _interval(study, best)[1]:.1f}"
    return CONCLUSIONS[study.name].format(best=f"{100 * best.test:.1f} %", high=high)


def _published(study: ShallowStudy) -> list[Number]:
    """Those on the version of the task; sizes of its splits may differ."""
    return published_on(study.task.partition("[")[0], "%")


def _reaches(study: ShallowStudy, model: ShallowModel, number: Number) -> bool:
    return 100 * _interval(study, model)[1] >= float(number.value)


def _interval(study: ShallowStudy, model: ShallowModel) -> tuple[float, float]:
    return wilson(model.test, study.sizes["test"])


def _overview(studies: Sequence[ShallowStudy]) -> Iterator[str]:
    rows = []
    for study in studies:
        explained = explain(study)
        reached = sum(one.model is not None for one in explained)
        best = max(study.models, key=lambda model: model.dev)
        rows.append([study.name, _text(study, best), best.name, f"{reached} of {len(explained)}"])
    head = ["task", "best shallow model (%)", "what it reads", "published rows that it reaches"]
    yield table(head, [[escape(cell) for cell in row] for row in rows])


def _section(study: ShallowStudy) -> Iterator[str]:
    yield f"## {study.name}\n"
    sizes = ", ".join(f"{count:,} {split}" for split, count in study.sizes.items())
    yield f"`{study.task}`: {sizes}; {escape(study.environment.device)}, commit " + (
        f"{escape(', '.join(study.environment.commits))}.\n"
    )
    yield conclusion(study) + "\n"
    head = ["shallow model", "test accuracy (%)", "reference (%)", "agrees", "seconds"]
    rows = [_line(study, model) for model in study.models]
    yield table(head, [[escape(cell) for cell in row] for row in rows])
    head = ["published", "accuracy (%)", "simplest model that reaches it", "source"]
    rows = [
        [number.attention, number.value, model.name if model else "none", number.reference]
        for number, model in explain(study)
    ]
    yield table(head, [[escape(cell) for cell in row] for row in rows])


def _line(study: ShallowStudy, model: ShallowModel) -> list[str]:
    reference, agrees = "", ""
    if (study.name, model.name) in REFERENCE:
        lowest, highest = REFERENCE[study.name, model.name]
        reference = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
        low, high = _interval(study, model)
        examples = study.sizes["test"]
        overlap = wilson(lowest / 100, examples)[0] <= high
        overlap &= low <= wilson(highest / 100, examples)[1]
        agrees = "yes" if overlap else "no"
    return [model.name, _text(study, model), reference, agrees, f"{model.seconds:.0f}"]


def _text(study: ShallowStudy, model: ShallowModel) -> str:
    low, high = _interval(study, model)
    return f"{100 * model.test:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
