"""The runs that tables show, the reasons for which others are left out, and how runs ended."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import pandas as pd

from harness.records.frame import best_trials_first, dotted, is_newest
from harness.records.record import FINAL
from harness.records.spec import Question, label_of
from reports.table import Line
from reports.text import plain, threads_of, whole

# Text for fields whose names are not clear; other fields have their names.
WORDS = {
    "model.dim": "width",
    "model.feed_forward": "feed-forward width",
    "model.head": "classifier width",
    "model.short_conv": "taps of short convolutions",
    "train.warmup": "warm-up steps",
    "train.lr": "learning rate",
    "train.evaluations": "validation evaluations",
}

REASON = 200  # The most characters of a reason in a table; the record has the complete reason


def questions(runs: pd.DataFrame, varied: str = "") -> pd.DataFrame:
    # `varied` is a field in which the runs of a question may differ, as `task.pairs`.
    # New columns: `question`, its title with device and machine; `setting`, its recipe as text;
    # `chosen`, the values that were chosen for the row by their field; `row`, with what was chosen
    # for it, `primal[rank=8] [lr=0.001]`; and `left_out`, why it is not shown, or empty.
    if runs.empty:
        return runs.assign(question="", setting="", chosen="", row="", left_out="")
    runs = runs.sort_values(["id", "started"]).drop_duplicates(["id", "machine"], keep="last")
    # The data of the task may depend on a varied option.
    keys = ["asked", "device", "machine", *(() if varied else ("data",))]
    asked = [_without(text, varied) for text in runs["asked"]] if varied else runs["question.id"]
    group = runs.assign(asked=asked).groupby(keys, sort=False).ngroup()
    same = {number: of.to_dict("records") for number, of in runs.groupby(group)}
    titles = {number: _title(of, varied) for number, of in same.items()}
    count = Counter(titles.values())
    for number, (run, *_) in same.items():
        if count[titles[number]] > 1:
            titles[number] += f" ({run['question.id']}, {run['data']})"
    settings = {number: _setting(of[0], varied) for number, of in same.items()}
    chosen = runs["values"].where(runs["role"] != "trial", "{}").map(json.loads)
    overrides = [
        {path: value for path, value in json.loads(text).items() if path != varied}
        for text in runs["overrides"]
    ]
    labels = pd.Series([*map(label_of, runs["attention"], overrides)], runs.index)
    found = runs.assign(
        question=group.map(titles), setting=group.map(settings), chosen=chosen,
        row=labels + chosen.map(_chosen), left_out="",
    )  # fmt: skip
    found.loc[~is_newest(found), "left_out"] = "of an older version of the task"
    of_row = ["question", "attention", "options"]
    found = without_others(found, [(of_row, "version", "of other code of the row")])
    return found.sort_values(["question", "seed", "id", "machine"], ignore_index=True)


def without_others(
    runs: pd.DataFrame, rules: Sequence[tuple[Sequence[str], str, str]]
) -> pd.DataFrame:
    # Mark as `left_out` the runs whose value is not the one that is shown of their group.
    # A rule is what is equal in a group, the column of the value, and the reason. A group is shown
    # as its last run that is not outdated has it, or as its last run, where all are outdated.
    last_first = runs.sort_values("started", ascending=False, kind="stable")
    ordered, runs = last_first.sort_values("outdated", kind="stable").index, runs.copy()
    for keys, column, reason in rules:
        left = runs.loc[ordered].query("left_out == ''")
        shown = left.groupby([left[key] for key in keys])[column].transform("first")
        runs.loc[left.index[left[column] != shown], "left_out"] = reason
    return runs


def final_runs(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    # The runs at the values that trials chose; of a row without such a run its trials.
    # Of the trials only the best, once all have ended: a single seed; all of them, if none
    # finished. A row is what is equal in the keys.
    if runs.empty:
        return runs
    final = runs["role"] != "trial"
    has_final = final.groupby([runs[key] for key in keys]).transform("any")
    trials = runs[~final & ~has_final]
    chosen = [at for _, same in trials.groupby([*keys], sort=False) for at in _best(same)]
    return runs[final | runs.index.isin(chosen)]


def _best(trials: pd.DataFrame) -> pd.Index:
    points = points_of(trials["grid"].iloc[0])
    if trials[trials["status"].isin(FINAL)]["point"].nunique() < points:
        return trials.index[:0]
    finished = trials[trials["status"] == "ok"]
    return best_trials_first(finished).index[:1] if len(finished) else trials.index


def points_of(grid: str) -> int:
    return prod(map(len, json.loads(grid).values())) if grid else 0


def failures(runs: pd.DataFrame) -> str:
    failed = runs[runs["status"] != "ok"]
    texts = pd.Series([*map(failure, failed.to_dict("records"))], failed.index, dtype=object)
    if len(failed) == len(runs) and texts.nunique() == 1:
        return str(texts.iloc[0])
    seeds = failed["seed"].astype(str).groupby(texts, sort=False).agg(", ".join)
    return "; ".join(f"seed {names} {reason}" for reason, names in seeds.items())


def failure(run: Line) -> str:
    status, reason = run["status"].replace("_", " "), plain(run["reason"], REASON)
    if not reason:
        step = run.get("last_step")
        return status if pd.isna(step) else f"{status} at step {int(step)}"
    return reason if status in reason.lower() else f"{status}: {reason}"


def field_text(path: str) -> str:
    return WORDS.get(path, path.rpartition(".")[2].replace("_", " "))


def _without(asked: str, varied: str) -> str:
    question, (owner, _, option) = json.loads(asked), varied.partition(".")
    is_task = owner in ("task", question["task"]["name"])
    part = question["task"]["options"] if is_task else question.get(owner, {})
    for fields, name in ((question, "name"), (question["task"], "key"), (part, option)):
        fields.pop(name, None)
    return json.dumps(question, sort_keys=True)


def _title(runs: Sequence[Line], varied: str) -> str:
    run, option = runs[0], varied.partition(".")[2]
    title = run["title"]
    if varied:
        task = re.sub(rf"(?<=[\[,]){re.escape(option)}=[^,\]]*,?", "", run["task"])
        title = f"{task.replace(',]', ']').replace('[]', '')}, recipe {run['recipe']}"
    title = f"{title}, {run['device']}: {run['machine']}"
    threads = threads_of(*sorted({run["threads"] for run in runs}))
    return f"{title}, {threads}" if run["device"] == "cpu" else title


def _chosen(values: Mapping[str, object]) -> str:
    texts = ", ".join(f"{path.partition('.')[2]}={value}" for path, value in values.items())
    return f" [{texts}]" if texts else ""


def _setting(run: Line, varied: str) -> str:
    question = Question.model_validate_json(run["asked"])
    of_rows, sentences = {varied, *json.loads(run["values"])}, []
    for part, title in (("model", "Model"), ("train", "Training")):
        fields = getattr(question, part)
        changed = dotted(part, fields.model_dump(exclude_defaults=True, exclude={"kind"}))
        texts = {path: "of the row" if path in of_rows else _text(value)
                 for path, value in dotted(part, fields.model_dump()).items()
                 if path in changed or path in of_rows}  # fmt: skip
        named = (f"{field_text(path)} {text}" for path, text in texts.items() if text)
        sentences.append(f"{title}: {', '.join(named)}.")
    return " ".join(sentences)


def _text(value: object) -> str:
    value = whole(value)
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    if value is None or value is False:
        return ""
    return "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
