"""Writes docs/tasks.md, one card per task, and its images: `python -m harness.cli.cards`."""

import inspect
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import tasks
from harness.baselines import fit
from harness.cli.arguments import path
from harness.cli.descriptions import EXAMPLES, SHEET, Description, describe
from harness.cli.process import script
from harness.cli.progress import fitting
from harness.cli.report import within, write_pages
from harness.data import Data
from harness.plan import Request, task_of
from harness.records.baselines import TaskBaselines
from harness.records.files import require_writable
from harness.records.spec import TaskSpec
from harness.records.store import BaselineStore
from reports.markdown import escape, table
from tasks.baselines import FEW, FIRST
from tasks.data.sources import ImportedTask
from tasks.registry import tasks as registry
from zoo.registry import UserError

WIDTH = 92
"""Characters of a line of an example."""

HEAD_LENGTH, TAIL_LENGTH = 700, 300
"""Characters shown of the beginning and of the end of a long sequence."""

HEAD = f"""\
# Tasks

One card per task: what is predicted, the data, and the baselines. `python -m harness.cli.cards`
writes this page.

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
  dev. `results/baselines` holds them; those that it lacks are fitted.
* **Examples** are the first {EXAMPLES} of train. Positions count from 0. Of long sequences the
  middle is left out. The **sheet** of a task of images shows the first {SHEET}, row by row.
"""


def main(
    out: Annotated[
        Path,
        typer.Option(
            parser=path, help="The page to write; its images go to a folder of that name."
        ),
    ] = Path("docs/tasks.md"),
    generate: Annotated[
        bool, typer.Option("--generate/--no-generate", help="Generate data that are missing.")
    ] = True,
    store: Annotated[
        Path,
        typer.Option(parser=path, help="Folder of the baselines; those that it lacks are fitted."),
    ] = Path("results/baselines"),
) -> None:
    """Write the page of the tasks and its images."""

    def baselines_of(spec: TaskSpec, data: Data) -> TaskBaselines:
        with fitting(Console(), f"baselines of {spec.key}") as on_step:
            return fit(spec, lambda _: data, BaselineStore(store), on_step)

    if not out.suffix:
        raise UserError(f"--out {str(out)!r} has no suffix; give one such as docs/tasks.md")
    require_writable(out.with_suffix(""), str(out), "give another --out")
    cards = []
    shared = {name for name, _ in registry.built_in()}
    for name in filter(shared.__contains__, tasks.names(required_options=False)):
        try:
            cards.append([describe(task, generate, baselines_of) for task in settings(name)])
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            continue
        for description in cards[-1]:
            typer.echo(f"{description.task.key}: {description.missing or 'described'}")
    write_pages(within(out.with_suffix(""), images(cards)) | {out: page(cards, out.stem).encode()})


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
    return "\n".join([HEAD, *(_card(card, folder) for card in cards)])


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


if __name__ == "__main__":
    script("cards", main)
