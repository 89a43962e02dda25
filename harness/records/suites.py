"""Suites: questions with their recipes, rows, rates and seeds.

A suite is a file `harness/recipes/suites/NAME.toml`, or a file of a user:

    title, version                results of two versions are never compared
    rows = ["A", {attention = "A", options.A.OPTION = VALUE}, ...]
    published = ["PAPER, Table 1"]  sources of published numbers, shown with the results
    weaknesses = ["..."]          limits of the comparison with these numbers
    level = "step"                the results are costs of training steps, instead of runs
    [cost]                        measurements of each row, by default `LAYERS`; see `CostPlan`
    [all]                         fields of every question that does not set them
    [questions.NAME]              see `SuiteQuestion`; in the order of the columns
    [questions.NAME] extends = "OTHER"     the fields of OTHER that NAME does not set

`SUITE@VERSION/QUESTION` names the recipe of a question, which may extend a part of another recipe:
`recipe = "paper"`.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.records.cost import Pass
from harness.records.fields import Count, Frozen, Precision, Rate, require_known
from harness.records.spec import Positions, by_option, label_of
from harness.records.toml_files import Parts, Table, merged, read_toml, validated
from zoo.registry import UserError, Value, layers_in, unknown

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parents[1] / "recipes" / "suites"
SUFFIX = ".toml"
# Columns of published answers that every reader may use.
COLUMNS = (
    "row", "question", "seeds", "mean", "interval", "answered", "baseline", "baseline_value",
    "rate", "version",
)  # fmt: skip
MOST = 512  # The most rows of a suite, and its most questions
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]


class SuiteQuestion(Frozen):
    name: Name
    title: str
    asks: str  # What a model must do, in one sentence
    task: str
    recipe: str = ""  # The recipe that the other fields override; empty for none
    options: Table = Field(default={})
    model: Table = Field(default={})
    train: Table = Field(default={})
    positions: Positions
    precision: Precision
    # Options of variants, by variant; `+V` is V as the last layer of A+V
    variants: dict[str, Table] = Field(default={})
    ceiling: float | None = None  # The score on dev at which training ends: the question is solved
    # Attentions with rotary positions, as in their published set-up, not `positions`
    rotary: tuple[str, ...] = ()
    # Values of `train.lr`; trials with seed 0 choose one by dev. The trial at `train.lr` comes
    # first, and is the only one if it ends at the ceiling. Empty for the recipe's.
    rates: Annotated[tuple[Rate, ...], Field(min_length=2, max_length=16)] = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    # Further seeds of a row whose seeds differ by more than four points
    more_seeds: tuple[Seed, ...] = ()
    note: str = ""  # The limit of the question, in one sentence; pages show it
    published: str = ""  # The key of the task whose published numbers are shown with the results
    # Of the first target of a test sequence; the horizon is the last position of 90 %
    first_position: Annotated[int, Field(ge=0)] = 0
    # The probe of the longest sequences: it has a column, and the advisor ranks by it
    longest_probe: str = ""

    @property
    def longest_title(self) -> str:
        return f"{self.title} ({self.longest_probe})"

    def positions_of(self, attention: str) -> Positions:
        return "rotary" if attention in self.rotary else self.positions

    def model_post_init(self, _: Any) -> None:
        if not self.rates and not self.recipe and "lr" not in self.train:
            raise ValueError("rates is missing; set it, or train.lr, or recipe")
        seeds = (*self.seeds, *self.more_seeds)
        for name, values in (("rates", self.rates), ("seeds", seeds)):
            if len({*values}) < len(values):
                raise ValueError(f"{name}: a value is there twice; remove one")
        if self.rates and 0 in seeds:
            raise ValueError("seeds: seed 0 chooses the rate, so it is not counted; remove it")


class SuiteRow(Frozen):
    """A row of a suite: `A` or `A+B`, and options that differ from the recipes, by variant."""

    attention: Annotated[str, Field(max_length=4096)]
    options: dict[str, dict[str, Value]] = Field(default={})

    def model_post_init(self, _: Any) -> None:
        if unused := self.options.keys() - {*layers_in(self.attention)}:
            raise ValueError(f"{self.attention} does not use {min(unused)!r}; remove its options")

    @model_validator(mode="before")
    @classmethod
    def _read_name(cls, value: Any) -> Any:
        return {"attention": value} if isinstance(value, str) else value

    @property
    def label(self) -> str:
        return label_of(self.attention, by_option(self.options))


class CostPlan(Frozen):
    """The measurements of each row of a suite; `batch` is by pass, as in `harness cost`."""

    lengths: Annotated[tuple[Count, ...], Field(min_length=1)]
    passes: Annotated[tuple[Pass, ...], Field(min_length=1)]
    precision: Precision
    dim: Count
    heads: Count
    batch: dict[Pass, str]
    level: Literal["layer", "step"] = "layer"
    causal: tuple[bool, ...] = (False, True)

    @property
    def middle_length(self) -> int:
        # A matrix orders its rows by the time at this length.
        return sorted(self.lengths)[(len(self.lengths) - 1) // 2]

    @property
    def longest_length(self) -> int:
        # Figures of the mean of a suite place rows by the time at this length.
        return max(self.lengths)

    def model_post_init(self, _: Any) -> None:
        if missing := set(self.passes) - self.batch.keys():
            raise ValueError(f"pass {min(missing)!r} has no batch; add it to cost.batch")


LAYERS = CostPlan(  # by default
    lengths=(1024, 4096, 16384), passes=("train", "prefill", "decode"), precision="fp32", dim=64,
    heads=2, batch={"train": "tokens=16384", "prefill": "1", "decode": "1"},
)  # fmt: skip


class Suite(Frozen):
    """A named set of questions and of rows that are trained on them, in order; see the module."""

    name: str
    version: Count
    title: str
    rows: Annotated[tuple[SuiteRow, ...], Field(min_length=1, max_length=MOST)]
    questions: Annotated[tuple[SuiteQuestion, ...], Field(min_length=1)]
    # Sources in `reports/published`; the first one with a number counts
    published: tuple[str, ...] = ()
    weaknesses: tuple[str, ...] = ()
    level: Literal["run", "step"] = "run"
    cost: CostPlan = LAYERS
    first: tuple[str, ...] = ()  # The questions of `harness run --attention A`, scored by accuracy
    average: bool = False  # Whether its table has the mean over its questions

    def model_post_init(self, _: Any) -> None:
        labels = [row.label for row in self.rows]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(f"row {min(twice)!r} is there twice; remove one")
        if unknown_names := {*self.first} - {question.name for question in self.questions}:
            raise ValueError(f"first: {min(unknown_names)!r} is no question; remove it")

    @property
    def has_costs(self) -> bool:
        return self.level == "run" and (self.average or not self.published)

    @property
    def key(self) -> str:
        return f"{self.name}@{self.version}"

    def question(self, name: str) -> SuiteQuestion:
        questions = {question.title: question for question in self.questions}
        questions |= {question.name: question for question in self.questions}
        require_known(f"question of {self.key}", [name], questions)
        return questions[name]


PARTS: Parts = {"rows": SuiteRow, "cost": CostPlan}


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str) -> Suite:
    if name.endswith(SUFFIX):
        path, label = Path(name), f"suite file {name!r}"
        if path.stem in names():
            raise UserError(f"{label} has the name of a built-in suite; rename the file")
        return _parse(path.stem, read_toml(path, label, f"copy {FOLDER / 'laptop.toml'}"), label)
    plain, _, version = name.partition("@")
    suite = _built_in(plain, FOLDER)
    if version not in ("", str(suite.version)):
        raise UserError(f"suite {name!r} is not in this release, which has {suite.key!r}; use that")
    return suite


def show(name: str) -> str:
    return (FOLDER / f"{find(name).name}{SUFFIX}").read_text("utf-8")


def published(suite: Suite) -> "pd.DataFrame":
    # `answers` of `reports.suite_results.SuiteResults`, with `rate`, the `train.lr` that trials
    # chose, and `version`, the code of the runs. `python -m harness.cli.pages` writes the file.
    import pandas as pd

    path = FOLDER / f"{suite.name}.csv"
    if not path.exists():
        return pd.DataFrame(columns=[*COLUMNS])
    # `none` and `nan` may be names.
    missing: Any = dict.fromkeys(("mean", "low", "high", "baseline_value", "rate"), "")
    found = pd.read_csv(path, keep_default_na=False, na_values=missing)
    # A text that a spreadsheet would take for a formula was written after a quote.
    return found.assign(baseline=found["baseline"].str.replace(r"^'(?=[=+@-])", "", regex=True))


@cache
def _built_in(name: str, folder: Path) -> Suite:
    if name not in names():
        raise UserError(unknown("suite", name, [*names(), "FILE.toml"]))
    label = f"suite {name!r}"
    return _parse(name, read_toml(folder / f"{name}{SUFFIX}", label, "reinstall"), label)


def _parse(name: str, tables: Table, label: str) -> Suite:
    tables = {"name": name, "questions": {}, **tables}
    questions, shared = tables["questions"], tables.pop("all", {})
    tables["questions"] = []
    try:
        if len(questions) > MOST:
            raise UserError(f"{label}: {len(questions)} questions are over {MOST}; give fewer")
        for name in questions:
            where, table = f"{label}, question {name!r}: ", dict(questions[name])
            extends = table.pop("extends", None)
            if extends is not None and "extends" in questions.get(extends, {"extends": ""}):
                raise UserError(
                    f"question {name!r} extends {extends!r}; name one that extends none"
                )
            for base in (questions[extends] if extends else {}, shared):
                table = merged(base, table)
            table["name"] = name
            tables["questions"].append(
                validated(SuiteQuestion, table, where, parts=PARTS, strict=True)
            )
    except (AttributeError, LookupError, TypeError) as error:
        raise UserError(
            f"{label}: 'all' and each of 'questions' must be a table; write them as tables"
        ) from error
    return validated(Suite, tables, f"{label}: ", parts=PARTS, strict=True)
