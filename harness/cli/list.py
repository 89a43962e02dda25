"""`harness list`: the variants, the tasks, the recipes and the suites."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Annotated, Any

from harness.cli.process import Answer
from reports.text import WIDTH, plain, text_table

TITLE = 42  # The most characters of the title of a task

# The claims that a variant makes or not; `linear` is of its cost.
CLAIMS = ("bidirectional", "causal", "cross", "linear", "stochastic", "recurrent")

# Fields of an entry that are in no line of their own.
APART = ("name", "version", "mechanism", "title", "formula", "options", "requires", "installed")


def list_(
    name: Annotated[str, {"argument": True}] = "", budget: str | None = None,
    suite: str | None = None,
) -> Answer:  # fmt: skip
    """List the variants, tasks, recipes and suites, or describe a variant, a task or a suite.

    Args:
        name: A variant or a task: its options and what they mean; a suite: its runs and GPU hours.
        budget: Print this recipe as a TOML file, as a template.
        suite: Print this suite as a TOML file, as a template.
    """
    from harness import catalogue

    if budget is not None or suite is not None:
        # They import pydantic and numpy.
        from harness import recipes
        from harness.records import suites

        text = recipes.show(budget or "") if suite is None else suites.show(suite)
        return Answer(text.rstrip())
    document = catalogue.listed()
    named = {suite.partition("@")[0] for suite in document["suites"]}
    if not name:
        return Answer(listing(document), document)
    if name.endswith(".toml") or name.partition("@")[0] in named:
        return _of_suite(name)
    entry = catalogue.listed(name)
    return Answer(details(entry), entry)


def listing(document: Mapping[str, Sequence[Any]]) -> str:
    variants, tasks = document["variants"], document["tasks"]
    mechanisms = [[v["name"], v["mechanism"]] for v in variants]
    claims = [[c, ", ".join(v["name"] for v in variants if v[c])] for c in CLAIMS]
    losses = [f"{v['name']} ({', '.join(v['losses'])})" for v in variants if v["losses"]]
    rows = []
    for task in tasks:
        size = [_text(task["classes"]), _text(task["length"]), "yes" if task["causal"] else ""]
        rows.append([f"{task['name']}@{task['version']}", *size, plain(task["title"], TITLE)])
    sections = [
        text_table(["attention", "mechanism"], mechanisms),
        text_table(["claim", ""], [*claims, ["auxiliary loss", ", ".join(losses)]]),
        "A+B has A in every layer but the last, and B in the last.",
        text_table(["task", "classes", "length", "causal", ""], rows),
        "A table of texts and labels is a task, too: CSV, TSV, JSON lines or Parquet.",
        f"recipes, --budget: {', '.join(document['budgets'])}, or the path of a TOML file",
        fill(f"suites, --suite: {', '.join(document['suites'])}, or the path of a file", WIDTH),
        "harness list NAME: a variant or a task, its options and packages; the hours of a suite",
    ]
    return "\n\n".join(sections)


def details(entry: Mapping[str, Any]) -> str:
    what = entry.get("mechanism") or entry["title"]
    version = f"@{entry['version']}" if "title" in entry else ""
    lines = [f"{entry['name']}{version}: {what}"]
    lines += [f"    {line}" for line in entry.get("formula", "").splitlines() if line]
    lines += [
        f"{name}: {text}"
        for name, value in entry.items()
        if name not in APART and (text := _words(value))
    ]
    states = {True: " (installed)", False: " (not installed)", None: ""}
    needed = (f"{package}{states[found]}" for package, found in entry["installed"].items())
    lines += [f"needs {', '.join(needed)}"] if entry["installed"] else []
    # A formula keeps its lines.
    text = "\n".join(line if line.startswith("    ") else fill(line, WIDTH) for line in lines)
    head = ["name", "type", "default", "meaning"]
    rows = [[_text(option[column]) for column in head] for option in entry["options"]]
    return f"{text}\n\n{text_table(['option', *head[1:]], rows) if rows else 'no options'}"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_words(of)}" for name, of in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else _text(value or None)


def _of_suite(name: str) -> Answer:
    from harness.records.suites import find
    from harness.suite import efforts
    from reports.papers import STEP_SECONDS, gpu_hours

    suite = find(name)
    found = gpu_hours(efforts(suite)).reset_index()
    document = {
        "suite": suite.key, "title": suite.title, "published": suite.published,
        "step_seconds": STEP_SECONDS, "questions": found.to_dict("records"),
    }  # fmt: skip
    lines = [
        [line["question"], *(f"{line[name]:,}" for name in ("rows", "runs", "steps")),
         f"{line['hours']:,.1f}",
         f"{STEP_SECONDS * line['passes']:g}, assumed" if line["assumed"] else "published"]
        for line in found.to_dict("records")
    ]  # fmt: skip
    lines.append(["all", "", f"{found['runs'].sum():,}", "", f"{found['hours'].sum():,.1f}", ""])
    head = ["question", "rows", "runs", "steps a run", "GPU hours", "seconds a step"]
    texts = [
        f"{suite.key}: {suite.title}",
        *(["published numbers: " + "; ".join(suite.published)] if suite.published else []),
        text_table(head, lines),
        "GPU hours: runs x steps x seconds a step, on one GPU, if no run ends before its last "
        f"step. Assumed: {STEP_SECONDS} s for each pass of a small model, which is the time of its "
        "launches of kernels; a batch in parts has several. Runs: a trial at each rate, and each "
        "seed at the best one; trials beyond the rates are not counted. Several GPUs: --workers.",
    ]
    text = "\n\n".join(fill(t, WIDTH) if "\n" not in t else t for t in texts)
    return Answer(text, document)


def _text(value: object) -> str:
    return "" if value is None else str(value)
