"""The files of a suite: its page, its tables, and its table for a terminal and for LaTeX."""

import io
from collections.abc import Hashable, Mapping
from importlib.util import find_spec
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from reports import papers, suites
from reports.markdown import escape
from reports.render import number_text, rendered, whole_text
from reports.statistics import LEVEL
from reports.text import NOTHING, digest, frame_csv, number, text_table

if TYPE_CHECKING:
    from harness.records.suites import Suite

WIDTH = 120
"""Characters of a line on a terminal."""

OF_A_SEED = [
    "suite", "question", "row", "attention", "task", "seed", "status", "reason", "metric", "score",
    "dev", "loss", "train.lr", "train.steps", "best_step", "train_seconds", "machine", "started",
    "commit", "id",
]  # fmt: skip
"""The columns of the table of seeds."""

TEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    NOTHING: "--", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
}  # fmt: skip

Cell = Mapping[Hashable, Any]
"""A line of `reports.suites.answers`."""


class Tables(NamedTuple):
    """The frames of a suite.

    Attributes:
        suite: it.
        answers, pairs, matrix: see `reports.suites`.
        seeds: the runs behind the answers, a line each.
        setting: what the costs were measured on, as text.
    """

    suite: "Suite"
    answers: pd.DataFrame
    pairs: pd.DataFrame
    matrix: pd.DataFrame
    seeds: pd.DataFrame
    setting: str


def tables(
    suite: "Suite", runs: pd.DataFrame, baselines: pd.DataFrame, costs: pd.DataFrame
) -> Tables:
    """The frames of a suite, from those of a store; see `reports.suites`."""
    answers, plan = suites.answers(runs, suite, baselines), suite.cost
    columns = [*OF_A_SEED, *(["best_on_test"] if suite.published else [])]
    parts = [plan.precision, f"width {plan.dim}", f"{plan.heads} heads"]
    for name, threads in suites.measured(costs, plan)[["machine", "threads"]].values[:1]:
        parts += [f"{name}, {threads} thread{'s' * (threads > 1)}"]
    return Tables(
        suite, answers, suites.pairs(runs, suite, baselines), suites.matrix(answers, costs, suite),
        suites.results(runs, suite).reindex(columns=columns), "; ".join(parts),
    )  # fmt: skip


def files(of: Tables, *, latex: bool) -> dict[str, bytes]:
    """What the files of a suite hold, by name.

    The runs are in a Parquet file, too, where pyarrow is installed.
    """
    from reports.figures.answered import answered_figure

    name, table = of.suite.name, frame_csv(of.matrix.reset_index())
    page = _rendered("suite.md.j2", of)
    if of.suite.published:
        page += papers.section(papers.results(of.answers, of.seeds, of.suite), of.suite).encode()
    made = {
        f"{name}.md": page,
        f"{name}.csv": table,
        f"{name}-answers.csv": frame_csv(of.seeds),
        **answered_figure(of.matrix, of.suite, digest(f"{name}.csv", table)),
    }
    if find_spec("pyarrow"):
        stream = io.BytesIO()
        of.seeds.to_parquet(stream)
        made[f"{name}-answers.parquet"] = stream.getvalue()
    return made | ({f"{name}.tex": _rendered("suite.tex.j2", of)} if latex else {})


def published(of: Tables) -> pd.DataFrame:
    """The answers of the rows that were run, with the rate of their runs."""
    rates = of.seeds.groupby(["row", "question"])["train.lr"].first().rename("rate")
    found = of.answers[of.answers["text"] != ""]
    return found.join(rates, on=["row", "question"])


def terminal(of: Tables) -> str:
    """The matrix as text."""
    titles = [question.title for question in of.suite.questions]
    head = ["attention", f"of {len(titles)}", *titles, "time", "memory", "decode, ms", "state"]
    lines = [
        [
            row["label"], str(row["answered"]), *map(_short, row["cells"]),
            *(number_text(row[name]) for name in ("time", "memory", "decode")),
            whole_text(row["state"]),
        ]
        for row in _rows(of)
    ]  # fmt: skip
    legend = (
        f"{of.suite.title} ({of.suite.key}), and how many each row answers. Rows of a column that "
        "share a letter are ties. In brackets: not better than the strongest baseline, or no "
        f"attention. Time and memory: training a layer of {_middle(of.suite):,} tokens over "
        f"softmax. Decode: a token after {max(of.suite.cost.lengths):,}; state: its bytes."
    )
    return f"{text_table(head, lines, WIDTH)}\n\n{fill(legend, WIDTH)}"


def _rendered(template: str, of: Tables) -> bytes:
    return rendered(
        template, **of._asdict(), rows=_rows(of), questions=_questions(of), tex=_tex,
        answer=_answer, tex_answer=_tex_answer, lengths=sorted(of.suite.cost.lengths),
        middle=_middle(of.suite),
    ).encode()  # fmt: skip


def _middle(suite: "Suite") -> int:
    return int(suites.time_column(suite).partition(".")[2])


def _rows(of: Tables) -> list[dict[str, Any]]:
    """What a line of the matrix shows, in order."""
    cells = of.answers.set_index(["row", "question"]).to_dict("index")
    lengths, middle = sorted(of.suite.cost.lengths), _middle(of.suite)
    return [
        {
            "label": row, "answered": line["answered"],
            "cells": [cells[row, question.name] for question in of.suite.questions],
            "ratios": [line[f"{what}.{n}"] for what in ("time", "memory") for n in lengths],
            "time": line[f"time.{middle}"], "memory": line[f"memory.{middle}"],
            "decode": 1000 * line["decode_seconds"], "state": line["state_bytes"],
            "backend": line["backend"] if isinstance(line["backend"], str) else "",
            "checks": _checks(line["known_failures"]),
        }
        for row, line in of.matrix.to_dict("index").items()
    ]  # fmt: skip


def _questions(of: Tables) -> list[dict[str, Any]]:
    """What is said of each question: its strongest baseline, and what it settles."""
    found = []
    for question in of.suite.questions:
        own = of.answers[(of.answers["question"] == question.name) & (of.answers["text"] != "")]
        pairs = of.pairs[of.pairs["question"] == question.name]
        strongest = own[own["baseline"] != ""][["baseline", "baseline_value"]].value_counts()
        texts = [f"{name}: {number(value)}" for name, value in strongest.index[:1]]
        found.append({
            "title": question.title, "asks": question.asks, "rows": len(own),
            "baseline": texts[0] if texts else NOTHING, "answered": int(own["answered"].sum()),
            "pairs": len(pairs), "separable": int((pairs["p_holm"] <= LEVEL).sum()),
        })  # fmt: skip
    return found


def _answer(cell: Cell) -> str:
    """A cell in Markdown: mean and tier, in italics at a baseline, then interval and failures."""
    if not cell["text"]:
        return escape(cell["status"]) or NOTHING
    mean = f"*{cell['text']}*" if cell["at_baseline"] else f"{cell['text']} {cell['tier']}".strip()
    notes = [cell["interval"], *(["1 seed"] if cell["seeds"] == 1 else [])]
    notes += [escape(cell["status"])] if cell["status"] != "ok" else []
    return f"{mean}<br><sub>{'; '.join(notes)}</sub>"


def _tex_answer(cell: Cell) -> str:
    if not cell["text"]:
        return _tex(cell["status"]) or "--"
    mean = f"\\textit{{{cell['text']}}}" if cell["at_baseline"] else cell["text"]
    tier = f"\\textsuperscript{{{cell['tier']}}}" if cell["tier"] else ""
    return f"{mean}{tier}$_{{{cell['interval']}}}$"


def _short(cell: Cell) -> str:
    """A cell on a terminal: mean and tier, in brackets at a baseline."""
    if not cell["text"]:
        return cell["status"] or NOTHING
    return f"({cell['text']})" if cell["at_baseline"] else f"{cell['text']} {cell['tier']}".strip()


def _tex(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)


def _checks(known_failures: float) -> str:
    if pd.isna(known_failures):
        return NOTHING
    count = int(known_failures)
    return f"{count} known failure{'s' * (count > 1)}" if count else "passed"
