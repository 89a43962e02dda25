"""The tables of runs: a question on one machine, its rows, and its setting as text."""

import json
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import prod
from typing import Any

import pandas as pd

from harness.records.frame import is_newest, newest
from harness.records.models import MODELS
from harness.records.spec import TrainSpec, by_option, label_of
from reports import outdated
from reports.text import plain, threads_of

WORDS = {
    "model.dim": "width",
    "model.feed_forward": "feed-forward width",
    "model.head": "classifier width",
    "model.short_conv": "taps of short convolutions",
    "train.warmup": "warm-up steps",
    "train.lr": "learning rate",
    "train.evaluations": "validation evaluations",
}
"""Text for fields whose names are not clear; other fields have their names."""

KINDS = {"model": [*MODELS.values()], "train": [TrainSpec]}
DEFAULTS = {
    f"{part}.{name}": field.default
    for part, kinds in KINDS.items()
    for kind in kinds
    for name, field in kind.model_fields.items()
    if not field.is_required()
}
"""The values that recipes leave out."""

CHOSEN = "of the row"
"""The text of a field whose value was chosen for each row."""

SHARED = ("question.id", "device", "machine", "data")
"""Columns that the runs of a question share."""

REASON = 200
"""The most characters of a reason in a table; the record has the complete reason."""

Run = Mapping[Hashable, Any]
"""A line of a frame of runs."""


def questions(runs: pd.DataFrame, varied: str = "", *, trials: bool = False) -> pd.DataFrame:
    """The runs that tables show, each with its question and row, in order of question and seed.

    Left out are runs of older versions of a task and of other code than the row has, see
    `left_out`, of several records of a run the earlier ones, and trials, except where no trial of a
    row finished.

    Args:
        runs: see `harness.records.frame.of_records`.
        varied: a field in which the runs of a question may differ, as `task.pairs`.
        trials: whether to give the trials in place of the results.

    Returns:
        New columns: `question`, its title with device and machine; `setting`, its recipe as text;
        `chosen`, the values that were chosen for the row by their field; `row`, with what was
        chosen for it, `primal[rank=8] [lr=0.001]`.
    """
    if runs.empty:
        return runs.assign(question="", setting="", chosen="", row="")
    runs = newest(runs).sort_values(["id", "started"], ignore_index=True)
    runs = runs.drop_duplicates(["id", "machine"], keep="last")
    keys = [*SHARED]
    if varied:
        # The data of the task may depend on its option.
        asked = [_without(text, varied) for text in runs["asked"]]
        runs, keys = runs.assign(asked=asked), ["asked", "device", "machine"]
    group = runs.groupby(keys, sort=False).ngroup()
    runs = runs.assign(group=group)[_is_of_shown_code(runs.assign(group=group))]
    runs = runs[runs["role"] == "trial" if trials else _is_result(runs)]
    if runs.empty:
        return questions(runs)
    titles = _titles(runs, varied)
    found = [
        _question(same, varied).assign(question=titles[number])
        for number, same in runs.groupby("group")
    ]
    return pd.concat(found).sort_values(["question", "seed", "id", "machine"])


def left_out(runs: pd.DataFrame) -> str:
    """The runs of older versions of tasks and of other code than a row has; empty without any."""
    if runs.empty:
        return ""
    older, sentences = runs[~is_newest(runs)], []
    if len(older):
        counts = older["task"].str.replace(r"[\[,].*", "", regex=True).value_counts().sort_index()
        texts = ", ".join(f"{count} of {name}" for name, count in counts.items())
        sentences.append(f"Left out, as there are runs of a newer version of the task: {texts}.")
    latest = newest(runs)
    latest = latest.assign(group=latest.groupby([*SHARED]).ngroup())
    if count := int((~_is_of_shown_code(latest)).sum()):
        sentences.append(f"Left out, as there are runs of newer code of the row: {count}.")
    return " ".join(sentences)


def row_labels(runs: pd.DataFrame, varied: str = "") -> pd.Series:
    """The variant of each run, with the options that were set, or that other runs have otherwise.

    As `harness.records.spec.label_of`: `primal[rank=8]`, `softmax+primal[primal.rank=8]`.
    """
    labels = {}
    for attention, same in runs.groupby("attention", sort=False):
        sets = {text: by_option(json.loads(text)) for text in same["options"].unique()}
        counts = pd.DataFrame([*sets.values()], dtype=object).astype(str).nunique()
        for at, run in zip(same.index, lines(same), strict=True):
            options = {path: v for path, v in sets[run["options"]].items() if counts[path] > 1}
            options |= json.loads(run["overrides"])
            options.pop(varied, None)
            labels[at] = label_of(str(attention), options)
    return pd.Series(labels, dtype=object)


def field_text(path: str) -> str:
    """A field of model or train in words."""
    return WORDS.get(path, path.rpartition(".")[2].replace("_", " "))


def failures(runs: pd.DataFrame) -> str:
    """The ends of the runs of a row that did not finish, in one line; empty where all finished."""
    failed = runs[runs["status"] != "ok"]
    texts = pd.Series([failure(run) for run in lines(failed)], failed.index, dtype=object)
    if len(failed) == len(runs) and texts.nunique() == 1:
        return str(texts.iloc[0])
    seeds = failed["seed"].astype(str).groupby(texts, sort=False).agg(", ".join)
    return "; ".join(f"seed {names} {reason}" for reason, names in seeds.items())


def failure(run: Run) -> str:
    """The end of a run that did not finish, in a few words."""
    status, reason = run["status"].replace("_", " "), plain(run["reason"], REASON)
    if not reason:
        step = run.get("last_step")
        return status if pd.isna(step) else f"{status} at step {int(step)}"
    return reason if status in reason.lower() else f"{status}: {reason}"


def lines(frame: pd.DataFrame) -> list[Run]:
    """The lines of a frame."""
    return [*frame.to_dict("records")]


def _question(runs: pd.DataFrame, varied: str) -> pd.DataFrame:
    """The runs of one question with their columns."""
    chosen = runs["values"].mask(runs["role"] == "trial", "{}").map(json.loads)
    labels = row_labels(runs, varied) + chosen.map(_chosen_text)
    setting = _setting(lines(runs)[0], {varied, *json.loads(runs["values"].iloc[0])})
    return runs.assign(setting=setting, chosen=chosen, row=labels)


def _without(asked: str, varied: str) -> str:
    """The canonical text of a question without one of its fields, and without its names."""
    question, (owner, _, option) = json.loads(asked), varied.partition(".")
    part = question.get(owner)
    if owner in ("task", question["task"]["name"]):
        part = question["task"]["options"]
    for name in (question, "name"), (question["task"], "key"), (part or {}, option):
        name[0].pop(name[1], None)
    return json.dumps(question, sort_keys=True)


def _titles(runs: pd.DataFrame, varied: str) -> dict[Hashable, str]:
    """The title of each group; of groups of one title, with the parts of their identity."""
    found, first = dict[Hashable, str](), dict[Hashable, Run]()
    for number, same in runs.groupby("group"):
        first[number] = lines(same)[0]
        found[number] = _title(first[number], sorted({*same["threads"]}), varied)
    counts = Counter(found.values())
    twice = {number: first[number] for number, title in found.items() if counts[title] > 1}
    return found | {
        number: f"{found[number]} ({run['question.id']}, {run['data']})"
        for number, run in twice.items()
    }


def _title(run: Run, threads: Sequence[int], varied: str) -> str:
    title = run["title"]
    if varied:
        option = varied.partition(".")[2]
        changed = f"{option}={run.get(f'task.{option}')}"
        title = title.replace(run["task"], _without_option(run["task"], changed), 1)
        title = title.replace(f" with {varied}={run.get(varied)}", "", 1)
    title = f"{title}, {run['device']}: {run['machine']}"
    return f"{title}, {threads_of(*threads)}" if run["device"] == "cpu" else title


def _without_option(key: str, changed: str) -> str:
    """The key of a task without one of its changed options."""
    name, bracket, rest = key.partition("[")
    inner, _, end = rest.rpartition("]")
    options = ",".join(option for option in inner.split(",") if option != changed)
    return f"{name}[{options}]{end}" if bracket and options else f"{name}{end}"


def _setting(run: Run, chosen: Collection[str]) -> str:
    """Every field of model and training, without flags that are off and fields not set."""
    sentences = []
    for part in KINDS:
        fields = {str(path): CHOSEN if path in chosen else _text(value)
                  for path, value in run.items()
                  if str(path).startswith(f"{part}.") and path != "model.kind"}  # fmt: skip
        usual = {path: _text(value) for path, value in DEFAULTS.items()}
        texts = [
            f"{field_text(path)} {text}" for path, text in fields.items()
            if text not in ("", "no", usual.get(path))
        ]  # fmt: skip
        sentences.append(f"{'Model' if part == 'model' else 'Training'}: {', '.join(texts)}.")
    return " ".join(sentences)


def _chosen_text(chosen: Mapping[str, object]) -> str:
    texts = ", ".join(f"{path.partition('.')[2]}={value}" for path, value in chosen.items())
    return f" [{texts}]" if texts else ""


def whole(value: object) -> object:
    """A number of a column that has missing values as it was in the record."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object) -> str:
    value = whole(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    if value is None or value != value:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_of_shown_code(runs: pd.DataFrame) -> pd.Series:
    """Return whether each run has the code that its row is shown with: a row shows one code."""
    return outdated.newest(runs, ["group", "attention", "options"], "implementation")


def _is_result(runs: pd.DataFrame) -> pd.Series:
    """Return whether each run is no trial, or one of a row all of whose trials failed."""
    trial = runs["role"] == "trial"
    trials = runs[trial]
    rows = trials.groupby([trials[name] for name in ("group", "attention", "options", "seed")])
    points = [prod(map(len, json.loads(text).values())) for text in trials["grid"]]
    failed = ~trials["status"].eq("ok").groupby(rows.ngroup()).transform("any").astype(bool)
    complete = rows["id"].transform("nunique") == points
    return ~trial | (failed & complete).reindex(runs.index, fill_value=False)
