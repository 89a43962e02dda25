"""`harness list`: the variants, the tasks and the budgets; and the rows of the README's models."""

import hashlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from zoo.registry import UserError, options_of

if TYPE_CHECKING:
    from zoo.contract import Attention

ROOT = Path(__file__).parents[2]

PAPER = re.compile(
    r"(?P<authors>[A-Z][\w'-]+(?:, [A-Z][\w'-]+)*(?: et al\.)?), "
    r'(?:"(?P<title>[^"]+)", )?(?P<venue>[A-Z][\w ]*? )?(?P<year>\d{4}), arXiv (?P<arxiv>[\d.]*\d)'
)

MODELS = "models"
"""Name of the two marks in a page between which the table of models is written."""

MODEL_HEAD = (
    "name", "mechanism", "paper", "cost in N", "causal", "recurrent", "mixes tokens",
)  # fmt: skip


class Paper(NamedTuple):
    """A citation in the docstring of a variant's module: `Authors, "Title", venue year, arXiv id`.

    Attributes:
        authors: family names, or the first one and "et al.".
        title: empty where a module that wraps a package leaves it out.
        venue: the conference, or arXiv.
        year: of publication there.
        arxiv: the arXiv identifier.
    """

    authors: str
    title: str
    venue: str
    year: int
    arxiv: str


def list_() -> None:
    """List the variants with their traits and options, the tasks, and the budgets."""
    typer.echo(_cached(_listing))


def paper_of(docstring: str, name: str) -> Paper | None:
    """The first citation in a docstring, on the line that begins with `name` if there is one."""
    line = re.search(rf"^ +{re.escape(name)} +(\S.*)$", docstring, re.MULTILINE)
    match = PAPER.search(" ".join((line[1] if line else docstring).split()))
    if not match:
        return None
    venue = (match["venue"] or "arXiv").strip()
    return Paper(match["authors"], match["title"] or "", venue, int(match["year"]), match["arxiv"])


def model_rows() -> list[list[str]]:
    """The cells of every variant under `MODEL_HEAD`, by docstring, traits and a conformance check.

    Variants that cannot be checked on this machine are left out.
    """
    from zoo.conformance import CHECKS, configurations, run
    from zoo.variants import variants

    mixing = next(check for check in CHECKS if check.name == "token mixing")
    rows = []
    for name, variant in variants.items():
        if not variant.unchecked:
            mixes = run(mixing, configurations(name, variant)[0]).detail.startswith("yes")
            rows.append([name, *_described(name, variant), _yes(mixes)])
    return rows


def _described(name: str, variant: "type[Attention]") -> list[str]:
    docstring = inspect.getdoc(inspect.getmodule(variant)) or variant.__doc__ or ""
    paper, traits = paper_of(docstring, name), variant.traits
    source = ""
    if paper:
        first, _, others = paper.authors.partition(",")
        authors = f"{first} et al." if others else first
        source = f"{authors}, {paper.year}, arXiv {paper.arxiv}"
    quadratic = "O(N log N)" if re.search(r"Time O\([^.]*log n", docstring) else "O(N²)"
    cost = "O(N)" if traits.linear else quadratic
    title = docstring.partition("\n")[0].rstrip(".")
    return [title, source, cost, _yes(traits.causal), _yes(traits.recurrent)]


def _listing() -> str:
    from harness import budgets

    return (
        f"{_variants()}\n\nA+B has A in every layer but the last, and B in the last.\n\n"
        f"{_tasks()}\n\nA CSV, TSV or Parquet file of texts and labels is a task, too.\n\n"
        f"budgets: {', '.join(budgets.names())}, or the path of a TOML file"
    )


def _variants() -> str:
    from dataclasses import asdict, fields

    from zoo.contract import Traits
    from zoo.variants import variants

    rows = []
    for name, variant in variants.items():
        traits = asdict(variant.traits) | {"losses": ", ".join(variant.traits.losses)}
        cells = ("yes" if trait is True else trait or "" for trait in traits.values())
        rows.append([name, *cells, _defaults(variant)])
    return _table(["attention", *(field.name for field in fields(Traits)), "options"], rows)


def _tasks() -> str:
    from tasks import create
    from tasks.registry import tasks

    rows = []
    for name, factory in tasks.items():
        title, options = f"{name}@{factory.version}", _defaults(factory)
        if any(one.default is one.empty for one in options_of(factory).values()):
            rows.append([title, "", "", "", options])  # its size depends on that option
            continue
        try:
            task = create(name)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            continue
        size = str(task.classes), str(task.max_len)
        rows.append([title, *size, "yes" if task.causal else "", options])
    return _table(["task", "classes", "length", "causal", "options"], rows)


def _defaults(factory: Callable[..., object]) -> str:
    options = options_of(factory).items()
    return ", ".join(name if p.default is p.empty else f"{name}={p.default}" for name, p in options)


def _yes(claim: bool) -> str:
    return "yes" if claim else "no"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers=head, disable_numparse=True)


def _cached(make: Callable[[], str]) -> str:
    """The result of `make`, cached until a source file changes: importing torch takes seconds.

    With plug-ins it is not cached, since changes of their sources are not detected.
    """
    if any(metadata.entry_points(group=group) for group in ("zoo.variants", "tasks.tasks")):
        return make()
    state = hashlib.sha256(f"{sys.version} {ROOT}".encode())
    paths = [ROOT / "harness" / "budgets.toml", Path(__file__)]
    paths += [path for package in ("zoo", "tasks") for path in (ROOT / package).rglob("*.py")]
    for path in sorted(paths):
        status = path.stat()
        state.update(f"{path} {status.st_mtime_ns} {status.st_size}\n".encode())
    folder = os.environ.get("HARNESS_DATA") or Path.home() / ".cache" / "attention-harness"
    file = Path(folder) / f"list-{state.hexdigest()[:16]}.txt"
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text("utf-8")
    text = make()
    from harness.records.files import write_atomic

    with suppress(OSError):
        for old in file.parent.glob("list-*.txt"):
            old.unlink()
        write_atomic(file, text.encode())
    return text
