"""The page of the tasks: a card each, written from facts alone."""

import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from harness.facts import ON_SHEET, SHOWN, Facts
from harness.markdown import table
from tasks import Task
from tasks.baselines import FIRST
from tasks.data.sources import ImportedTask

WIDTH = 92
"""Characters of a line of an example."""

HEAD_KEPT, TAIL_KEPT = 700, 300
"""Characters of a long document that are shown of its beginning and of its end."""

HEAD = f"""\
# Tasks

A card a task: what it asks, what its data are, what its numbers mean. `harness cards` makes this
page.

* **Setting**: the task and its version, and behind it the options that are not the default. Beside
  a task as it is by default stands what the `laptop` budget makes of it, where that is another.
* **Lengths** are the tokens of a document without padding; a document that several examples show
  counts once.
* **SHA-256** is the name of a split's data: of lengths, rows, positions asked, targets and real
  tokens, as `Split.digest` in `tasks/contract.py` defines it. The same setting has the same hashes
  on every machine; data that are changed need a new version.
* **Documents of test that stand in train** do so token by token, whatever their answers: what a
  model knows of them it may have learned by heart.
* **Floors** are accuracies on test that need no attention. *chance* is one in the number of
  classes, *majority* the commonest class of train, *mean* the mean of train. Two short cuts are
  linear models, taken where one answer about the whole is asked for, logistic regressions for
  classes and ridge regressions for numbers: *bag of tokens* on how often each token occurs, *first
  {FIRST} tokens* on the beginning of each document. Where tokens of an example are asked, it shows
  its answers, and *most frequent in context* is, everywhere in it, the one that it shows most often. A
  model that does not beat these may have learned no more than they did.
* **Examples** are the first {SHOWN} of train. Positions count from 0; of a long document the middle
  is left out. Of pictures a **sheet** shows the first {ON_SHEET}, row by row.
"""


def page(cards: Iterable[Sequence[Facts]], folder: str) -> str:
    """The whole page, as Markdown.

    Args:
        cards: of each task its settings, that of the defaults first.
        folder: where the pictures are, seen from the page.
    """
    return "\n".join([HEAD, *(_card(settings, folder) for settings in cards)])


def pictures(cards: Iterable[Sequence[Facts]]) -> dict[str, bytes]:
    """The files that the page shows, by name."""
    return {
        name: file
        for settings in cards
        for names, files in _pictured(_shown(settings))
        for name, file in zip(names, files, strict=True)
    }


def _card(settings: Sequence[Facts], folder: str) -> str:
    task = settings[0].task
    there = [facts for facts in settings if not facts.missing]
    said = (_splits, _digests, _repeated, _shares, _floors)
    tables = [one(there) for one in said] if there else []
    parts = [*_asks(task), _terms(settings[0]), *_missing(settings), *tables]
    return "\n".join([f"## {task.name}\n", *parts, *_examples(_shown(settings), folder)])


def _missing(settings: Sequence[Facts]) -> list[str]:
    """A line for each way to get data that are not there, in the form of `harness data list`."""
    keys: dict[str, list[str]] = {}
    for facts in settings:
        keys.setdefault(facts.missing, []).append(f"`{facts.task.key}`")
    return [f"{', '.join(of)}: missing; {way}\n" for way, of in keys.items() if way]


def _asks(task: Task) -> list[str]:
    """The first lines of what its module and its class say of themselves."""
    said = (inspect.getmodule(type(task)), type(task))
    lines = (((one and one.__doc__) or "").strip().partition("\n")[0] for one in said)
    return [f"{line}\n" for line in lines if line]


def _terms(facts: Facts) -> str:
    task = facts.task
    rows = {
        "version": f"`{task.name}@{task.version}`",
        "options": ", ".join(f"`{name}={value}`" for name, value in task.options.items()) or "none",
        "answer": facts.answer,
        "token values": f"{task.vocabulary:,}",
        "longest document": f"{task.max_len:,} tokens",
        "documents an example": str(task.sequences),
        "model": "causal" if task.causal else "hears both sides",
        **_origin(task),
    }
    return table(["", ""], rows.items())


def _origin(task: Task) -> dict[str, str]:
    if not isinstance(task, ImportedTask):
        return {"data": "made by the code of the task, under its licence"}
    source = task.source()
    return {"data": source.title, "origin": f"<{source.origin}>", "terms": source.terms}


def _splits(settings: Sequence[Facts]) -> str:
    head = ["setting", "split", "examples", "documents", "shortest", "median", "mean", "longest"]
    rows = []
    for facts in settings:
        for name, part in facts.parts.items():
            least, median, mean, most = part.lengths
            lengths = [f"{least:,.0f}", f"{median:,.1f}", f"{mean:,.1f}", f"{most:,.0f}"]
            counts = [f"{part.examples:,}", f"{part.sequences:,}"]
            rows.append([f"`{facts.task.key}`", name, *counts, *lengths])
    return table(head, rows)


def _digests(settings: Sequence[Facts]) -> str:
    rows = [
        [f"`{facts.task.key}`", name, f"`{part.digest}`"]
        for facts in settings
        for name, part in facts.parts.items()
    ]
    return table(["setting", "split", "SHA-256"], rows)


def _repeated(settings: Sequence[Facts]) -> str:
    rows = [
        [f"`{facts.task.key}`", f"{facts.repeated:,} of {facts.parts['test'].sequences:,}"]
        for facts in settings
    ]
    return table(["setting", "documents of test that stand in train"], rows)


def _shares(settings: Sequence[Facts]) -> str:
    rows = [
        ([f"`{facts.task.key}`", name], part.targets)
        for facts in settings
        for name, part in facts.parts.items()
    ]
    return _aligned(["setting", "split"], rows)


def _floors(settings: Sequence[Facts]) -> str:
    rows = []
    for facts in settings:
        baselines = {name: f"{100 * floor:.1f} %" for name, floor in facts.baselines.items()}
        rows.append(([f"`{facts.task.key}`"], baselines))
    return _aligned(["setting"], rows)


def _shown(settings: Sequence[Facts]) -> Facts:
    """The setting whose examples are shown: the first that is there."""
    return next((facts for facts in settings if not facts.missing), settings[0])


def _pictured(facts: Facts) -> list[tuple[list[str], Sequence[bytes]]]:
    """Names and files of the pictures of each example, and of the sheet."""
    found = []
    for number, example in enumerate(facts.examples, 1):
        several = len(example.pictures) > 1
        parts = (f"-{part}" if several else "" for part in range(1, len(example.pictures) + 1))
        names = [f"{facts.task.name}-{number}{part}.png" for part in parts]
        found.append((names, example.pictures))
    if facts.sheet:
        found.append(([f"{facts.task.name}.png"], facts.sheet.pictures))
    return found


def _examples(facts: Facts, folder: str) -> list[str]:
    shown = [(f"Example {number}", "answer", one) for number, one in enumerate(facts.examples, 1)]
    shown += [("Sheet", "answers", facts.sheet)] if facts.sheet else []
    found = []
    for (title, word, example), (names, _) in zip(shown, _pictured(facts), strict=True):
        found.append(f"**{title}**, {word}: {example.answer}\n")
        found += [f"![{facts.task.name}, {title.lower()}]({folder}/{name})\n" for name in names]
        found += [f"{_block(document)}\n" for document in example.sequences]
    return found


def _block(document: str) -> str:
    """A document as an indented block, which nothing in it can end."""
    lines = textwrap.wrap(_cut("".join(map(_plain, document))), WIDTH)
    return "\n".join(f"    {line}" for line in lines)


def _plain(character: str) -> str:
    """What may stand on a page: blanks for all white space, and nothing unprintable."""
    if character.isspace():
        return " "
    return character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _cut(text: str) -> str:
    """Leave the middle of a long text out, whole words where it has some."""
    if len(text) <= HEAD_KEPT + TAIL_KEPT:
        return text
    head = text[:HEAD_KEPT].rpartition(" ")[0] or text[:HEAD_KEPT]
    tail = text[-TAIL_KEPT:].partition(" ")[2] or text[-TAIL_KEPT:]
    left = len(text) - len(head) - len(tail)
    return f"{head} … {left:,} characters left out … {tail}"


def _aligned(head: Sequence[str], rows: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> str:
    """A table whose further columns are those of any row, by name."""
    columns = list(dict.fromkeys(column for _, cells in rows for column in cells))
    filled = ([*first, *(cells.get(column, "") for column in columns)] for first, cells in rows)
    return table([*head, *columns], filled)
