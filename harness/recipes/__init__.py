"""Recipes: named settings of the model, the optimiser, and the options of tasks and variants.

A recipe is a TOML file. Its tables, the more specific ones applied last:

    [model]                       the model, on every task
    [tasks.TASK.model]            the model, on one task
    [train]                       the optimiser, on every task
    [tasks.TASK.train]            the optimiser, on one task
    [other.train]                 the optimiser, on every task without a table
    [other.options]               options of each of these tasks that has all of them
    [tasks.TASK] extends = "X"    [shared.X] is applied before [tasks.TASK]
    [tasks.TASK.options]          options of the task
    [variants.VARIANT]            options of a variant, on every task
    [tasks.TASK.variants.V]       options of a variant, on one task; "+V": in A+V
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from harness.records import suites
from harness.records.fields import Frozen, require_known
from harness.records.suites import SUFFIX, Suite, SuiteQuestion
from harness.records.toml_files import Parts, Table, merged, read_toml, validated
from zoo.registry import UserError, Value, unknown
from zoo.registry import options_of as options_of_task

NAMES = ("smoke", "laptop", "paper")  # By their number of steps
FOLDER = Path(__file__).parent


class TaskRecipe(Frozen):
    extends: str = ""
    options: Table = Field(default={})
    model: Table = Field(default={})
    train: Table = Field(default={})
    variants: dict[str, Table] = Field(default={})

    def override(self, base: "TaskRecipe") -> "TaskRecipe":
        tables = merged(base.model_dump(), self.model_dump())
        return TaskRecipe(**{**tables, "extends": ""})


class Recipe(Frozen):
    name: str
    model: Table = Field(default={})
    train: Table = Field(default={})
    variants: dict[str, Table] = Field(default={})
    tasks: dict[str, TaskRecipe] = Field(default={})
    other: TaskRecipe | None = None  # The recipe of tasks that `tasks` does not name
    shared: dict[str, TaskRecipe] = Field(default={})
    # The question of a suite, which fixes positions and precision; `tasks` has only its task
    question: SuiteQuestion | None = None

    def of_task(self, task: str) -> TaskRecipe:
        recipe = self.tasks.get(task, self.other)
        if recipe is None:
            raise UserError(
                f"recipe {self.name!r} has no part for task {task!r}; it has parts for "
                f"{', '.join(self.tasks) or 'none'}; use recipe 'laptop' or 'smoke'"
            )
        if task not in self.tasks and recipe.options:
            from tasks.registry import tasks

            if not {*recipe.options} <= {*options_of_task(tasks.find(task))}:
                recipe = recipe.model_copy(update={"options": {}})
        if recipe.extends:
            if recipe.extends not in self.shared:
                reason = unknown("shared recipe", recipe.extends, self.shared)
                raise UserError(f"recipe {self.name!r}, task {task!r}: {reason}")
            recipe = recipe.override(self.shared[recipe.extends])
        base = TaskRecipe(model=self.model, train=self.train, variants=self.variants)
        return recipe.override(base)

    @property
    def declared(self) -> str:
        # Without options of variants, which belong to a row. Empty without a question.
        if self.question is None:
            return ""
        fields = {"name", "title", "asks", "note", "variants", "rotary", "seeds", "more_seeds",
                  "published", "first_position", "longest_probe"}  # fmt: skip
        table = self.question.model_dump(mode="json", exclude=fields)
        table |= self.of_task(self.question.task).model_dump(mode="json", exclude={"variants"})
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def options_of(
    variants: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Value]]:
    later = {name: variants.get(f"+{name}", {}) for name in names[1:]}
    return {name: {**variants.get(name, {}), **later.get(name, {})} for name in names}


PARTS: Parts = dict.fromkeys(("tasks", "other", "shared"), TaskRecipe)


def find(name: str) -> Recipe:
    suite, _, question = name.rpartition("/")
    if suite and not name.endswith(SUFFIX):
        return of_question(suites.find(suite), question)
    if not name.endswith(SUFFIX):
        return _built_in(name)
    path, label = Path(name), f"recipe file {name!r}"
    if path.stem in NAMES:
        raise UserError(f"{label} has the name of a built-in recipe; rename the file")
    tables = read_toml(path, label, "print one with: harness list --budget laptop")
    return _parse(path.stem, tables, label)


def of_question(suite: Suite, name: str) -> Recipe:
    # By default the rate is the middle one of its rates.
    question = suite.question(name)
    if "/" in question.recipe and not question.recipe.endswith(SUFFIX):
        raise UserError(
            f"question {name!r} of {suite.key} has recipe {question.recipe!r}, which is itself a "
            f"question; give {', '.join(NAMES)} or a TOML file"
        )
    rates = sorted(question.rates)
    rate = {"lr": rates[len(rates) // 2]} if rates else {}
    end = {} if question.ceiling is None else {"stop_at": question.ceiling}
    recipe = TaskRecipe(
        options=question.options, model=question.model, train=rate | end | question.train,
        variants=question.variants,
    )  # fmt: skip
    if question.recipe:
        recipe = recipe.override(find(question.recipe).of_task(question.task))
    return Recipe(name=f"{suite.key}/{name}", tasks={question.task: recipe}, question=question)


def declared(suite: Suite) -> dict[str, str]:
    return {of.name: of_question(suite, of.name).declared for of in suite.questions}


def of_suite(suite: Suite) -> dict[str, TaskRecipe]:
    return {
        question.name: of_question(suite, question.name).of_task(question.task)
        for question in suite.questions
    }


def shared_options(suite: Suite) -> dict[str, dict[str, Value]]:
    # The options of variants that every question gives: costs are measured with them.
    first, *others = (recipe.variants for recipe in of_suite(suite).values())
    return {
        name: {option: value for option, value in options.items()
               if all(other.get(name, {}).get(option) == value for other in others)}
        for name, options in first.items()
    }  # fmt: skip


def show(name: str) -> str:
    require_known("recipe", [name], NAMES)
    return (FOLDER / f"{name}{SUFFIX}").read_text("utf-8")


@cache
def _built_in(name: str) -> Recipe:
    if name not in NAMES:
        raise UserError(unknown("recipe", name, [*NAMES, "FILE.toml"]))
    return _parse(name, tomllib.loads(show(name)), f"recipe {name!r}")


def _parse(name: str, tables: Mapping[str, Any], label: str) -> Recipe:
    for field in ("name", "question"):
        if field in tables:
            raise UserError(f"{label}: the file's name is the recipe's name; remove {field!r}")
    fields = {"model": {}, **tables, "name": name}
    if name not in NAMES and isinstance(fields["model"], Mapping):
        fields["model"] = {**_built_in("paper").model, **fields["model"]}
    return validated(Recipe, fields, f"{label}: ", parts=PARTS)
