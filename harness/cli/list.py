"""`harness list`: the variants, the tasks, the recipes and the suites."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Annotated, Any

from harness.cli.process import Answer
from reports.text import WIDTH, text_table

# The claims that a variant makes or not, and how they are listed.
CLAIMS = {
    "bidirectional": "bidirectional", "causal": "causal", "cross": "cross-attention",
    "linear": "linear cost", "stochastic": "stochastic", "recurrent": "recurrent",
}  # fmt: skip


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
    from harness import api

    if budget is not None:
        return Answer(api.recipe_text(budget).rstrip())
    if suite is not None:
        return Answer(api.suite_text(suite).rstrip())
    document = api.listed()
    suites = {suite.partition("@")[0] for suite in document["suites"]}
    if not name:
        return Answer(listing(document), document)
    if name.endswith(".toml") or name.partition("@")[0] in suites:
        return _of_suite(name)
    entry = api.listed(name)
    return Answer(details(entry), entry)


def listing(document: Mapping[str, Sequence[Any]]) -> str:
    variants, tasks = document["variants"], document["tasks"]
    mechanisms = [[v["name"], "\n".join([v["mechanism"], *_needs(v)])] for v in variants]
    claims = [[text, ", ".join(v["name"] for v in variants if v[c])] for c, text in CLAIMS.items()]
    losses = [f"{v['name']} ({', '.join(v['losses'])})" for v in variants if v["losses"]]
    rows = []
    for task in tasks:
        defaults = {option["name"]: option["default"] for option in task["options"]}
        texts = (name if value is None else f"{name}={value}" for name, value in defaults.items())
        size = [_text(task["classes"]), _text(task["length"]), "yes" if task["causal"] else ""]
        options = "\n".join([", ".join(texts), *_needs(task)])
        rows.append([f"{task['name']}@{task['version']}", *size, options])
    sections = [
        text_table(["attention", "mechanism"], mechanisms),
        text_table(["claim", ""], [*claims, ["auxiliary loss", ", ".join(losses)]]),
        "A+B has A in every layer but the last, and B in the last.",
        text_table(["task", "classes", "length", "causal", "options"], rows),
        "A table of texts and labels is a task, too: CSV, TSV, JSON lines or Parquet.",
        f"recipes, --budget: {', '.join(document['budgets'])}, or the path of a TOML file",
        fill(f"suites, --suite: {', '.join(document['suites'])}, or the path of a file", WIDTH),
        "harness list NAME: a variant or a task, its options; the runs and hours of a suite",
    ]
    return "\n\n".join(sections)


def details(entry: Mapping[str, Any]) -> str:
    lines = [*(_of_task(entry) if "caveat" in entry else _of_variant(entry)), *_needs(entry)]
    # A formula keeps its lines.
    text = "\n".join(line if line.startswith("    ") else fill(line, WIDTH) for line in lines)
    head = ["name", "type", "default", "meaning"]
    rows = [[_text(option[column]) for column in head] for option in entry["options"]]
    return f"{text}\n\n{text_table(['option', *head[1:]], rows) if rows else 'no options'}"


def _of_variant(entry: Mapping[str, Any]) -> list[str]:
    uses = [f"{form}: {', '.join(places)}" for form, places in entry["uses"].items()]
    facts = {
        "paper": entry["paper"], "cost in N": entry["cost"], "usable as": "; ".join(uses),
        "claims": ", ".join(text for claim, text in CLAIMS.items() if entry[claim]) or "none",
        "auxiliary loss": ", ".join(entry["losses"]),
        "equals": "; ".join(entry["identities"]), "source": entry["source"],
    }  # fmt: skip
    return [
        f"{entry['name']}: {entry['mechanism']}",
        *(f"    {line}" for line in entry["formula"].splitlines() if line),
        *(f"{name}: {text}" for name, text in facts.items() if text),
        *(f"known failure of {check}: {reason}" for check, reason in entry["failures"].items()),
    ]


def _of_task(entry: Mapping[str, Any]) -> list[str]:
    facts = {
        **{name: _text(entry[name]) for name in ("classes", "length", "vocabulary")},
        "model": "causal" if entry["causal"] else "bidirectional",
        "data": entry["data"], "not shown by a score": entry["caveat"], "source": entry["source"],
    }  # fmt: skip
    return [
        f"{entry['name']}@{entry['version']}: {entry['title']}", entry["about"],
        *(f"{name}: {text}" for name, text in facts.items() if text),
        *(f"baselines of {key}: {text}" for key, text in entry.get("baselines", {}).items()),
    ]  # fmt: skip


def _of_suite(name: str) -> Answer:
    from harness import api
    from reports.papers import STEP_SECONDS

    suite, found = api.suite_of(name), api.hours(name)
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


def _needs(entry: Mapping[str, Any]) -> list[str]:
    states = {True: " (installed)", False: " (not installed)", None: ""}
    texts = [f"{package}{states[installed]}" for package, installed in entry["installed"].items()]
    return [f"needs {', '.join(texts)}"] if texts else []


def _text(value: object) -> str:
    return "" if value is None else str(value)
