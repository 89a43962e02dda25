"""Runs of no suite as a suite that is made on the fly: each task with its recipe is a question."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.recipes import declared, of_question
from harness.records.frame import TIMES, best_first, is_newest
from harness.records.suites import LAYERS, CostPlan, Suite, SuiteQuestion, SuiteRow, find, names
from reports.pages.suite import Catalogue, Tables, tables
from reports.shown import final_runs
from reports.suite_results import comparable
from reports.table import Line

NAME = "runs"  # Of the suite and its files

# Words for fields whose names are not clear
WORDS = {
    "model.dim": "width", "model.feed_forward": "feed-forward width",
    "model.head": "classifier width", "model.short_conv": "taps of short convolutions",
    "train.warmup": "warm-up steps", "train.lr": "learning rate",
    "train.evaluations": "validation evaluations",
}  # fmt: skip

# The name of a question of no suite, as `harness.records.spec.Question` has it
TITLE = re.compile(
    r"(?P<task>.*?)@\d+(?:\[(?P<options>.*?)\])?, recipe (?P<recipe>.*?)"
    r"(?: with (?P<changes>.*?))?(?P<matched>, \w+ matched)?(?P<tuned> tuned over .*)?"
)

# Columns of a run in the CSV file, in addition to those of a suite
OF_A_SEED = (
    "title", "values", "best_on_test", "parameters", "flops", "state_bytes", "reference",
    "peak_bytes", "memory_ratio", "inference_reference",
    *(f"{name}{end}" for name in TIMES for end in ("", ".q1", ".q3")),
)  # fmt: skip

ROWS = (SuiteRow(attention="softmax"),)  # A suite needs a row; a table has the rows of its runs


def tables_of(
    runs: pd.DataFrame, baselines: pd.DataFrame, costs: pd.DataFrame, catalogue: Catalogue,
    attentions: Collection[str] = (),
) -> Tables:  # fmt: skip
    asks = {task["name"]: f"{task['title']}." for task in catalogue["tasks"]}
    suite, runs = _suite(runs, costs, asks)
    of = tables(suite, runs, baselines, costs, catalogue, attentions=attentions, more=OF_A_SEED)
    return of._replace(missing=(), added=tuple(of.answers["row"].unique()), command="")


def chosen(runs: pd.DataFrame) -> tuple[Suite, pd.DataFrame]:
    suite, runs = _suite(runs, pd.DataFrame(), {})
    runs = comparable(runs, suite)
    return suite, final_runs(runs[runs["left_out"] == ""], ["question", "row"])


def _suite(
    runs: pd.DataFrame, costs: pd.DataFrame, asks: Mapping[str, str]
) -> tuple[Suite, pd.DataFrame]:
    # The runs of a question share `question.id`, positions and the kind of device. Its title has
    # the words that not all questions share; the suite's title has the tasks and the shared words.
    keys = ["question.id", "device", "model.positions"]
    runs = runs.assign(**{"model.positions": runs["model.positions"].fillna("")})
    each = runs.sort_values(["title", *keys]).drop_duplicates([*keys, "attention"])
    # A title names positions that are unusual for one of its variants.
    first = [max(same.to_dict("records"), key=lambda run: len(_words(run)))
             for _, same in each.groupby(keys, sort=False)]  # fmt: skip
    words = [_words(run) for run in first]
    if len({run["device"] for run in first}) > 1:
        words = [[*of, run["device"]] for of, run in zip(words, first, strict=True)]
    words = [[*of, run["question.id"]] if words.count(of) > 1 else of
             for of, run in zip(words, first, strict=True)]  # fmt: skip
    shared = [word for word in words[0] if all(word in of for of in words)]
    titles = [", ".join(word for word in of if word not in shared) or of[0] for of in words]
    heading = ", ".join(dict.fromkeys([*(of[0] for of in words), *shared]))
    questions: list[SuiteQuestion] = []
    for run, title, name, of in zip(first, titles, _names(titles), words, strict=True):
        asked: Any = json.loads(run["asked"])
        task, model, train = (asked[part] for part in ("task", "model", "train"))
        questions.append(SuiteQuestion(
            name=name, title=title, asks=asks.get(task["name"], ""), note=", ".join(of),
            task=task["name"], options=task["options"], model=model, train=train, seeds=(1,),
            positions=model.get("positions", "none"), precision=train["precision"],
            ceiling=train.get("stop_at"),
        ))  # fmt: skip
    suite = Suite(
        name=NAME, version=1, title=heading, rows=ROWS, questions=tuple(questions),
        cost=_plan(runs, costs),
    )  # fmt: skip
    digests = declared(suite)
    by_key = {tuple(run[key] for key in keys): question.name
              for run, question in zip(first, questions, strict=True)}  # fmt: skip
    of_runs = [by_key[key] for key in zip(*(runs[key] for key in keys), strict=True)]
    left_out = is_newest(runs).map({True: "", False: "of an older version of the task"})
    runs = runs.assign(
        suite=suite.key, question=of_runs, declared=[digests[name] for name in of_runs],
        left_out=left_out,
    )  # fmt: skip
    return suite, runs.sort_values(["question", "row", "seed", "id"], ignore_index=True)


def _words(run: Line) -> list[str]:
    # The task, the recipe, and what differs from it.
    found = TITLE.fullmatch(run["title"])
    if not found:
        _, question = _question_of(run["title"])
        positions = run["model.positions"]
        if question is None or positions == question.positions_of(run["attention"]):
            return [run["title"]]
        metric = [run["metric"]] if run["metric"] != "accuracy" else []
        return [question.task, f"recipe {run['title']}", f"positions {positions}", *metric]
    recipe, options = found["recipe"], json.loads(run["asked"])["task"]["options"]
    usual = _options(recipe, run["task.name"])
    texts = [*re.split(r",(?=\w+=)", found["options"] or ""), *(found["changes"] or "").split(", ")]
    changes = {name: options[name] for name in sorted(usual.keys() & options.keys())}
    changes |= {name: v for name, _, v in (text.partition("=") for text in texts) if name}
    changes = {name: value for name, value in changes.items()
               if name not in usual or str(usual[name]) != str(value)}  # fmt: skip
    return [
        found["task"], f"recipe {recipe}",
        *(f"{WORDS.get(path, path.rpartition('.')[2].replace('_', ' '))} {value}".strip()
          for path, value in changes.items()),
        *filter(None, [(found["matched"] or "")[2:], "tuned" * bool(found["tuned"])]),
        *([run["metric"]] if run["metric"] != "accuracy" else []),
    ]  # fmt: skip


def _options(recipe: str, task: str) -> Mapping[str, Any]:
    # The options of a question of a built-in suite; empty for other recipes.
    suite, question = _question_of(recipe)
    if suite is None or question is None:
        return {}
    return of_question(suite, question.name).of_task(task).options


def _question_of(recipe: str) -> tuple[Suite, SuiteQuestion] | tuple[None, None]:
    key, _, name = recipe.rpartition("/")
    suite = find(named) if (named := key.partition("@")[0]) in names() else None
    by_name = {of.name: of for of in suite.questions} if suite and suite.key == key else {}
    return (suite, by_name[name]) if suite and name in by_name else (None, None)


def _names(titles: Sequence[str]) -> list[str]:
    found: list[str] = []
    for title in titles:
        name = re.sub("[^a-z0-9]+", "-", title.lower())[:27].strip("-") or "question"
        again = sum(name in (other, other.rpartition("--")[0]) for other in found)
        found.append(f"{name}--{again + 1}" if again else name)
    return found


def _plan(runs: pd.DataFrame, costs: pd.DataFrame) -> CostPlan:
    # The training steps of most runs.
    if costs.empty:
        return LAYERS
    steps = costs[(costs["level"] == "step") & (costs["pass"] == "train")]
    steps = steps[steps["row"].isin(runs["row"]) & steps["task"].isin(runs["task"])]
    if steps.empty:
        return LAYERS
    settings = ["precision", "dim", "heads", "batching"]
    group = steps.groupby(settings).ngroup()
    steps = steps[group == group.mode().max()]
    precision, dim, heads, batching = steps[settings].iloc[0]
    return CostPlan(
        level="step", lengths=tuple(sorted({*steps["length"].tolist()})), passes=("train",),
        precision=precision, dim=int(dim), heads=int(heads), batch={"train": batching},
    )  # fmt: skip


def experiments(unnamed: Tables, suite: str) -> Sequence[Line]:
    # The runs of questions of the suite with other settings.
    if unnamed.answers.empty:
        return []
    old = unnamed.seeds.groupby(["question", "row"])["outdated"].any().rename("outdated")
    results = unnamed.answers[unnamed.answers["status"] != ""].join(old, on=["question", "row"])
    words = results["question"].map({of.name: of.note for of in unnamed.suite.questions})
    changes = words.str.extract(rf", recipe {re.escape(suite)}/(.*)$", expand=False)
    order = best_first(results["mean"], results["better"])
    results = results.assign(changes=changes, order=order).dropna(subset=["changes"])
    results = results.sort_values(["changes", "order", "row"])
    return results.to_dict("records")
