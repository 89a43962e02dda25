"""Rows that lack runs or checks: what they lack, and the command that makes it."""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness.records.families import layer_counts
from harness.records.spec import flags_of, label_of
from harness.records.store import CertificateStore
from harness.records.versions import built_in, major, versions_in
from reports.suite_results import has_runs

if TYPE_CHECKING:
    from reports.pages.suite import Catalogue, Tables


RAN = ["status", "part"]  # Texts of a question, which both are empty without a run


def marked(
    of: "Tables", runs: pd.DataFrame, stores: Sequence[Path], typed: Mapping[str, str],
    catalogue: "Catalogue", rows: Collection[str], named: Collection[str], suite: str,
    questions: Collection[str],
) -> "Tables":  # fmt: skip
    # `rows` are marked if they lack something; variants that are `named` have a note if they have
    # no run. `suite` and `questions` are as a user names them, and `typed` has plug-ins by name.
    def note(what: str, row: str, missing: Collection[str]) -> str:
        options = {"suite": suite, "questions": ",".join(missing), "store": stores[-1]}
        texts = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items()
                 if str(value) not in ("", "runs")]  # fmt: skip
        attention = as_typed(row.partition("[")[0], typed)
        return f"{what}: harness run {' '.join(texts)} {flags_of(row, attention)}"

    answers, marks = of.answers[has_runs(of.answers)], {}
    certified = {(found.variant, major(found.version)) for store in stores
                 for found in CertificateStore.within(store).read()[0] if found.passed}  # fmt: skip
    titles = {question.name: question.title for question in of.suite.questions}
    forms = {variant["name"]: variant for variant in catalogue["variants"]}
    for row in sorted({*rows} & {*answers["row"]}):
        found = of.answers[of.answers["row"] == row].set_index("question")
        kinds = [forms.get(name, {}) for name in layer_counts(found["attention"].iloc[0])]
        parts = {str(name): str(part) for name, part in found["part"].items() if part}
        parts |= {name: "not run" for name in questions if not any(found.loc[name, RAN])
                  and all(kind.get(of.forms[name], True) for kind in kinds)}  # fmt: skip
        texts = [f"{titles[name]}: {part}" for name, part in parts.items()]
        run = runs[(runs["row"] == row) & (runs["suite"] == of.suite.key)].iloc[-1]
        options, versions = json.loads(run["overrides"]), versions_in(run["version"])
        # The variants of this project have tests.
        labels = {label_of(name, {p: v for p, v in options.items() if p.startswith(f"{name}.")}):
                  versions[name] for name in versions.keys() - built_in().keys()}  # fmt: skip
        texts += ["no checks"] * (not labels.items() <= certified)
        if texts:
            due = [*parts] or [*answers.loc[answers["row"] == row, "question"]]
            marks[row] = note(f"* {row} lacks {'; '.join(texts)}. Complete it", row, due)
    absent = [
        name for name in named if not answers[["row", "attention"]].isin([name]).any(axis=None)
    ]
    asked = [question.name for question in of.suite.questions] if questions else []
    notes = [note(f"No run of {name}; make them", name, asked) for name in absent]
    return of._replace(marks=marks, notes=(*of.notes, *marks.values(), *notes))


def as_typed(attention: str, typed: Mapping[str, str]) -> str:
    for name in layer_counts(attention).keys() - built_in().keys():
        text = typed.get(name, f"MODULE:{name}")
        attention = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, attention)
    return attention
