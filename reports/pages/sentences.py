"""The findings of a suite in a few sentences, computed from its results."""

from collections.abc import Hashable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness import recipes
from harness.records.families import is_control
from harness.records.suites import SuiteQuestion
from reports.statistics import LEVEL, told_apart
from reports.suite_results import on_longest
from reports.text import NOTHING, number, ratio_text

if TYPE_CHECKING:
    from reports.pages.suite import Tables

MOST = 10  # The most sentences
NAMED = 4  # The most rows that a sentence names
NONE = "none"  # The row without attention
CONV = "conv"  # The row with a convolution instead
FEW = 13  # The most rows of a form in a table of a README and in a heat map
GROUPS = AMONG, ABOVE, OPEN, BEHIND, AT_BASELINE = (
    "among the best at", "better than every baseline at", "not told apart from the best at",
    "behind the best at", "no better than a baseline at",
)  # fmt: skip
BOTH = ", both directions"  # The end of a title that the form says as well
# The reference, the mechanisms of Primal-Attention, and the controls
ALWAYS = ("softmax", "primal", "primal-moments", "gru", "conv", "none")
TIE = 1.15  # Times whose ratio is smaller are equal


def best_rows(of: "Tables", question: str) -> list[str]:
    # The fastest layer first; rows without a time last.
    shown = of.answers["row"].isin(of.rows(of.forms[question]))
    rows = _of_attention(of.answers[(of.answers["question"] == question) & shown])
    best = rows.loc[rows["best"].astype(bool), "row"]
    column = f"time.{of.suite.cost.middle_length}"
    lines = of.matrix[of.forms[question]].reindex(best).sort_values(column)
    return [str(row) for row in lines.index]


def _of_attention(answers: pd.DataFrame) -> pd.DataFrame:
    # A control such as a GRU is no answer to which attention to use.
    return answers[~answers["attention"].map(is_control).astype(bool)]


def few_rows(of: "Tables", form: str) -> list[str]:
    # `ALWAYS` and the rows of a user, then of each question in turn the best mean and the leaders,
    # in the order of the matrix. Of rows with as good a result the fastest is first; rows of one
    # seed are last.
    always = {*ALWAYS, *of.added}
    shown, ranked = of.rows(form), [[row for row in of.rows(form) if row in always]]
    for question in of.questions(form):
        rows = _of_attention(of.answers[of.answers["question"] == question.name]).set_index("row")
        rows = rows.dropna(subset=["mean"])
        order = rows["mean"] * rows["better"].map({"higher": -1.0, "lower": 1.0})
        digits = rows["better"].map({"higher": 0, "lower": 2})
        near = pd.DataFrame({
            "one_seed": rows["seeds"] < 2,
            "mean": [round(mean, n) for mean, n in zip(order, digits, strict=True)],
            "time": of.matrix[form][f"time.{of.suite.cost.middle_length}"].reindex(rows.index),
        }, index=rows.index)  # fmt: skip
        by_mean = near.sort_values(["one_seed", "mean", "time"], kind="stable").index
        means = [*map(str, by_mean)]
        ranked.append([*dict.fromkeys([*means[:1], *best_rows(of, question.name), *means])])
    pinned, *leaders = ranked
    turns = [row for turn in zip_longest(*leaders) for row in turn if row in shown]
    chosen = [*dict.fromkeys([*pinned, *turns, *shown])][: max(FEW, len(pinned))]
    return [row for row in shown if row in chosen]


def sentences(of: "Tables") -> list[str]:
    found = [_of_question(of, question.name) for question in of.suite.questions]
    found += [_of_mean(of), _of_baselines(of), *primal_sentences(of), *_of_pairs(of)]
    return [text for text in found if text][:MOST]


def readme_sentences(of: "Tables") -> list[str]:
    found = [_of_baselines(of), *primal_sentences(of), *_of_pairs(of)[:1], _of_experiments(of)]
    return [text for text in found if text]


def _of_question(of: "Tables", name: str) -> str:
    question = of.suite.question(name)
    shown = of.answers["row"].isin(of.rows(of.forms[name])) & (of.answers["text"] != "")
    every = of.answers[(of.answers["question"] == name) & shown]
    rows, best = _of_attention(every).set_index("row"), best_rows(of, name)
    if len(rows) < 2:
        return ""
    column = f"time.{of.suite.cost.middle_length}"
    times = of.matrix[of.forms[name]][column]
    sign = 1.0 if rows["better"].iloc[0] == "higher" else -1.0
    means = sign * rows["mean"]
    leader = _leader(rows)
    others = [row for row in best if row != leader]
    equal = rows.index[rows["text"] == rows.at[leader, "text"]]
    tested, apart = _compared(of, question, rows, leader)
    more = len(tested - apart - {*others})
    if not others and len(equal) > 1:
        text = f"{question.title}: {_named([*equal])} have {rows.at[leader, 'text']}"
    elif rows.at[leader, "rank_group"] and not others and not more:
        text = f"{question.title}: {leader} leads with {rows.at[leader, 'text']}"
    else:
        text = f"{question.title}: {leader} has {rows.at[leader, 'text']}"
        text += ", of one seed" if rows.at[leader, "seeds"] == 1 else ", the best mean"
        text += " of several seeds" * bool(means[leader] < means.max())
    if others:
        are = "are" if len(others) > 1 else "is"
        text += f". {_named(others)} {are} within 2 % of it, and not told apart"
    timed = [row for row in best if times.get(row) == times.get(row)]
    if timed and len(best) > 1:
        time = ratio_text(times[timed[0]])
        text += f". The cheapest of these is {timed[0]}, at {time} of softmax's time"
    if more:
        which = ("more" if others else "other") + "s" * (more > 1 and not others)
        text += f". {more} {which} {'are' if more > 1 else 'is'} not told apart from {leader}"
    controls = every[every["attention"].map(is_control).astype(bool)]
    above = controls[sign * controls["mean"] > means[leader]]
    text += "".join(f". {of['row']}, a control, has {of['text']}" for _, of in above.iterrows())
    text += _of_longest(question, every, times)
    # If it holds for all questions, another sentence says so.
    baseline = strongest(rows)
    if baseline and not rows["answered"].any() and not _of_baselines(of):
        are_worse = (means < sign * rows["baseline_value"]).all()
        how = "All variants are worse" if are_worse else "No variant is separably better"
        text += f". {how} than the strongest baseline, {baseline}"
    return f"{text}."


def _of_longest(question: SuiteQuestion, answers: pd.DataFrame, times: pd.Series) -> str:
    rows = on_longest(_of_attention(answers[answers["longest.text"] != ""])).set_index("row")
    if rows.empty:
        return ""
    leader = _leader(rows)
    timed = times.reindex(rows.index[rows["best"].astype(bool)]).dropna().sort_values().index
    others = [row for row in timed[:1] if row != leader]
    cheapest = "".join(f"; the cheapest within 2 % is {row}" for row in others)
    return f". With {question.longest_probe} {leader} has {rows.at[leader, 'text']}{cheapest}"


def _leader(rows: pd.DataFrame) -> str:
    # One seed leads only where fewer than two variants have more.
    means = rows["mean"] * rows["better"].map({"higher": 1.0, "lower": -1.0})
    several = means[rows["seeds"] > 1]
    return str((several if len(several) > 1 else means).idxmax())


def _compared(
    of: "Tables", question: SuiteQuestion, rows: pd.DataFrame, leader: str
) -> tuple[set[str], set[str]]:
    # The rows that were tested against `leader`, and those told apart from it.
    pairs = of.pairs[of.pairs["question"] == question.name]
    apart = told_apart(rows.reset_index(), pairs, question.ceiling)
    tested = {*map(frozenset, pairs[["first", "second"]].itertuples(index=False, name=None))}
    both = {row: {leader, row} for row in rows.index}
    return (
        {row for row, pair in both.items() if pair in tested},
        {row for row, pair in both.items() if pair in apart},
    )


def _named(rows: list[str]) -> str:
    if len(rows) > NAMED:
        return f"{', '.join(rows[:NAMED])} and {len(rows) - NAMED} more"
    return " and ".join(filter(None, [", ".join(rows[:-1]), rows[-1]]))


def strongest(answers: pd.DataFrame) -> str:
    """The strongest baseline of most rows of a question, with its score; empty without one."""
    found = answers.loc[answers["baseline"] != "", ["baseline", "baseline_value"]].value_counts()
    return next((f"{name}: {number(value)}" for name, value in found.index[:1]), "")


def _of_pairs(of: "Tables") -> list[str]:
    texts: dict[str, list[str]] = {"Pairs told apart": [], f"Against no attention ({NONE})": []}
    for question in of.suite.questions if of.suite.average else ():
        pairs = of.pairs[of.pairs["question"] == question.name]
        with_none = (pairs["first"] == NONE) | (pairs["second"] == NONE)
        for named, chosen in zip(texts.values(), (pairs, pairs[with_none]), strict=True):
            apart = (chosen["p_holm"] <= LEVEL).sum()
            named += [f"{question.title} {apart} of {len(chosen)}"] * bool(len(chosen))
    return [f"{start}: {', '.join(named)}." for start, named in texts.items() if named]


def _of_experiments(of: "Tables") -> str:
    # The first published accuracy is of the suite's first source.
    texts: dict[str, list[str]] = {}
    shown = [line for line in of.experiments if line["text"] and not line["outdated"]]
    for line in shown if of.suite.average else ():
        table = of.matrix[of.forms[name := line["changes"].partition(",")[0]]]
        printed = str(table.get(f"{name}.published", pd.Series()).get(line["row"], ""))
        known = [text for text in printed.split(" / ") if text not in ("", NOTHING)][:1]
        text = f"{line['row']} {line['text']}" + "".join(f" (published: {of})" for of in known)
        texts.setdefault(line["changes"], []).append(text)
    parts = [f"{of[:1].upper()}{of[1:]}: {', '.join(rows)}" for of, rows in texts.items()]
    one_seed = " of one seed" * all(line["seeds"] == 1 for line in shown)
    return f"Experiments{one_seed}. {'. '.join(parts)}." if parts else ""


def _of_mean(of: "Tables") -> str:
    if not of.suite.average or of.answers.loc[of.answers["text"] != "", "question"].nunique() < 2:
        return ""
    column = f"time.{of.suite.cost.longest_length}"
    every = pd.concat(of.matrix.values()).dropna(subset=["mean"])
    rows = _of_attention(every)
    if len(rows) < 2:
        return ""
    rows, times = rows.sort_values("mean"), rows[column].dropna().sort_values()
    leader, best = str(rows.index[-1]), rows.iloc[-1]
    text = f"Mean over the tasks: {leader} has {best['mean']:.1f}, the best"
    near = [*rows.index[:-1][rows["mean.high"].iloc[:-1] >= best["mean.low"]]][::-1]
    controls = every.drop(rows.index)
    overlap = (controls["mean.high"] >= best["mean.low"]) & (
        controls["mean.low"] <= best["mean.high"]
    )
    also = [*controls.index[overlap]]
    others = [*map(_named, filter(None, [near])), *(f"{row}, without attention" for row in also)]
    if others:
        text += f"; its interval overlaps with {', and with '.join(others)}"
    above = controls["mean"][controls["mean.low"] > best["mean.high"]]
    text += "".join(f". {row}, without attention, has {mean:.1f}" for row, mean in above.items())
    if len(times):
        tied = times[times < TIE * times.iloc[0]]
        fast, ends = [*tied.index], dict.fromkeys(map(ratio_text, tied.iloc[[0, -1]]))
        text += (f". At {of.suite.cost.longest_length:,} tokens {_named(fast)} "
                 f"{'are' if len(fast) > 1 else 'is'} the cheapest, {' to '.join(ends)} "
                 f"of softmax's time")  # fmt: skip
    return f"{text}."


def _of_baselines(of: "Tables") -> str:
    # Only where it holds for all questions.
    rows = of.answers[of.answers["text"] != ""]
    if rows.empty or rows["answered"].any() or not (rows["baseline"] != "").any():
        return ""
    by_question = dict(iter(rows.groupby("question")))
    best = [f"{question.title}, {strongest(by_question[question.name])}"
            for question in of.suite.questions if question.name in by_question]  # fmt: skip
    steps = {recipe.train["steps"] for recipe in recipes.of_suite(of.suite).values()}
    after = f"After {steps.pop():,} steps no" if len(steps) == 1 else "No"
    return f"{after} variant is better than the strongest baselines: {'; '.join(best)}."


def _group(of: "Tables", question: SuiteQuestion, row: str) -> str:
    # Where every variant is at a baseline, those that were tested are compared with the best.
    every = of.answers[(of.answers["question"] == question.name) & of.answers["mean"].notna()]
    rows = _of_attention(every).set_index("row")
    if rows.at[row, "best"]:
        return AMONG
    if not rows.at[row, "at_baseline"]:
        return ABOVE
    tested, apart = _compared(of, question, rows, _leader(rows))
    if rows["answered"].any() or row not in tested | apart:
        return AT_BASELINE
    return BEHIND if row in apart else OPEN


def primal_sentences(of: "Tables") -> list[str]:
    found = of.answers[(of.answers["row"] == "primal") & (of.answers["text"] != "")]
    found = {answer["question"]: answer for answer in found.to_dict("records")}
    texts = []
    for form, matrix in of.matrix.items():
        groups: dict[str, list[str]] = {name: [] for name in GROUPS}
        for question in of.questions(form):
            if answer := found.get(question.name):
                group = _group(of, question, "primal")
                title, behind = question.title.removesuffix(BOTH), _behind_conv(of, answer)
                groups[group].append(f"{title} ({answer['text']}{behind})")
        parts = [f"{group} {', '.join(named)}" for group, named in groups.items() if named]
        subject = f"Primal-Attention, {form}"
        if of.suite.average and (less := _less_softmax(of, form)):
            subject, parts = f"Primal-Attention less softmax (planned), {form}", [", ".join(less)]
        ratio, last = matrix[f"time.{of.suite.cost.middle_length}"].get("primal"), ""
        if parts and not of.suite.average and ratio is not None and ratio == ratio:
            length = of.suite.cost.middle_length
            what = "A layer" if of.suite.cost.level == "layer" else "A training step"
            last = f" {what} takes {ratio_text(ratio)} of softmax's time at {length:,} tokens."
        texts += [f"{subject}: {'. It is '.join(parts)}.{last}"] * bool(parts)
    return texts


def _behind_conv(of: "Tables", answer: Mapping[Hashable, Any]) -> str:
    # Where no variant is above the strongest baseline, the convolution shows what attention adds.
    every = of.answers[of.answers["question"] == answer["question"]]
    sign = 1 if answer["better"] == "higher" else -1
    better = sign * every["mean"] > sign * answer["mean"]
    texts = every.loc[better & (every["row"] == CONV) & ~every["answered"].any(), "text"]
    return "".join(f"; {CONV}: {text}" for text in texts)


def _less_softmax(of: "Tables", form: str) -> list[str]:
    # A planned comparison: the difference, with its own 95 % interval.
    found, both = [], {(pair["question"], pair["first"], pair["second"]): pair
                       for pair in of.pairs.to_dict("records")}  # fmt: skip
    for question in of.questions(form):
        for first, second, sign in (("primal", "softmax", 1), ("softmax", "primal", -1)):
            if pair := both.get((question.name, first, second)):
                low, high = sorted(sign * pair[end] for end in ("low", "high"))
                difference = sign * pair["difference"]
                found.append(f"{question.title} {difference:+.1f} [{low:+.1f}, {high:+.1f}]")
    return found
