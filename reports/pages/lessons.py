"""The lessons of a suite in a few sentences, computed from its results."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from reports.suite_results import has_runs
from reports.text import number
from reports.verdicts import ABLE, DECIDED, UNDECIDED, Rise, is_unable_possible

if TYPE_CHECKING:
    from reports.pages.suite import Tables


def lessons(of: "Tables") -> list[str]:
    """The lessons of the results, a sentence each; none for a suite without a ceiling."""
    titles = {q.name: q.title for q in of.suite.questions if q.ceiling is not None}
    judged = of.answers[of.answers["verdict"].isin(DECIDED)]
    sentences = {
        "Entries of the matrix": entries(of),
        "Undecided": _undecided(judged),
        "Steps to the ceiling, medians of seeds": _steps(judged, titles),
        "The best scores where no ceiling is set": _scores(of, titles),
        **{f"Primal-Attention, {row}": _row(of, row) for row in ("primal", "primal-moments")},
    }
    return [f"{what}: {text}." for what, text in sentences.items() if text and titles]


def entries(of: "Tables") -> str:
    """The number of entries of the matrix that are finished, in part and not run."""
    ran, part = has_runs(of.answers), of.answers["part"] != ""
    counts = {"finished": ran & ~part, "in part": part}
    texts = [f"{found.sum()} {name}" for name, found in counts.items()]
    return ", ".join([*texts, f"{len(of.missing)} not run"])


def _undecided(judged: pd.DataFrame) -> str:
    found = judged[judged["verdict"] == UNDECIDED]
    rises = found[[*Rise._fields]].itertuples(index=False)
    rising = sum(Rise(*ends).is_rising for ends in rises)
    if judged.empty:
        return ""
    share = f"{100 * len(found) / len(judged):.0f} %"
    impossible = sum(
        Rise(*ends).is_flat
        for _, same in judged.groupby("question")
        if not is_unable_possible(same)
        for ends in same.loc[same["verdict"] == UNDECIDED, [*Rise._fields]].itertuples(index=False)
    )
    text = f"{len(found)} of {len(judged)} verdicts, {share}; {rising} still improve at the end"
    return text + f"; {impossible} flat, where no variant can be unable" * bool(impossible)


def _steps(judged: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """The able rows of each question, with the least and the most steps of theirs."""
    texts = []
    for name, same in judged[judged["verdict"] == ABLE].groupby("question", sort=False):
        ends = [f"{steps:,.0f}" for steps in sorted({same["steps"].min(), same["steps"].max()})]
        texts.append(f"{titles[str(name)]} {' to '.join(ends)} ({', '.join(same['row'])})")
    return "; ".join(texts)


def _scores(of: "Tables", titles: Mapping[str, str]) -> str:
    """The best row and the strongest baseline of each question without a ceiling."""
    texts, finished = [], (of.answers["text"] != "") & (of.answers["part"] == "")
    for question in of.suite.questions:
        found = of.answers[(of.answers["question"] == question.name) & finished]
        if question.name in titles or found.empty:
            continue
        sign = -1 if found["better"].iloc[0] == "higher" else 1
        best = found.iloc[(sign * found["mean"]).argmin()]
        text = f"{question.title}: {best['row']} with {best['text']} {best['interval']}"
        if best["baseline"]:
            text += f", the baseline {best['baseline']} with {number(best['baseline_value'])}"
        texts.append(text)
    return "; ".join(texts)


def _row(of: "Tables", row: str) -> str:
    found = of.answers[(of.answers["row"] == row) & (of.answers["text"] != "")]
    titles = {question.name: question.title for question in of.suite.questions}
    texts = [
        f"{titles[str(answer['question'])]} {answer['text']}"
        + f" ({answer['verdict']})" * bool(answer["verdict"])
        for answer in found.to_dict("records")
    ]
    length = of.suite.cost.middle_length
    for form, matrix in of.matrix.items():
        ratio = matrix[f"time.{length}"].get(row, math.nan) if texts else math.nan
        if not math.isnan(ratio):
            texts.append(f"{number(ratio)} of the time of softmax, {form}, {length:,} tokens")
    return "; ".join(texts)
