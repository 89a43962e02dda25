"""The matrix of a suite: a table for each form, a row for each variant, one entry a column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from harness.records.families import order_of
from harness.records.suites import CostPlan, Suite, SuiteQuestion
from reports import verdicts
from reports.layer_costs import CAUSAL, FORMS, PYTORCH, measured
from reports.suite_results import has_runs
from reports.table import OUTPUTS, ROW, Cell, Column, Line, Table, grid, values
from reports.text import NOTHING, UPPER_BOUND, number, whole_text

PAGES, SCREENS = ("page", "site"), ("page", "terminal", "site")
NO_README = (*SCREENS, "latex")

SOLVED = 90.0
"""The accuracy in percent with which a row solves a probe."""


class Source(NamedTuple):
    """The source of the columns of a form: results on all questions, and costs of its layers."""

    answers: pd.DataFrame
    costs: pd.DataFrame


Of = Callable[[Source], pd.Series]
"""The values of a column by row."""


def answer(question: str, name: str) -> Of:
    """A column of `SuiteResults.answers` of one question."""
    return lambda source: (
        source.answers[source.answers["question"] == question].set_index("row")[name]
    )  # fmt: skip


def of_row(name: str, how: Any, questions: Sequence[str] = ()) -> Of:
    """An aggregate over the results of a row, on all questions or on these; see `Series.agg`."""
    return lambda source: (
        source.answers[source.answers["question"].isin(questions or source.answers["question"])]
        .groupby("row")[name].agg(how)
    )  # fmt: skip


def cost(operation: str, length: int, name: str) -> Of:
    """A column of `harness.records.frame.of_costs` of one pass and length."""
    return lambda source: (
        source.costs[(source.costs["pass"] == operation) & (source.costs["length"] == length)]
        .set_index("row").reindex(columns=[name])[name]
    )  # fmt: skip


def ratio(line: Mapping[Any, Any], name: str) -> str:
    """A ratio to softmax of a row of the matrix, marked where it is an upper bound."""
    is_bound = line[name] == line[name] and line["computed_by"] == PYTORCH
    return f"{UPPER_BOUND * is_bound}{number(line[name])}"


def columns(suite: Suite, form: str, questions: Sequence[SuiteQuestion]) -> list[Column]:
    """The columns of the matrix of a form; `questions` are of this form."""
    plan, names = suite.cost, [question.name for question in questions]
    middle = plan.middle_length
    judged = {q.name: q.title for q in questions if q.ceiling is not None}
    return [
        *values("attention", of=of_row("attention", "first")),
        replace(ROW, outputs=NO_README),
        replace(ROW, heading=f"{form} attention", outputs=("readme",)),
        Column(name="answered", of=of_row("answered", "sum", names), heading="above baselines",
               unit=f"of {len(names)}", descending=True, outputs=() if judged else SCREENS),
        *values("finished",
                of=of_row("verdict", lambda of: of.isin(verdicts.DECIDED).sum(), names)),
        Column(name="able", of=of_row("verdict", lambda of: of.eq(verdicts.ABLE).sum(), names),
               heading="able", unit="of finished", descending=True,
               outputs=SCREENS if judged else (), text=lambda line: (
                   f"{line['able']} of {line['finished']}" if line["finished"] else NOTHING)),
        *(Column(name=verdict, heading=verdict, outputs=("readme",) if judged else (),
                 text=lambda line, verdict=verdict: "; ".join(
                     title for name, title in judged.items()
                     if line["answers"][name]["verdict"] == verdict))
          for verdict in verdicts.DECIDED),
        *(column for question in questions for column in _of_question(question)),
        *_ratios(plan, "time", "ratio", "time"),
        *_ratios(plan, "memory", "memory_ratio", "peak memory"),
        Column(name="parameters", of=cost("train", middle, "parameters"), heading="parameters",
               write=whole_text, note=f"of a layer, at {middle:,} tokens."),
        *(_decoding(max(plan.lengths)) if form == CAUSAL else ()),
        Column(name="computed_by", heading="computed by", outputs=PAGES,
               of=lambda source: source.costs[source.costs["pass"] == "train"]
               .sort_values("length").reindex(columns=["row", "computed_by"])
               .groupby("row")["computed_by"].last(),
               write=lambda of: of if isinstance(of, str) else "",
               note="in training, operations of PyTorch, loops that are compiled here, Triton, or "
                    "a library (a package, or a fused kernel of PyTorch)."),
        Column(name="known_failures", of=of_row("known_failures", "max"), heading="checks",
               outputs=PAGES, write=_checks,
               note="passed, or the number of known failures; `docs/certificates.md` lists them."),
    ]  # fmt: skip


def _decoding(length: int) -> list[Column]:
    """The cost of one token after `length` tokens, and the state that is kept for it."""
    return [
        Column(name="decode_seconds", of=cost("decode", length, "seconds"), outputs=()),
        Column(name="decode", of=cost("decode", length, "ratio"), heading="decode",
               unit=f"{length:,}", short="decode", write=number, outputs=SCREENS,
               note=f"the time of one token after {length:,}, relative to the fastest exact "
                    "softmax."),
        Column(name="state_bytes", of=cost("decode", length, "state_bytes"), heading="state",
               unit="bytes", short="state", write=whole_text,
               note="what is kept between two tokens."),
    ]  # fmt: skip


def _ratios(plan: CostPlan, name: str, value: str, heading: str) -> list[Column]:
    """The ratios to softmax at each length; the middle one is in every output."""
    return [
        Column(
            name=f"{name}.{length}", of=cost("train", length, value), heading=heading,
            unit=f"{length:,}", short=heading, length=length,
            text=lambda line, column=f"{name}.{length}": ratio(line, column),
            outputs=OUTPUTS if length == plan.middle_length else PAGES,
        )
        for length in sorted(plan.lengths)
    ]  # fmt: skip


def _of_question(question: SuiteQuestion) -> list[Column]:
    """The score of a question; the ends of its interval and its rank group are in the CSV file."""
    name = question.name
    return [
        Column(name=name, of=answer(name, "mean"), heading=question.title, descending=True,
               outputs=OUTPUTS if question.ceiling is None else NO_README,
               text=lambda line: _score(line["answers"][name])),
        *(Column(name=f"{name}.{end}", of=answer(name, end), outputs=())
          for end in ("low", "high", "rank_group", *verdicts.NO_VERDICT)),
    ]  # fmt: skip


def _score(answer: Line) -> Cell | str:
    if not answer["text"]:
        return answer["status"] or verdicts.words(answer)
    one_seed = "1 seed" * (answer["seeds"] == 1 and not answer["part"])
    notes = verdicts.words(answer), one_seed, answer["status"] * (answer["status"] != "ok")
    # Of one seed an interval is over the examples of test alone: seeds differ by more.
    interval = answer["interval"] * (answer["seeds"] > 1)
    return Cell(answer["text"], answer["rank_group"], interval, notes,
                answer["at_baseline"], answer["group"], bool(answer["part"]))  # fmt: skip


def _checks(failures: float) -> str:
    if failures != failures:
        return NOTHING
    return f"{failures:.0f} known failure{'s' * (failures > 1)}" if failures else "passed"


def matrix(
    answers: pd.DataFrame, costs: pd.DataFrame, suite: Suite, forms: Mapping[str, str]
) -> dict[str, pd.DataFrame]:
    """The matrix of each form that questions of a suite have, by row, in order of families."""
    order = answers.drop_duplicates("row").set_index("row")["attention"].map(order_of)
    order = order.sort_values(kind="stable").index
    found, has_any = {}, {}
    for form in FORMS:
        questions = [q for q in suite.questions if forms[q.name] == form]
        of_form = measured(costs, suite.cost, form)
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
    """The largest of the trained probes that a row solves, by question and row.

    The size is the number that the name of a probe begins with: 32 of `32 pairs in 128`. 0 if a row
    solves none, NaN if it has none.
    """
    size = _sizes(probes)
    size = size.where(probes["mean"] >= SOLVED, 0.0).where(probes["trained"].astype(bool))
    return size.groupby([probes["question"], probes["row"]]).max()


def of_probes(probes: pd.DataFrame) -> Table:
    """The table of the probes of one question: a column for each, and the largest solved.

    Probes without sizes have no largest.
    """
    names = probes.drop_duplicates("probe")[["probe", "trained"]].itertuples(index=False)
    across = {name: _heading(name, trained) for name, trained in names}
    found = grid(probes, ROW, across, "probe", lambda of: Cell(of["text"], interval=of["interval"]))
    if not has_sizes(probes):
        return found
    solved = most_solved(probes).droplevel("question")
    with_solved = [{**line, "solved": solved[line["row"]]} for line in found.lines]
    return Table([*found.columns, _solved(probes)], with_solved)


def has_sizes(probes: pd.DataFrame) -> bool:
    """Return whether the names of probes begin with a size, as of `32 pairs in 128`."""
    return bool(_sizes(probes).notna().all())


def _sizes(probes: pd.DataFrame) -> pd.Series:
    """The number that the name of each probe begins with; NaN without one."""
    return probes["probe"].str.extract(r"^(\d+)", expand=False).astype(float)


def _heading(probe: str, trained: bool) -> str:
    return f"{probe}, not trained" if probe[0].isdigit() and not trained else probe


def _solved(probes: pd.DataFrame) -> Column:
    """The column of `most_solved`, with the unit of the probes: `pairs at 90 %`."""
    unit = probes["probe"].iloc[0].split()[1]
    return Column(name="solved", heading=f"{unit} at {SOLVED:.0f} %", write=whole_text)


def by_state(answers: pd.DataFrame, probes: pd.DataFrame) -> Table:
    """The results with probes, in order of the bytes that a model keeps between two tokens.

    `answers` and `probes` are of one question of `reports.suite_results.SuiteResults`. The hardest
    probe has a column: the one of the most pairs, or the first. The table is empty where all states
    are equal.
    """
    found = answers[answers["state_bytes"].notna() & (answers["text"] != "")]
    found = found.sort_values("state_bytes", kind="stable")
    if found["state_bytes"].nunique() < 2:
        found = found.iloc[:0]
    largest = probes.iloc[int(_sizes(probes).fillna(0).argmax())]
    hardest = probes[probes["probe"] == largest["probe"]].set_index("row")
    found = found.join(most_solved(probes).rename("solved"), on=["question", "row"])
    found = found.join(hardest[["text", "interval"]].add_prefix("hardest_"), on="row")
    found = found.fillna({"hardest_text": NOTHING, "hardest_interval": ""})
    return Table([
        ROW,
        Column(name="state_bytes", heading="state of the model", unit="bytes", write=whole_text),
        Column(name="text", heading="score", text=lambda line: _score({**line, "group": 0})),
        *([_solved(probes)] if has_sizes(probes) else []),
        Column(name="hardest_text", heading=_heading(largest["probe"], largest["trained"]),
               text=lambda line: Cell(line["hardest_text"], interval=line["hardest_interval"])),
    ], found.to_dict("records"))  # fmt: skip
