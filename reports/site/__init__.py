"""The site: a suite's matrix, advisor, charts and cards as one HTML file without other files.

Everything is in the file, so that it opens from a disk: data, style, scripts, two libraries of
`vendor/` (d3 and Observable Plot, ISC). Without JavaScript it is a page of plain tables.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.records.baselines import ShallowStudy
from harness.records.families import colour_of
from harness.records.frame import of_records
from harness.records.record import Record
from reports import advice
from reports.layer_costs import of_plan
from reports.pages.findings import conclusion, explain
from reports.suites import answers, matrix, results, time_column
from reports.text import NOTHING, number, without_nan

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.suites import Suite

FOLDER = Path(__file__).parent

NAME = "index.html"

Values = dict[str, Any]

DIGITS = 4
"""Significant digits of a point of a curve."""


@dataclass(frozen=True)
class Content:
    """What the site shows.

    Attributes:
        suite: the suite.
        runs, costs, baselines: frames of a store; see `harness.records.frame`.
        records: of the same store, with their curves.
        variants: what is registered, as `harness list --json` gives it.
        studies: what shallow models reach on the Long Range Arena.
        causal: the questions that only a causal form can be asked.
    """

    suite: "Suite"
    runs: "pd.DataFrame"
    costs: "pd.DataFrame"
    baselines: "pd.DataFrame"
    records: Sequence[Record]
    variants: Sequence[Mapping[str, Any]]
    studies: Sequence[ShallowStudy]
    causal: Sequence[str]


def site(content: Content) -> bytes:
    """The page."""
    suite, variants = content.suite, {entry["name"]: entry for entry in content.variants}
    answered = answers(content.runs, suite, content.baselines)
    costs = of_plan(content.costs, suite.cost)
    seeds = results(content.runs, suite)
    table = advice.table(answered, seeds, costs, suite, variants, causal=content.causal)
    families = {row["family"]: colour_of(row["attention"]) for row in table["rows"]}
    families = dict(sorted(families.items()))
    rows = _rows(table, answered, matrix(answered, content.costs, suite), suite)
    curves = _curves(content.records, suite)
    data = {
        "rules": advice.RULES, "table": table, "curves": curves, "families": [*families],
        "scores": _scores(rows, suite),
    }  # fmt: skip
    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"number": number, "bytes": advice.bytes_text}
    environment.globals |= {"include_raw": _raw, "NOTHING": NOTHING, "MIDDLE": time_column(suite),
                            "rules": advice.RULES}  # fmt: skip
    page = environment.get_template("index.html.j2").render(
        suite=suite, table=table, rows=rows, families=families, curves=curves,
        lengths=sorted(suite.cost.lengths), variants=variants,
        studies=[_study(study) for study in content.studies], data=_json(data),
    )  # fmt: skip
    return page.encode()


def _raw(name: str) -> Markup:
    """A file of this folder as it is."""
    return Markup((FOLDER / name).read_text("utf-8"))


def _json(data: Values) -> Markup:
    """Data for a script element, which no text in it can close."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


def _rows(
    table: Values, answers: "pd.DataFrame", matrix: "pd.DataFrame", suite: "Suite"
) -> list[Values]:
    """The rows of the matrix in its order, with what the advisor knows of them."""
    of_row = {row["row"]: row for row in table["rows"]}
    cells = without_nan(matrix).to_dict("index")
    lines = without_nan(answers.set_index(["row", "question"])).to_dict("index")
    rows = []
    for name in (name for name in cells if name in of_row):
        row = of_row[name]
        found = {
            question.name: {
                **lines[name, question.name],
                "state": row["states"][question.name],
                "rank": row["groups"].get(question.name),
            }
            for question in suite.questions
        }
        rows.append({**row, "id": f"row-{len(rows)}", "cells": cells[name], "answers": found})
    return rows


def _scores(rows: Iterable[Values], suite: "Suite") -> Values:
    """Of each question: row, score, low, high, state bytes, and score and interval as text."""
    return {
        question.name: [
            [row["row"], answer["mean"], answer["low"], answer["high"],
             row["cells"]["state_bytes"], answer["text"], answer["interval"]]
            for row in rows
            if (answer := row["answers"][question.name])["mean"] is not None
        ]
        for question in suite.questions
    }  # fmt: skip


def _curves(records: Iterable[Record], suite: "Suite") -> Values:
    """The training loss by question and row: pairs of step and loss, of the first seed."""
    curves: Values = {question.name: {} for question in suite.questions}
    labels = {record.spec.id: record for record in records if record.final}
    runs = of_records(labels.values())
    if not len(runs):
        return curves
    finals = runs[(runs["suite"] == suite.key) & (runs["role"] != "trial")].sort_values("seed")
    for run in finals.drop_duplicates(["question", "row"]).to_dict("records"):
        points = labels[run["id"]].curve
        curves.get(run["question"], {})[run["row"]] = [
            [point.step, float(f"{point.loss:.{DIGITS}g}")] for point in points
        ]
    return curves


def _study(study: ShallowStudy) -> Values:
    """What the page says of a task of the Long Range Arena."""
    found = explain(study)
    return {
        "name": study.name, "conclusion": conclusion(study),
        "published": found.to_dict("records"), "reached": int((found["model"] != "none").sum()),
    }  # fmt: skip
