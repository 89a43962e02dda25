"""The lessons of a suite in a few sentences, computed from its results."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from harness.records.families import family_of
from reports.text import number
from reports.verdicts import ABLE, UNABLE, UNDECIDED, Rise

if TYPE_CHECKING:
    from reports.pages.suite import Tables


def learnt(of: "Tables") -> list[str]:
    """The lessons of the results, a sentence each; none for a suite without a ceiling.

    A sentence without results is left out.
    """
    titles = {q.name: q.title for q in of.suite.questions if q.ceiling is not None}
    judged = of.answers[of.answers["verdict"] != ""]
    sentences = {
        "Verdicts by question": _counts(judged, titles),
        "The fewest steps to the ceiling": _fewest_steps(judged, titles),
        "Able results by family": _families(judged),
        "The best scores where no ceiling is set": _scores(of, titles),
        "Undecided": _undecided(of, judged),
        **{f"Primal-Attention, {row}": _row(of, row) for row in ("primal", "primal-moments")},
    }
    return [f"{what}: {text}." for what, text in sentences.items() if text and titles]


def _counts(judged: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """The rows with each verdict, by question."""
    texts = []
    for name, title in titles.items():
        count = judged.loc[judged["question"] == name, "verdict"].value_counts()
        of = [f"{count[verdict]} {verdict}" for verdict in (ABLE, UNABLE, UNDECIDED)
              if verdict in count]  # fmt: skip
        texts.append(f"{title}: {', '.join(of) or 'no row has run'}")
    return "; ".join(texts)


def _fewest_steps(judged: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """The fastest and the slowest able row of each question, in steps."""
    able = judged[judged["verdict"] == ABLE].sort_values("steps", kind="stable")
    texts = []
    for name, same in able.groupby("question", sort=False):
        first, *_, last = [*zip(same["row"], same["steps"], strict=True)] * 2
        slowest = f"; the slowest of {len(same)}, {last[0]}, after {last[1]:,.0f}" * (len(same) > 1)
        texts.append(f"{titles[str(name)]}: {first[0]} after {first[1]:,.0f}{slowest}")
    return ". ".join(texts)


def _families(judged: pd.DataFrame) -> str:
    """The able ones among the results of each family, the largest share first."""
    able = (judged["verdict"] == ABLE).groupby(judged["attention"].map(family_of))
    found = able.agg(["sum", "count", "mean"]).sort_values("mean", ascending=False, kind="stable")
    return "; ".join(f"{of.Index} {of.sum:.0f} of {of.count:.0f}" for of in found.itertuples())


def _scores(of: "Tables", titles: Mapping[str, str]) -> str:
    """The best row and the strongest baseline of each question without a ceiling."""
    texts = []
    for question in of.suite.questions:
        found = of.answers[(of.answers["question"] == question.name) & (of.answers["text"] != "")]
        if question.name in titles or found.empty:
            continue
        sign = -1 if found["better"].iloc[0] == "higher" else 1
        best = found.iloc[(sign * found["mean"]).argmin()]
        text = f"{question.title}: {best['row']} with {best['text']} {best['interval']}"
        if best["baseline"]:
            text += f", the baseline {best['baseline']} with {number(best['baseline_value'])}"
        texts.append(text)
    return "; ".join(texts)


def _undecided(of: "Tables", judged: pd.DataFrame) -> str:
    """The number of undecided results, of those that still improve, and of those not run yet."""
    found = judged[judged["verdict"] == UNDECIDED]
    rising = sum(Rise(*ends).is_rising for ends in found[["rise", "error"]].itertuples(index=False))
    text = f"{len(found)} of {len(judged)} verdicts, {rising} of them still improve at the end"
    if not of.missing:
        return text
    count = Counter(title for _, title in of.missing)
    return f"{text}; not run yet: {', '.join(f'{title} {n}' for title, n in count.items())}"


def _row(of: "Tables", row: str) -> str:
    """What a row has on each question, and what it costs in each form."""
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
