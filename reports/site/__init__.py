"""The site: a suite's matrix, advisor, charts and cards as one HTML file that opens from a disk."""

import json
import math
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from harness.records.families import colour_of
from harness.records.frame import of_records
from harness.records.record import Record
from harness.records.results import ShallowStudy
from harness.records.suites import Suite
from reports import advice, validity
from reports.advice import Values
from reports.figures.heat_map import colours, ink_on
from reports.layer_costs import CAUSAL
from reports.pages.findings import conclusion, explain
from reports.pages.sentences import sentences
from reports.pages.suite import Tables
from reports.suite_results import on_longest
from reports.text import CONTROLS, NOTHING, number, ratio_text, whole_text, without_nan

FOLDER = Path(__file__).parent
NAME = "index.html"
DIGITS = 4  # Significant digits of a point of a curve


def site(
    tables: Tables, costs: pd.DataFrame, catalogue: Mapping[str, Sequence[Mapping[str, Any]]],
    *, records: Sequence[Record], studies: Sequence[ShallowStudy], arena: Tables | None = None,
) -> bytes:  # fmt: skip
    # `arena` are the results of the Long Range Arena.
    suite = tables.suite
    table = advice.table(tables.answers, tables.seeds, costs, suite, catalogue)
    families = {row["family"]: colour_of(row["attention"]) for row in table["rows"]}
    families = dict(sorted(families.items()))
    cards, (orderings, _) = _cards(table, tables), validity.compared(tables)
    curves = _curves(records, suite)
    choices = advice.choices(table)
    # The results of the advisor repeat each other.
    packed = b64encode(zlib.compress(json.dumps(choices).encode(), 9)).decode()
    fields = ("row", "family", "points", "crossovers")
    shown = [{field: row[field] for field in fields} for row in table["rows"]]
    data = {
        "passes": advice.PASSES, "places": advice.PLACES, "table": {**table, "rows": shown},
        "choices": packed, "most_needs": advice.MOST_NEEDS, "curves": curves,
        "families": [*families], "scores": _scores(cards.values(), suite),
    }  # fmt: skip
    # No text in it can close the script element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    script = Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))
    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"number": number, "ratio": ratio_text, "whole": whole_text}
    environment.filters["bytes"] = advice.bytes_text
    environment.globals |= {
        "include_raw": lambda name: Markup((FOLDER / name).read_text("utf-8")), "NOTHING": NOTHING,
        "MIDDLE": f"time.{suite.cost.middle_length}", "passes": advice.PASSES,
    }  # fmt: skip
    page = environment.get_template("index.html.j2").render(
        suite=suite, of=tables, table=table, cards=cards, families=families,
        curves=curves, forms=tables.forms, fields=_fields(tables), arena=arena,
        setting=tables.setting,
        lengths=sorted(suite.cost.lengths), tokens=choices["lengths"],
        studies=[{"name": of.name, "conclusion": conclusion(of), "published": explain(of)}
                 for of in studies], data=script, sentences=sentences(tables),
        validity=validity.sentence(orderings), orderings=orderings.to_dict("records"),
        variants={variant["name"]: variant for variant in catalogue["variants"]},
    )  # fmt: skip
    return page.translate(CONTROLS).encode()


def _fields(tables: Tables) -> dict[tuple[str, str], Values]:
    # By question and row: the colours of a field of the matrix, and how its score was made.
    made = tables.seeds.groupby(["question", "row"])
    rates, seeds = made["train.lr"].last().to_dict(), made["seed"].nunique().to_dict()
    found: dict[tuple[str, str], Values] = {}
    groups = [*tables.answers.groupby("question")]
    groups += [(f"{name}.longest", on_longest(answers)) for name, answers in groups
               if answers["longest.text"].any()]  # fmt: skip
    for name, answers in groups:
        for row, colour in zip(answers["row"], colours(answers, answers), strict=True):
            if colour:
                at = (str(name), row)
                style = f"--field:{to_hex(colour)};--on-field:{ink_on(colour)}"
                rate, count = rates.get(at, math.nan), seeds.get(at, 0)
                made_by = [f"rate {rate:.3g}"] * (rate == rate) + [f"{count} seeds"] * (count > 1)
                found[at] = {"style": style, "made": ", ".join(made_by)}
    return found


def _cards(table: Values, tables: Tables) -> dict[str, Values]:
    answer_of = without_nan(tables.answers.set_index(["row", "question"])).to_dict("index")
    costs = tables.matrix.get(CAUSAL, pd.DataFrame(columns=["state_bytes"]))
    states = without_nan(costs)["state_bytes"].to_dict()
    failures = tables.answers.groupby("row")["known_failures"].max().fillna(0).to_dict()
    return {
        row["row"]: {
            **row, "id": f"row-{place}", "state_bytes": states.get(row["row"]),
            "known_failures": failures[row["row"]],
            "answers": {
                name: {**answer_of[row["row"], name], "state": row["states"][name],
                       "rank": row["groups"].get(name)}
                for name in tables.forms
            },
        }
        for place, row in enumerate(table["rows"])
        if row["row"] in failures
    }  # fmt: skip


def _scores(rows: Iterable[Values], suite: Suite) -> Values:
    # Row, score, low, high, state bytes.
    return {
        question.name: [
            [row["row"], answer["mean"], answer["low"], answer["high"], row["state_bytes"]]
            for row in rows
            if (answer := row["answers"][question.name])["mean"] is not None
        ]
        for question in suite.questions
    }  # fmt: skip


def _curves(records: Iterable[Record], suite: Suite) -> Values:
    # Pairs of step and loss, of the first seed.
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
