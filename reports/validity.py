"""Published orderings as tests of a suite: whether its results have the same order."""

import math
import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports import papers
from reports.markdown import rendered
from reports.statistics import between
from reports.text import outdated_text

if TYPE_CHECKING:
    from reports.pages.suite import Tables

FILE = Path(__file__).parent / "published" / "orderings.toml"
REPRODUCED, UNDECIDED, CONTRADICTED = "reproduced", "undecided", "contradicted"
ONE_SEED = "with one seed"  # The verdict if one of the two variants has no more
NOT_COMPARABLE = "not comparable"  # The verdict if the file has `incomparable` for it
NOT_RUN = "not run"  # The verdict if one of the two variants lacks runs

# The verdict if training of both ended at the ceiling.
AT_CEILING = "not reproduced: both solve it"
LOWER = ("perplexity",)  # The units of published numbers of which less is better
ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text("utf-8"))


def suite() -> str:
    return str(_file()["suite"])


def published() -> tuple[Mapping[str, str], ...]:
    return tuple(_file()["orderings"])


def orderings(
    answers: pd.DataFrame, probes: pd.DataFrame, pairs: pd.DataFrame,
    questions: Collection[str] = (),
) -> pd.DataFrame:  # fmt: skip
    # A line for each ordering: its fields; `first` and `second`, the means of the two rows;
    # `difference`, positive in the published order, with its 95 % interval `low` to `high`: of the
    # pair, or else the sum of both intervals (`pairs` of questions have an empty `probe`);
    # `verdict`; `rising`, the variants that still improve; `below_control`, whether the second is
    # worse than the model without attention that the file names for the question.
    chosen = {*(questions or answers["question"])}
    empty = {"probe": "", "explanation": "", "incomparable": "", "later": False}
    asked = [ordering for ordering in published() if ordering["question"] in chosen]
    return pd.DataFrame([{**empty, **of, **_compared(of, answers, probes, pairs)} for of in asked])


def _results(of: Mapping[str, str], answers: pd.DataFrame, probes: pd.DataFrame) -> pd.DataFrame:
    finished = answers[(answers["question"] == of["question"]) & answers["mean"].notna()]
    finished = finished.drop_duplicates("row").set_index("row")
    if "probe" not in of:
        return finished
    found = probes[(probes["probe"] == of["probe"]) & (probes["question"] == of["question"])]
    found = found[found["mean"].notna()].drop_duplicates("row").set_index("row")
    found = found[["better", "mean", "low", "high", "seeds", "trained"]]
    return found.join(finished[["solved", "rising"]], how="inner")


def _compared(
    ordering: Mapping[str, str], answers: pd.DataFrame, probes: pd.DataFrame, pairs: pd.DataFrame
) -> dict[str, Any]:
    lines = _results(ordering, answers, probes).to_dict("index")
    first, second = (lines.get(ordering[name]) for name in ("above", "below"))
    if not first or not second:
        nothing = dict.fromkeys(("first", "second", "difference", "low", "high"), math.nan)
        return {**nothing, "below_control": False, "verdict": NOT_RUN, "rising": []}
    sign = 1 if first["better"] == "higher" else -1
    of_both = pairs[pairs["question"] == ordering["question"]]
    of_question = of_both[of_both["probe"] == ""]
    asked = of_both[of_both["probe"] == ordering.get("probe", "")]
    pair = between(asked, [(ordering["above"], ordering["below"])])
    ends = first["low"] - second["high"], first["high"] - second["low"]
    low, high = sorted(sign * end for end in ends)
    if len(pair):
        low, high = _interval(pair, sign)
    control = _file()["controls"].get(ordering["question"], "")
    to_control = between(of_question, [(ordering["below"], control)])
    verdict = NOT_COMPARABLE if "incomparable" in ordering else ONE_SEED
    # The ceiling of a question does not apply to probes without training.
    is_trained = "probe" not in ordering or first["trained"]
    if first["solved"] and second["solved"] and is_trained:
        verdict = AT_CEILING
    elif verdict == ONE_SEED and min(first["seeds"], second["seeds"]) > 1:
        verdict = REPRODUCED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED
    return {
        "first": first["mean"], "second": second["mean"],
        "difference": sign * (first["mean"] - second["mean"]), "low": low, "high": high,
        "verdict": verdict,
        "rising": [ordering[name] for name, of in (("above", first), ("below", second))
                   if of["rising"]],
        "below_control": len(to_control) > 0 and _interval(to_control, sign)[1] < 0,
    }  # fmt: skip


def _interval(pair: pd.DataFrame, sign: int) -> list[float]:
    # Higher is better.
    return sorted(sign * float(end) for end in pair[["low", "high"]].iloc[0])


def correlations(answers: pd.DataFrame, probes: pd.DataFrame) -> pd.DataFrame:
    # A line for each table: `question`, `probe`, `task`, `reference`, and `papers.correlation`.
    found = []
    for of in _file()["tables"]:
        ours = _results(of, answers, probes)
        signs = ours["better"].map({"higher": 1, "lower": -1}).astype(float)
        ours = ours["mean"].astype(float) * signs
        for reference, table in papers.published(task=of["task"]).groupby("reference", sort=False):
            sign = -1 if table["unit"].iloc[0] in LOWER else 1
            of_both = papers.correlation(ours, table.assign(value=sign * table["value"]))
            found.append({"probe": "", **of, "reference": reference, **of_both})
    return pd.DataFrame(found)


def compared(of: "Tables") -> tuple[pd.DataFrame, pd.DataFrame]:
    names = {question.name for question in of.suite.questions}
    answers, probes = of.answers, of.probes
    if of.suite.key != suite():
        names, answers, probes = {o["question"] for o in published()}, answers[:0], probes[:0]
    tables = correlations(answers, probes)
    pairs = pd.concat([of.pairs.assign(probe=""), of.probe_pairs])
    return orderings(answers, probes, pairs, names), tables[tables["question"].isin(names)]


def sentence(found: pd.DataFrame) -> str:
    later, texts = found["later"].astype(bool), []
    order = (REPRODUCED, CONTRADICTED, NOT_COMPARABLE, AT_CEILING, UNDECIDED, ONE_SEED, NOT_RUN)
    for chosen in (~later, later):
        count = found.loc[chosen, "verdict"].value_counts()
        of_order = (f"{count[name]} {name.split(': ')[-1]}" for name in order if name in count)
        texts.append(", ".join(of_order) or "none")
    return (
        f"{(~later).sum()} orderings were fixed before results were known: {texts[0]}. "
        f"{later.sum()} were chosen or changed afterwards: {texts[1]}."
    )


def page(of: "Tables") -> str:
    found, tables = compared(of)
    is_tested = of.suite.key == suite()
    titles = {question.name: question.title for question in of.suite.questions}
    found, tables = (frame.replace({"question": titles}) for frame in (found, tables))
    return rendered(
        "validity.md.j2", sentence=sentence(found), orderings=found.to_dict("records"),
        tables=tables.to_dict("records"), fewest=papers.FEWEST,
        contradicted=CONTRADICTED, undecided=UNDECIDED, not_comparable=NOT_COMPARABLE,
        note=outdated_text(of.seeds) if is_tested else "",
        link=lambda text: ARXIV.sub(r"[\g<0>](https://arxiv.org/abs/\g<0>)", text),
    )  # fmt: skip
