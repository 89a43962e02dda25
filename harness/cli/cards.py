"""The page docs/tasks.md, one card per task, and its images."""

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import tasks
from harness.baselines import fit
from harness.cli.descriptions import EXAMPLES, SHEET, Description, describe, spec_of
from harness.cli.progress import Output, fitting
from harness.cli.report import within
from harness.data import Data
from harness.plan import Request, task_of
from harness.records.baselines import TaskBaselines
from harness.records.spec import TaskSpec
from harness.records.store import BaselineStore
from reports.markdown import escape, table
from tasks.baselines import BASELINES_VERSION, FEW, FIRST
from tasks.data.sources import ImportedTask
from tasks.registry import tasks as registry

WIDTH = 92
"""Characters of a line of an example."""

HEAD_LENGTH, TAIL_LENGTH = 700, 300
"""Characters shown of the beginning and of the end of a long sequence."""

HEAD = f"""\
# Tasks

One card per task: what is predicted, the data, and the baselines. `python -m harness.cli.pages`
writes the cards of the tasks whose data the cache has.

* **Setting**: the task with its version, and the options that differ from their defaults. Where the
  `laptop` budget uses another setting than the default, the card has both.
* **Lengths** are in tokens or time points, without padding. A sequence that several examples share
  counts once.
* **SHA-256** identifies the data of a split: `Split.digest` in `tasks/contract.py`. A setting has
  the same digests on every machine; other data need a new version.
* **Sequences of test that are in train** have the same tokens, whatever their targets.
* **Baselines** are test accuracies without attention. *chance* is one in the number of classes,
  *majority* the most frequent class of train, *mean* the mean of train. *bag of tokens* is a linear
  model of how often each token occurs (logistic regression for classes, ridge regression for
  numbers), *n-grams* one of how often each run of n tokens does. *first k tokens*, *last k tokens*:
  boosted trees on the tokens at one end, k chosen on dev. *first {FIRST} tokens*, where train has
  fewer than {FEW:,} examples or the target is a number: a linear model. The rows after these belong
  to the task. Of time series: linear models of the *statistics of channels*, and of *random
  convolutions* (ROCKET). Where targets are at tokens, *most frequent in context* is the answer that
  the example itself contains most often, and *by position* or *by rank of the query* the one at the
  place that was most often correct in train for a query at that position, or of that rank. *same
  sequence*, *same counts in train*: the most frequent class of the equal examples of train. Of
  text: bits per byte or perplexity of *unigram* and interpolated *Kneser-Ney n-grams*, n chosen on
  dev. `results/baselines` holds them; `--fit` fits those that it lacks.
* **Examples** are the first {EXAMPLES} of train. Positions count from 0. Of long sequences the
  middle is left out. The **sheet** of a task of images shows the first {SHEET}, row by row.
"""


def made(page: Path, store: Path) -> dict[Path, bytes]:
    """The page and its images, from the data in the cache and the baselines of a store.

    The card of a task stays as it is where its data or its baselines are missing.
    """
    old = dict(_sections(page.read_text("utf-8"))) if page.is_file() else {}
    found = BaselineStore.within(store)
    shared = {name for name, _ in registry.built_in()}
    sections, files = [], {}
    for name in filter(shared.__contains__, tasks.names(required_options=False)):
        card = [describe(task, partial(_complete, found)) for task in settings(name)]
        if name in old and any(setting.missing for setting in card):
            sections.append(old[name])
            continue
        sections.append(_card(card, page.stem))
        files |= within(page.with_suffix(""), images([card]))
    return files | {page: _joined([HEAD, *sections]).encode()}


def fit_missing(store: Path) -> None:
    """Fit the baselines that the cards lack, of the tasks whose data are generated or in the cache.

    Raises:
        UserError: data are damaged.
    """
    for name, _ in registry.built_in():
        for task in settings(name) if name in tasks.names(required_options=False) else ():
            if not isinstance(task, ImportedTask) or task.is_cached():
                data = Data.of(task)
                with fitting(Output(), f"baselines of {task.key}") as on_step:
                    fit(
                        spec_of(task, data),
                        lambda _, d=data: d,
                        BaselineStore.within(store),
                        on_step,
                    )


def _complete(found: BaselineStore, spec: TaskSpec) -> TaskBaselines | None:
    """The baselines of a task in a store; None where it has not all of them."""
    baselines = found.find(spec)
    is_complete = baselines and baselines.version == BASELINES_VERSION and not baselines.left
    return baselines if is_complete else None


def _sections(page: str) -> Iterator[tuple[str, str]]:
    """The name of each card of a page, and its text."""
    for section in re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]:
        yield section.partition("\n")[0].removeprefix("## "), section


def settings(name: str) -> list[tasks.Task]:
    """The task with its defaults, and as the laptop budget sets it where that differs."""
    request = Request(
        attention="none", task=name, budget="laptop", seed=0, device="cpu", precision="fp32",
        compiled=False,
    )  # fmt: skip
    default, laptop = tasks.create(name), task_of(request)
    return [default] if default.key == laptop.key else [default, laptop]


def page(cards: Sequence[Sequence[Description]], folder: str) -> str:
    """The page as Markdown: a card for each task, of its settings, that of the defaults first.

    `folder` is that of the images, relative to the page.
    """
    return _joined([HEAD, *(_card(card, folder) for card in cards)])


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def images(cards: Sequence[Sequence[Description]]) -> dict[str, bytes]:
    """The image files of the page, by name."""
    return {
        name: file
        for card in cards
        for example in _shown(card).examples.values()
        for name, file in example.images.items()
    }


def _card(card: Sequence[Description], folder: str) -> str:
    task = card[0].task
    caveat = [f"**What a score does not show.** {task.caveat}\n"] if task.caveat else []
    parts = [
        f"## {task.name}\n",
        *_titles(task),
        *caveat,
        table(["", ""], _properties(card[0]).items()),
    ]
    keys: dict[str, list[str]] = {}
    for setting in card:
        keys.setdefault(setting.missing, []).append(f"`{setting.task.key}`")
    parts += [f"{', '.join(k)}: missing; {missing}\n" for missing, k in keys.items() if missing]
    present = [setting for setting in card if not setting.missing]
    parts += [*_tables(present), *_examples(card, folder)]
    return "\n".join(parts)


def _titles(task: tasks.Task) -> list[str]:
    """The first lines of the docstrings of its module and its class."""
    owners = inspect.getmodule(type(task)), type(task)
    docs = (inspect.getdoc(owner) or "" for owner in owners)
    return [f"{line}\n" for line in (doc.partition("\n")[0] for doc in docs) if line]


def _properties(described: Description) -> dict[str, str]:
    task = described.task
    origin = {"data": "generated by the task's code, under its licence"}
    if isinstance(task, ImportedTask):
        source = task.source()
        origin = {"data": source.title, "origin": f"<{source.origin}>", "terms": source.terms}
    return {
        "version": f"`{task.name}@{task.version}`",
        "options": ", ".join(f"`{name}={value}`" for name, value in task.options.items()) or "none",
        "target": described.target,
        **_inputs(task),
        "sequences per example": str(task.sequences),
        "model": "causal" if task.causal else "bidirectional",
        **origin,
    }


def _inputs(task: tasks.Task) -> dict[str, str]:
    if task.channels:
        return {"channels": f"{task.channels:,}", "maximum length": f"{task.max_len:,} time points"}
    return {
        "vocabulary size": f"{task.vocabulary:,}",
        "maximum length": f"{task.max_len:,} tokens",
    }


def _tables(card: Sequence[Description]) -> Iterator[str]:
    for parts in zip(*(setting.tables for setting in card), strict=True):
        rows = [row for part in parts for row in part]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        yield table(columns, [[row.get(column, "") for column in columns] for row in rows])


def _shown(card: Sequence[Description]) -> Description:
    """The setting whose examples are on the card: the first whose data are present."""
    return next((setting for setting in card if not setting.missing), card[0])


def _examples(card: Sequence[Description], folder: str) -> Iterator[str]:
    for title, example in _shown(card).examples.items():
        yield f"**{title}**, target: {escape(example.targets)}\n"
        for name in example.images:
            yield f"![{card[0].task.name}, {title.lower()}]({folder}/{name})\n"
        for text in example.texts:
            yield f"{_block(text)}\n"


def _block(text: str) -> str:
    """A text as an indented block, which nothing in it can end."""
    plain = "".join(
        " " if c.isspace() else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    if len(plain) > HEAD_LENGTH + TAIL_LENGTH:
        # Cut at a space, if there is one.
        head = plain[:HEAD_LENGTH].rpartition(" ")[0] or plain[:HEAD_LENGTH]
        tail = plain[-TAIL_LENGTH:].partition(" ")[2] or plain[-TAIL_LENGTH:]
        omitted = len(plain) - len(head) - len(tail)
        plain = f"{head} … {omitted:,} characters left out … {tail}"
    return "\n".join(f"    {line}" for line in textwrap.wrap(plain, WIDTH))
