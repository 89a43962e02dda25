"""The site: a suite's matrix, advisor, charts and cards as one HTML file without other files.

Everything is in the file, so that it opens from a disk: data, style, scripts, two libraries of
`vendor/` (d3 and Observable Plot, ISC). Without JavaScript it is a page of plain tables.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.records.baselines import ShallowStudy
from harness.records.families import colour_of
from harness.records.frame import of_records
from harness.records.record import Record
from harness.records.suites import Suite
from reports import advice
from reports.pages.findings import conclusion, explain
from reports.pages.suite import Tables
from reports.text import CONTROLS, NOTHING, number, without_nan

FOLDER = Path(__file__).parent

NAME = "index.html"

Values = dict[str, Any]

DIGITS = 4
"""Significant digits of a point of a curve."""


def site(
    tables: Tables, costs: pd.DataFrame, catalogue: Mapping[str, Sequence[Mapping[str, Any]]],
    *, records: Sequence[Record], studies: Sequence[ShallowStudy],
) -> bytes:  # fmt: skip
    """The page of a suite, from its tables and the costs of a store.

    `records` of the same store have their curves, the `catalogue` is as `harness list --json` gives
    it, and `studies` of shallow models are of the Long Range Arena.
    """
    suite = tables.suite
    table = advice.table(tables.answers, tables.seeds, costs, suite, catalogue)
    families = {row["family"]: colour_of(row["attention"]) for row in table["rows"]}
    families = dict(sorted(families.items()))
    rows = _rows(table, tables.answers, tables.matrix, suite)
    curves = _curves(records, suite)
    data = {
        "rules": advice.RULES, "table": table, "curves": curves, "families": [*families],
        "scores": _scores(rows, suite),
    }  # fmt: skip
    # No text in it can close the script element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    script = Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))
    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"number": number, "bytes": advice.bytes_text}
    environment.globals |= {
        "include_raw": lambda name: Markup((FOLDER / name).read_text("utf-8")), "NOTHING": NOTHING,
        "MIDDLE": f"time.{suite.cost.middle_length}", "rules": advice.RULES,
    }  # fmt: skip
    page = environment.get_template("index.html.j2").render(
        suite=suite, table=table, rows=rows, families=families, curves=curves,
        lengths=sorted(suite.cost.lengths), studies=[_study(study) for study in studies],
        variants={variant["name"]: variant for variant in catalogue["variants"]}, data=script,
    )  # fmt: skip
    return page.translate(CONTROLS).encode()


def _rows(table: Values, answers: pd.DataFrame, matrix: pd.DataFrame, suite: Suite) -> list[Values]:
    """The rows of the matrix in its order, with what the advisor knows of them."""
    of_row = {row["row"]: row for row in table["rows"]}
    answer_of = without_nan(answers.set_index(["row", "question"])).to_dict("index")
    rows = []
    for name, line in without_nan(matrix).to_dict("index").items():
        if name not in of_row:
            continue
        row = of_row[name]
        found = {
            question.name: {
                **answer_of[name, question.name],
                "state": row["states"][question.name],
                "rank": row["groups"].get(question.name),
            }
            for question in suite.questions
        }
        rows.append({**row, "id": f"row-{len(rows)}", "line": line, "answers": found})
    return rows


def _scores(rows: Iterable[Values], suite: Suite) -> Values:
    """Of each question: row, score, low, high, state bytes, and score and interval as text."""
    return {
        question.name: [
            [row["row"], answer["mean"], answer["low"], answer["high"],
             row["line"]["state_bytes"], answer["text"], answer["interval"]]
            for row in rows
            if (answer := row["answers"][question.name])["mean"] is not None
        ]
        for question in suite.questions
    }  # fmt: skip


def _curves(records: Iterable[Record], suite: Suite) -> Values:
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
