"""The matrix of a suite: a table for each form, a row for each variant, one entry a column."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from harness.records.families import is_control, order_of
from harness.records.spec import unmatched
from harness.records.suites import CostPlan, Suite, SuiteQuestion
from reports import papers
from reports.layer_costs import CAUSAL, FORMS, measured, with_compositions
from reports.progress import NO_PROGRESS, SOLVED
from reports.suite_results import has_runs
from reports.table import OUTPUTS, ROW, Cell, Column, Line, Table, grid, values
from reports.text import NOTHING, ratio_text, whole_text

PAGES, SCREENS = ("page", "site"), ("page", "terminal", "site")
NO_README = (*SCREENS, "latex")


class Source(NamedTuple):
    answers: pd.DataFrame
    costs: pd.DataFrame


Of = Callable[[Source], pd.Series]  # The values of a column by row


def answer(question: str, name: str) -> Of:
    return lambda source: (
        source.answers.loc[source.answers["question"] == question, ["row", name]]
        .set_index("row")[name]
    )  # fmt: skip


def of_row(name: str, how: str) -> Of:
    return lambda source: source.answers.groupby("row")[name].agg(how)


def cost(operation: str, length: int, name: str) -> Of:
    return lambda source: (
        source.costs[(source.costs["pass"] == operation) & (source.costs["length"] == length)]
        .set_index("row").reindex(columns=[name])[name]
    )  # fmt: skip


def columns(suite: Suite, form: str, questions: Sequence[SuiteQuestion]) -> list[Column]:
    plan, names = suite.cost, [question.name for question in questions]
    middle = plan.middle_length
    return [
        *values("attention", of=of_row("attention", "first")),
        replace(ROW, outputs=NO_README),
        replace(ROW, heading=f"{form} attention", outputs=("readme",)),
        *(column for question in questions for column in _of_question(question)),
        *(_mean(names) if suite.average else ()),
        *_ratios(plan, "time", "ratio", OUTPUTS),
        *_ratios(plan, "memory", "memory_ratio", NO_README),
        *(_published(suite, questions) if suite.average else ()),
        Column(name="parameters", of=cost("train", middle, "parameters"), heading="parameters",
               write=whole_text, outputs=SCREENS, only_if_any=True,
               note=f"of a {'layer' if plan.level == 'layer' else 'model'}, at {middle:,} tokens."),
        *(_decoding(max(plan.lengths)) if form == CAUSAL else ()),
        *values("computed_by", of=lambda source: source.costs[source.costs["pass"] == "train"]
                .sort_values("length").reindex(columns=["row", "computed_by"])
                .groupby("row")["computed_by"].last()),
        *values("known_failures", of=of_row("known_failures", "max")),
    ]  # fmt: skip


def _mean(questions: Sequence[str]) -> list[Column]:
    def whole(source: Source) -> pd.DataFrame:
        found = source.answers[source.answers["question"].isin(questions)].dropna(subset="mean")
        return found[found.groupby("row")["row"].transform("size") == found["question"].nunique()]

    def mean(source: Source) -> pd.Series:
        return whole(source).groupby("row")["mean"].mean()

    def half(source: Source) -> pd.Series:
        # The runs of two tasks are independent. Of one seed an interval is of test examples alone.
        found = whole(source)
        squares = (((found["high"] - found["low"]) / 2) ** 2).where(found["seeds"] > 1)
        return squares.groupby(found["row"]).agg(lambda of: math.sqrt(sum(of)) / len(of))

    def text(line: Line) -> Cell:
        low, high = line["mean.low"], line["mean.high"]
        interval = f"[{low:.1f}, {high:.1f}]" if low == low else ""
        return Cell(f"{line['mean']:.1f}" if line["mean"] == line["mean"] else NOTHING, interval)

    return [
        Column(name="mean", of=mean, heading="mean", descending=True, text=text,
               note="over the tasks, of variants that have all; its interval combines theirs."),
        *values("mean.low", of=lambda source: mean(source) - half(source)),
        *values("mean.high", of=lambda source: mean(source) + half(source)),
    ]  # fmt: skip


def _published(suite: Suite, questions: Sequence[SuiteQuestion]) -> list[Column]:
    def numbers(name: str) -> Of:
        def of(source: Source) -> pd.Series:
            # A row with options has no number: the paper's has its own.
            names = source.answers["row"].drop_duplicates()
            printed = [
                papers.published(task=name, reference=reference)
                .set_index("attention")["printed"].reindex(names).fillna(NOTHING)
                for reference in suite.published
            ]  # fmt: skip
            rows = zip(*printed, strict=True)
            texts = ["" if {*of} == {NOTHING} else " / ".join(of) for of in rows]
            return pd.Series(texts, names)

        return of

    return [
        Column(name=f"{question.name}.published", of=numbers(question.published),
               heading=f"{question.title}, published", outputs=PAGES,
               write=lambda text: text or NOTHING,
               note=f"{' / '.join(suite.published)}.")
        for question in questions if question.published
    ]  # fmt: skip


def _decoding(length: int) -> list[Column]:
    return [
        Column(name="decode_seconds", of=cost("decode", length, "seconds"), outputs=()),
        Column(name="decode", of=cost("decode", length, "ratio"), heading="decode",
               unit=f"{length:,}", short="decode", write=ratio_text, outputs=SCREENS,
               only_if_any=True,
               note=f"the time of one token after {length:,}, relative to the fastest exact "
                    "softmax."),
        Column(name="state_bytes", of=cost("decode", length, "state_bytes"), heading="state",
               unit="bytes", short="state", write=whole_text, outputs=NO_README, only_if_any=True,
               note="what is kept between two tokens."),
    ]  # fmt: skip


def _ratios(plan: CostPlan, name: str, value: str, outputs: Sequence[str]) -> list[Column]:
    return [
        Column(
            name=f"{name}.{length}", of=cost("train", length, value), heading=name,
            unit=f"{length:,}", short=name, length=length, write=ratio_text, only_if_any=True,
            outputs=outputs if length == plan.middle_length else PAGES,
        )
        for length in sorted(plan.lengths)
    ]  # fmt: skip


def _of_question(question: SuiteQuestion) -> list[Column]:
    name = question.name
    return [
        Column(name=name, of=answer(name, "mean"), heading=question.title, descending=True,
               text=lambda line: score_cell(line["answers"][name])),
        *(Column(name=f"{name}.{end}", of=answer(name, end), outputs=())
          for end in ("low", "high", "rank_group", "seeds", *NO_PROGRESS)),
        *([Column(
            name=f"{name}.horizon", of=answer(name, "horizon"), descending=True, outputs=PAGES,
            heading=f"{question.title}, horizon", write=whole_text, only_if_any=True,
            note=f"the last position before the accuracy falls below {SOLVED:.0f} %; {NOTHING} "
                 f"where it does at the first, {question.first_position}.",
        )] if question.first_position else ()),
        *(_longest(question) if question.longest_probe else ()),
    ]  # fmt: skip


def _longest(question: SuiteQuestion) -> list[Column]:
    def text(line: Line) -> Cell:
        of = line["answers"][question.name]
        compared = not is_control(of["attention"])
        interval = of["longest.interval"] if of["longest.seeds"] > 1 else ""
        best = compared and of["longest.best"]
        return Cell(of["longest.text"] or NOTHING, interval, is_best=best)

    name = f"{question.name}.longest"
    return [
        Column(name=name, of=answer(question.name, "longest.mean"), text=text, descending=True,
               heading=question.longest_title, only_if_any=True,
               outputs=(*SCREENS, "readme"), note="the longest sequences; without a baseline."),
        *(Column(name=f"{name}.{end}", of=answer(question.name, f"longest.{end}"), outputs=())
          for end in ("low", "high", "rank_group", "seeds")),
    ]  # fmt: skip


def score_cell(answer: Line) -> Cell | str:
    if not answer["text"]:
        return answer["status"] if answer["status"] != "ok" else answer["part"]
    several = 0 < answer["reached"] < answer["runs"]
    seeds = answer["part"] or f"{answer['reached']}/{answer['runs']}" * several
    # Of one seed an interval is over the examples of test alone: seeds differ by more.
    interval = answer["interval"] if answer["seeds"] > 1 else "1 seed" * (not answer["part"])
    failed = answer["status"] * (answer["status"] != "ok")
    marks = "; ".join(filter(None, (seeds, failed)))
    # A control is a baseline itself.
    compared = not is_control(answer["attention"])
    return Cell(answer["text"], interval, marks, answer["rising"],
                compared and answer["at_baseline"], compared and answer["best"])  # fmt: skip


def matrix(
    answers: pd.DataFrame, costs: pd.DataFrame, suite: Suite, forms: Mapping[str, str]
) -> dict[str, pd.DataFrame]:
    order = answers.drop_duplicates("row").set_index("row")["attention"].map(order_of)
    order = order.sort_values(kind="stable").index
    twins = pd.DataFrame({"row": order, "twin": [unmatched(row) for row in order]})
    found, has_any = {}, {}
    for form in FORMS:
        questions = [q for q in suite.questions if forms[q.name] == form]
        depth = max((int(q.model.get("depth", 1)) for q in questions), default=1)
        attentions = {row.label: row.attention for row in suite.rows if not row.options}
        of_form = with_compositions(measured(costs, suite, form), attentions, depth)
        if len(of_form):  # a layer of a matched model is of its variant
            of_form = twins.merge(of_form.rename(columns={"row": "twin"}), on="twin")
        source = Source(answers, of_form)
        values = {
            column.name: column.of(source).reindex(order)
            for column in columns(suite, form, questions)
            if column.of
        }
        found[form] = pd.DataFrame(values, index=order)
        names = [question.name for question in questions]
        ran = answers.loc[answers["question"].isin(names) & has_runs(answers), "row"]
        has_any[form] = order.isin(ran) | order.isin(of_form["row"])
    nothing = ~(has_any[FORMS[0]] | has_any[FORMS[1]])
    return {
        form: table[has_any[form] | nothing]
        for form, table in found.items()
        if form in forms.values()
    }


def most_solved(probes: pd.DataFrame) -> pd.Series:
    # The name of a probe begins with its size. 0 if a row solves no probe, NaN if it has none.
    size = sizes(probes)
    size = size.where(probes["mean"] >= SOLVED, 0.0).where(probes["trained"].astype(bool))
    return size.groupby([probes["question"], probes["row"]]).max()


def of_probes(probes: pd.DataFrame) -> Table:
    names = probes.drop_duplicates("probe")[["probe", "trained"]].itertuples(index=False)
    across = {name: name if trained else f"{name}, not trained" for name, trained in names}
    found = grid(probes, ROW, across, "probe", lambda of: Cell(of["text"], interval=of["interval"]))
    solved = most_solved(probes).droplevel("question")
    with_solved = [{**line, "solved": solved[line["row"]]} for line in found.lines]
    heading = f"{probes['probe'].iloc[0].split()[1]} at {SOLVED:.0f} %"
    column = Column(name="solved", heading=heading, write=whole_text)
    return Table([*found.columns, column], with_solved)


def sizes(probes: pd.DataFrame) -> pd.Series:
    return probes["probe"].str.extract(r"^(\d+)", expand=False).astype(float)
