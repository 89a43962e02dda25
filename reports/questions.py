"""Runs of no suite as questions: runs of one task, recipe and kind of processor are comparable.

Everything starts from the frame of runs of `harness.records.frame`. Two runs are of one question if
they differ in nothing but variant, options, seed, precision and the fields that were tuned over one
grid. A field that is added to the specification is compared, and is in the recipe and in the titles
of questions that differ by it.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

import pandas as pd

from harness.records.models import MODELS
from harness.records.spec import TrainSpec, by_option, label_of, of_variants
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

MATCHED, PRECISION = "model.feed_forward", "train.precision"
"""What is chosen where models are matched, and in what rows of one question may differ."""

FIRST = ("task", "recipe", "device", "machine", "data", "match")
"""Columns that the runs of a question share, besides the fields of task, model and training."""

ENTRY = (*FIRST, "attention", "options", "grid")
"""Columns that the runs of a row share, beside what was not chosen for it of the overrides."""

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
        New columns: `question`, its title; `setting`, its recipe as text; `chosen`, the values that
        were chosen for the row by their field; `row`, with what was chosen for it,
        `primal[rank=8] [lr=0.001]`. The `role` of a run without tuning is `final`.
    """
    if runs.empty:
        return runs.assign(question="", setting="", chosen="", row="")
    runs = newest(runs).sort_values(["id", "started"], ignore_index=True)
    runs = runs.drop_duplicates(["id", "machine"], keep="last")
    shared = pd.DataFrame([_shared(run, varied) for run in lines(runs)], runs.index).fillna("")
    group = shared.groupby([*shared], sort=False).ngroup()
    runs = runs[_is_of_shown_code(runs)]
    runs = runs[runs["role"] == "trial" if trials else _is_result(runs, group[runs.index])]
    if runs.empty:
        return questions(runs)
    titles = _titles(shared.loc[runs.index], group[runs.index], runs["threads"])
    by_question = [
        _question(same, shared.loc[same.index[0]].to_dict(), varied).assign(question=titles[number])
        for number, same in runs.groupby(group)
    ]
    return pd.concat(by_question).sort_values(["question", "seed", "id", "machine"])


def newest(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of the newest version of each task that any of the runs is of."""
    return runs[_is_newest(runs)] if len(runs) else runs


def left_out(runs: pd.DataFrame) -> str:
    """The runs of older versions of tasks and of other code than a row has; empty without any."""
    if runs.empty:
        return ""
    older, sentences = runs[~_is_newest(runs)], []
    if len(older):
        counts = older["task"].str.replace(r"[\[,].*", "", regex=True).value_counts().sort_index()
        texts = ", ".join(f"{count} of {name}" for name, count in counts.items())
        sentences.append(f"Left out, as there are runs of a newer version of the task: {texts}.")
    latest = newest(runs)
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
            options |= of_variants(json.loads(run["overrides"]))
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


def _question(runs: pd.DataFrame, shared: dict[str, str], varied: str) -> pd.DataFrame:
    """The runs of one question with their columns."""
    precisions = sorted({*runs[PRECISION]})
    shared[PRECISION] = precisions[0] if len(precisions) == 1 else CHOSEN
    chosen = pd.Series([_chosen(run, varied) for run in lines(runs)], runs.index)
    labels = row_labels(runs, varied) + chosen.map(_chosen_text)
    if len(precisions) > 1 and not varied:
        labels += runs[PRECISION].map(" [{}]".format)
    role = runs["role"].replace("", "final")
    return runs.assign(setting=_recipe(shared), chosen=chosen, row=labels, role=role)


def _shared(run: Run, varied: str) -> dict[str, str]:
    """The common setting of the runs of a question, as text by column."""
    grid = json.loads(run["grid"] or "{}")
    free = {*grid, PRECISION, varied, *([MATCHED] if run["match"] else [])}
    overrides = {
        path: value
        for path, value in json.loads(run["overrides"]).items()
        if path.partition(".")[0] in KINDS and path not in free
    }
    shared = {name: run[name] for name in FIRST}
    shared["overrides"] = ", ".join(f"{path}={overrides[path]}" for path in sorted(overrides))
    tuned = (f"{field_text(path)} {', '.join(map(str, grid[path]))}" for path in grid)
    shared["grid"] = "; ".join(tuned)
    owner, _, option = varied.partition(".")
    if owner in ("task", run["task.name"]):
        # The data of the task depend on its option.
        changed = f"{option}={run.get(f'task.{option}')}"
        shared |= {"task": _without(run["task"], changed), "data": ""}
        free.add(f"task.{option}")
    fields = {name: CHOSEN if name in free else value for name, value in run.items()
              if str(name).partition(".")[0] in ("task", *KINDS) and name != "task"}  # fmt: skip
    return {str(name): _text(value) for name, value in (shared | fields).items()}


def _without(key: str, changed: str) -> str:
    """The key of a task without one of its changed options."""
    name, bracket, rest = key.partition("[")
    inner, _, end = rest.rpartition("]")
    options = ",".join(option for option in inner.split(",") if option != changed)
    return f"{name}[{options}]{end}" if bracket and options else f"{name}{end}"


def _titles(shared: pd.DataFrame, group: pd.Series, threads: pd.Series) -> dict[Hashable, str]:
    """The title of each group by its number; groups of one title have the fields that differ."""
    first = shared[~group.duplicated()].set_axis(group[~group.duplicated()])
    titles = pd.Series({
        number: _title(setting, sorted({*threads[group[group == number].index]}))
        for number, setting in first.to_dict("index").items()
    })  # fmt: skip
    found = titles.to_dict()
    for same in (equal.index for _, equal in titles.groupby(titles) if len(equal) > 1):
        differing = [path for path in map(str, first) if first.loc[same, path].nunique() > 1]
        for number, run in first.loc[same].to_dict("index").items():
            texts = (f"{field_text(path)} {run[path]}" for path in differing)
            found[number] += f"; {', '.join(texts)}"
    return found


def _title(shared: Run, threads: Sequence[int]) -> str:
    changes = f" with {shared['overrides']}" if shared["overrides"] else ""
    changes += f", {shared['match']} matched" if shared["match"] else ""
    changes += f" tuned over {shared['grid']}" if shared["grid"] else ""
    title = f"{shared['task']}, recipe {shared['recipe']}{changes}, {shared['device']}: "
    if shared["device"] != "cpu":
        return title + shared["machine"]
    return f"{title}{shared['machine']}, {threads_of(*threads)}"


def _recipe(shared: Mapping[str, str]) -> str:
    """Every field of model and training, without flags that are off and fields not set."""
    sentences = []
    for part in KINDS:
        texts = [
            f"{field_text(path)} {text}"
            for path, text in shared.items()
            if path.startswith(f"{part}.") and path != "model.kind" and text not in ("", "no")
            and not (path in DEFAULTS and text == _text(DEFAULTS[path]))
        ]  # fmt: skip
        sentences.append(f"{'Model' if part == 'model' else 'Training'}: {', '.join(texts)}.")
    return " ".join(sentences)


def _chosen(run: Run, varied: str) -> dict[str, object]:
    """The values that were chosen for the row of a run; none for a trial."""
    if run["role"] == "trial":
        return {}
    paths = [*json.loads(run["grid"] or "{}"), *([MATCHED] if run["match"] else [])]
    return {path: whole(run[path]) for path in paths if path != varied}


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
    columns = [*ENTRY, "overrides"]
    entries = runs.assign(entry=[_entry(run) for run in lines(runs[columns])])
    return outdated.newest(entries, ["entry"], "implementation")


def _entry(run: Run) -> str:
    """The question and the row of a run, as text."""
    free = {*json.loads(run["grid"] or "{}"), MATCHED if run["match"] else ""}
    overrides = {path: v for path, v in json.loads(run["overrides"]).items() if path not in free}
    return json.dumps([overrides, *(run[name] for name in ENTRY)])


def _is_result(runs: pd.DataFrame, group: pd.Series) -> pd.Series:
    """Return whether each run is no trial, or one of a row all of whose trials failed."""
    trial = runs["role"] == "trial"
    trials = runs[trial]
    rows = trials.groupby([group[trial], trials["attention"], trials["options"], trials["seed"]])
    points = [prod(map(len, json.loads(text).values())) for text in trials["grid"]]
    failed = ~trials["status"].eq("ok").groupby(rows.ngroup()).transform("any").astype(bool)
    complete = rows["id"].transform("nunique") == points
    return ~trial | (failed & complete).reindex(runs.index, fill_value=False)


def _is_newest(runs: pd.DataFrame) -> pd.Series:
    """Return whether each run is of the newest version of its task that any of the runs is of."""
    version = runs["task"].str.extract(r"@([0-9]+)", expand=False).fillna("0").astype(float)
    return version == version.groupby(runs["task.name"]).transform("max")
