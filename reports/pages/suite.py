"""A suite: its page, tables and figure, on a terminal, for LaTeX and in a README."""

import io
import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from textwrap import fill
from typing import Any, NamedTuple

import pandas as pd

from harness import recipes
from harness.records.families import layer_counts
from harness.records.suites import Suite, SuiteQuestion
from reports import layer_costs, matrix, papers, suite_results
from reports.markdown import escape, rendered
from reports.matrix import ratio
from reports.pages.lessons import entries, lessons
from reports.statistics import LEVEL, score_groups
from reports.suite_results import has_runs
from reports.table import Column, Line, Table, tex
from reports.table import shown as columns_of
from reports.text import NOTHING, WIDE, frame_csv, number, outdated_text, threads_of
from reports.verdicts import ABLE, DECIDED, MISSING, UNABLE, is_unable_possible

OF_A_SEED = [
    "suite", "question", "row", "attention", "task", "seed", "status", "reason", "metric", "score",
    "dev", "loss", "train.lr", "train.steps", "best_step", "train_seconds", "machine", "started",
    "commit", "implementation", "outdated", "baseline", "id",
]  # fmt: skip

FASTEST, README_FIRST = 3, 3
"""The most rows that do not differ from the best that pages name; how many of the first rows of the
suite the table of a README has, if they were run."""

TIE = 1.15
"""Times within this factor of the least are a tie: two measurements of one layer differ by as much.
"""

Catalogue = Mapping[str, Sequence[Mapping[str, Any]]]
"""Variants and tasks as `harness list --json` gives them."""


class Tables(NamedTuple):
    """The frames of a suite; see `reports.suite_results`.

    Attributes:
        seeds: the runs behind the results, a line each.
        matrix: by form.
        forms: of each question, by name.
        setting: what the costs were measured on, as text.
        probes: the results on further splits; `probe_pairs`, the differences between them.
        missing: the rows with the titles of the questions whose form they have and no result of.
        other_heads: answers and probes of `reports.suite_results.with_other_heads`.
        added: the variants whose runs a user added to the published ones.
        notes: what is outdated, and what is left out; a sentence each.
    """

    suite: Suite
    answers: pd.DataFrame
    pairs: pd.DataFrame
    matrix: Mapping[str, pd.DataFrame]
    forms: Mapping[str, str]
    seeds: pd.DataFrame
    setting: str
    probes: pd.DataFrame
    probe_pairs: pd.DataFrame
    missing: Sequence[tuple[str, str]]
    other_heads: tuple[pd.DataFrame, pd.DataFrame]
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def questions(self, form: str) -> list[SuiteQuestion]:
        """The questions of a form."""
        return [found for found in self.suite.questions if self.forms[found.name] == form]

    @property
    def joined(self) -> pd.DataFrame:
        """The matrix of all forms; the name of a column begins with its form."""
        joined = pd.concat(self.matrix, axis=1)
        joined.columns = joined.columns.map(".".join)
        old = self.seeds.loc[self.seeds["outdated"].eq(True), "row"]
        return joined.assign(outdated=joined.index.isin(old))

    def table(self, form: str, output: str, rows: Collection[str] = ()) -> Table:
        """The matrix of a form as an output shows it, of all variants or of these, in order."""
        columns = columns_of(matrix.columns(self.suite, form, self.questions(form)), output)
        by_row = {line["row"]: line for line in self.lines[form]}
        return Table(columns, [by_row[row] for row in rows or by_row if row in by_row])

    @property
    def lines(self) -> dict[str, list[dict[Hashable, Any]]]:
        """The lines of each form with their `row` and `answers` by question, with their `group`."""
        answered = self.answers[self.answers["answered"] | (self.answers["rank_group"] != "")]
        groups = {(row, name): group for name, same in answered.groupby("question")
                  for row, group in score_groups(same.set_index("row")).items()}  # fmt: skip
        by_row: dict[Hashable, dict[str, Any]] = {}
        for of in self.answers.to_dict("records"):
            group = groups.get((of["row"], of["question"]), 0)
            by_row.setdefault(of["row"], {})[of["question"]] = {**of, "group": group}
        return {
            form: [{**line, "row": str(row), "answers": by_row[row]}
                   for row, line in of_form.to_dict("index").items()]
            for form, of_form in self.matrix.items()
        }  # fmt: skip


def tables(
    suite: Suite, runs: pd.DataFrame, baselines: pd.DataFrame, costs: pd.DataFrame,
    catalogue: Catalogue, *, attentions: Collection[str] = (), questions: Collection[str] = (),
    added: Collection[str] = (),
) -> Tables:  # fmt: skip
    """The frames of a suite, from the frames of a store; see `reports.suite_results`.

    The `catalogue` is as `harness list --json` gives it. Variants without a run are left out,
    unless there is no run. `attentions` and `questions` leave out others, too; the comparisons
    and their correction are of all. `added` are the variants with runs of a user.
    """
    found, plan = suite_results.results(runs, suite, baselines), suite.cost
    heads = suite_results.with_other_heads(runs, suite, baselines)
    answers = found.answers()
    ran = {*answers.loc[has_runs(answers), "row"]} or {*answers["row"]}
    shown = answers["row"].isin(ran)
    if attentions:
        shown &= answers["row"].isin(attentions) | answers["attention"].isin(attentions)
    if questions:
        chosen = tuple(question for question in suite.questions if question.name in questions)
        suite = suite.model_copy(update={"questions": chosen or suite.questions})
        shown &= answers["question"].isin([question.name for question in suite.questions])
    forms = layer_costs.forms_of(suite, catalogue["tasks"])
    missing = _missing(answers, suite, forms, catalogue)
    answers, probes = answers[shown], found.probes()
    of_a_seed = [*OF_A_SEED, *(["best_on_test"] if suite.published else [])]
    setting = [plan.precision, f"width {plan.dim}", f"{plan.heads} heads"]
    machines = layer_costs.of_plan(costs, plan)[["device", "machine", "threads"]]
    for device, name, threads in machines.values[:1]:
        setting = [device.upper(), *setting, name, threads_of(threads)]
    of_layers = pd.concat(layer_costs.measured(costs, plan, form) for form in layer_costs.FORMS)
    of_layers = of_layers[of_layers["row"].isin(answers["row"])]
    notes = outdated_text(found.seeds), outdated_text(of_layers, "costs"), found.left_out
    other_heads = answers[:0], probes[:0]
    if heads.questions:  # letters are of the rows of the suite alone
        other_heads = heads.answers().assign(rank_group=""), heads.probes()
    return Tables(
        suite, answers, found.pairs(), matrix.matrix(answers, costs, suite, forms), forms,
        found.seeds.reindex(columns=of_a_seed), ", ".join(setting),
        probes[probes["row"].isin(answers["row"]) & probes["question"].isin(answers["question"])],
        found.probe_pairs(), missing, other_heads, tuple(sorted(added)), tuple(filter(None, notes)),
    )  # fmt: skip


def _missing(
    answers: pd.DataFrame, suite: Suite, forms: Mapping[str, str], catalogue: Catalogue
) -> list[tuple[str, str]]:
    """The rows of a suite, each with the title of a question whose form it has and no result of."""
    traits = {of["name"]: of for of in catalogue["variants"]}
    ran = {*answers.loc[has_runs(answers), ["row", "question"]].itertuples(index=False, name=None)}
    return [
        (row.label, question.title)
        for question in suite.questions
        for row in suite.rows
        if (row.label, question.name) not in ran
        and all(traits.get(name, {}).get(forms[question.name], True)
                for name in layer_counts(row.attention))
    ]  # fmt: skip


def files(of: Tables, *, latex: bool) -> dict[str, bytes]:
    """The content of the files of a suite by name, with one of Parquet if pyarrow is installed."""
    from reports.figures import style
    from reports.figures.matrix import draw

    name = of.suite.name
    page = _rendered("suite.md.j2", of)
    if of.suite.published:
        page += papers.section(papers.results(of.answers, of.seeds, of.suite), of.suite).encode()
    content = {f"{name}.md": page, f"{name}-answers.csv": frame_csv(of.seeds)}
    content |= style.table_with_images(name, of.joined.reset_index(), draw, of)
    if find_spec("pyarrow"):
        stream = io.BytesIO()
        of.seeds.to_parquet(stream)
        content[f"{name}-answers.parquet"] = stream.getvalue()
    return content | ({f"{name}.tex": _rendered("suite.tex.j2", of)} if latex else {})


def published(of: Tables) -> pd.DataFrame:
    """The results of the rows that were run, with the rate and the code of their runs."""
    names = {"train.lr": "rate", "implementation": "implementation"}
    of_runs = of.seeds.groupby(["row", "question"])[[*names]].first().rename(columns=names)
    found = of.answers[of.answers["text"] != ""]
    return found.join(of_runs, on=["row", "question"])


def _rendered(template: str, of: Tables) -> bytes:
    return rendered(
        template, of=of, **of._asdict(), about=(about := _questions(of)), entries=Table([
            Column(name="title", heading="question"),
            *(Column(name=name, heading=name.replace("_", " "))
              for name in (*(DECIDED * any(q.ceiling is not None for q in of.suite.questions)),
                           "finished", "part", "not_run")),
            Column(name="fastest", heading="fastest of the best"),
            Column(name="apart", heading="pairs told apart",
                   text=lambda line: f"{line['apart']} of {line['pairs']}"),
        ], about),
        steps=steps(of), tex=tex, lengths=sorted(of.suite.cost.lengths),
        middle=of.suite.cost.middle_length, options=_options(of.suite), models=_models(of.suite),
        lessons=lessons(of), legend={
            column.heading: column.note
            for form in of.matrix
            for column in of.table(form, "page").columns
            if column.note
        },
        probe_tables=_probe_tables(of), shows_no_recall=_shows_no_recall(of),
    ).encode()  # fmt: skip


def _shows_no_recall(of: Tables) -> bool:
    """Return whether no variant has fewer bits on repeated n-grams than models without attention.

    The whole interval must be below theirs. False where nothing is compared.
    """
    found = of.probes[of.probes["probe"].str.startswith("repeated")]
    without = {*of.seeds.loc[of.seeds["baseline"].astype(bool), "row"]}
    compared: list[bool] = []
    for _, rows in found.groupby(["question", "probe"]):
        of_models = rows["row"].isin(without)
        if of_models.any():
            compared += [*(rows.loc[~of_models, "high"] < rows.loc[of_models, "low"].min())]
    return bool(compared) and not any(compared)


def _probe_tables(of: Tables) -> list[tuple[str, str]]:
    found = []
    for question in of.suite.questions:
        answers = of.answers[of.answers["question"] == question.name]
        probes = of.probes[of.probes["question"] == question.name]
        if probes.empty:
            continue
        order = {row: place for place, row in enumerate(of.matrix[of.forms[question.name]].index)}
        ordered = probes.sort_values("row", key=lambda rows: rows.map(order), kind="stable")
        sized = (same[same["question"] == question.name] for same in of.other_heads)
        states = matrix.by_state(*map(pd.concat, zip((answers, probes), sized, strict=True)))
        of_what = "each size" if matrix.has_sizes(probes) else "a part of test"
        found.append((f"{question.title}: {of_what}", matrix.of_probes(ordered).markdown()))
        found += [(f"{question.title}: by state", states.markdown())] if states.lines else []
    return found


def steps(of: Tables) -> str:
    """The training steps of the questions as text."""
    titles: dict[int, list[str]] = {}
    for name, recipe in recipes.of_suite(of.suite).items():
        titles.setdefault(recipe.train["steps"], []).append(of.suite.question(name).title)
    return "; ".join(f"{count:,} ({'; '.join(names)})" for count, names in titles.items())


def _options(suite: Suite) -> str:
    every = (variant for question in suite.questions for variant in question.variants.items())
    texts = {name: ", ".join(map("{}={}".format, of, of.values())) for name, of in every}
    return "; ".join(map(" ".join, texts.items()))


def _models(suite: Suite) -> str:
    titles: dict[str, list[str]] = {}
    for question in suite.questions:
        if {"depth", "dim", "heads"} <= question.model.keys():
            shape = "{depth} x width {dim}, heads {heads}".format(**question.model)
            titles.setdefault(shape, []).append(question.name)
    return "; ".join(f"{', '.join(names)}: {shape}" for shape, names in titles.items())


def _questions(of: Tables) -> list[Line]:
    """The summary of each question: form, baseline, entries, and pairs that are told apart."""
    found: list[Line] = []
    of_recipes, time = recipes.of_suite(of.suite), f"time.{of.suite.cost.middle_length}"
    not_run = Counter(title for _, title in of.missing)
    for question in of.suite.questions:
        entries = of.answers[of.answers["question"] == question.name]
        answers, verdict = entries[entries["text"] != ""], entries["verdict"].value_counts()
        pairs = of.pairs[of.pairs["question"] == question.name]
        whole = answers[answers["part"] == ""]
        columns = ["baseline", "baseline_value", "baseline_interval"]
        strongest = answers.loc[answers["baseline"] != "", columns].value_counts()
        texts = [f"{'variant ' * (name in {*answers['row']})}{name}: {number(value)} {ends}"
                 for name, value, ends in strongest.index[:1]]  # fmt: skip
        baseline = texts[0] if texts else NOTHING if answers.empty else "not fitted yet"
        quick = fastest(of, question.name)
        optional = {name.removeprefix("+") for name in question.variants}
        attention = entries.set_index("row")["attention"]
        mark = {row: " °" * bool(optional & {*layer_counts(attention[row])}) for row in quick}
        named = [f"{row} ({ratio(line, time)}{mark[row]})" for row, line in quick.items()]
        named = named[:FASTEST]
        times = [line[time] for line in quick.values()]
        tied = sum(of_row <= TIE * min(times) for of_row in times)
        found.append({
            "name": question.name, "title": question.title, "form": of.forms[question.name],
            "steps": of_recipes[question.name].train["steps"],
            "asks": question.asks, "note": question.note, "baseline": baseline,
            **{of: NOTHING if question.ceiling is None else int(verdict.get(of, 0))
               for of in DECIDED},
            **({} if verdict.get(UNABLE) or is_unable_possible(answers) else {UNABLE: NOTHING}),
            "part": int(verdict.get(MISSING, 0)), "not_run": not_run[question.title],
            "finished": int(has_runs(entries).sum() - verdict.get(MISSING, 0)),
            "pairs": math.comb(len(whole), 2),
            "apart": len(told_apart(whole, pairs, question.ceiling)),
            "fastest": ", ".join(named) or NOTHING,
            "best": _best(question, named, tied or 1, whole, baseline),
        })  # fmt: skip
    return found


def _best(
    question: SuiteQuestion, named: Sequence[str], tied: int, whole: pd.DataFrame, baseline: str
) -> str:
    """The named rows in Markdown, the first `tied` in bold, or the best one; empty without any."""
    worse = f"no variant is better than the strongest baseline, {escape(baseline)}"
    is_worse = question.ceiling is None and not whole["answered"].any()
    if named:
        names = [*map(escape, named)]
        names = [f"**{', '.join(names[:tied])}**", *names[tied:]]
        return ", ".join(names) + f"; {worse}" * is_worse
    if whole.empty:
        return ""
    if question.ceiling is None:
        return worse
    best = whole.nlargest(1, "mean").iloc[0]
    seeds = f"{best['reached']} of {best['runs']} seeds at the ceiling"
    return f"none is able; the best is {escape(best['row'])} with {best['text']}, {seeds}"


def told_apart(
    answers: pd.DataFrame, pairs: pd.DataFrame, ceiling: float | None
) -> set[frozenset[str]]:
    """The pairs of rows that are separable, or one able and the other below the ceiling.

    `answers` and `pairs` are of one question. A row is below the ceiling if its whole interval on
    test is; higher is better. Two able rows are never told apart: training ended at the ceiling.
    """
    separable = pairs.loc[pairs["p_holm"] <= LEVEL, ["first", "second"]]
    found = {*map(frozenset, separable.itertuples(index=False, name=None))}
    able = answers.loc[answers["verdict"] == ABLE, "row"]
    if ceiling is not None:
        # The verdict is of dev, the interval of test.
        reached = answers.loc[(answers["verdict"] == ABLE) & (answers["high"] >= ceiling), "row"]
        below = answers.loc[(answers["verdict"] != ABLE) & (answers["high"] < ceiling), "row"]
        found |= {*map(frozenset, product(reached, below))}
    return {pair for pair in found if pair <= {*answers["row"]} and not pair <= {*able}}


def fastest(of: Tables, question: str) -> dict[str, Line]:
    """The lines of the matrix of the able rows; without a ceiling, of the best rank group.

    The fastest of the form of the question is the first; rows without a time are the last.
    """
    rows = of.answers[of.answers["question"] == question].set_index("row")
    best = [*rows.index[rows["verdict"] == ABLE]]
    if of.suite.question(question).ceiling is None:
        groups = score_groups(rows[(rows["rank_group"] != "") & (rows["part"] == "")])
        best = [row for row, group in groups.items() if group == 1]
    column = f"time.{of.suite.cost.middle_length}"
    lines = of.matrix[of.forms[question]].reindex(best).sort_values(column)
    return {str(row): line for row, line in lines.to_dict("index").items()}


def terminal(of: Tables) -> str:
    """The matrix of each form as text: mean, rank group and verdict; in brackets at a baseline."""
    head = f"{of.suite.title} ({of.suite.key})"
    every = {form: of.table(form, "terminal") for form in of.matrix}
    tables = [f"{head}, {form} questions\n{table.terminal(WIDE)}"
              for form, table in every.items() if table.lines]  # fmt: skip
    legend = rendered("legend.txt.j2", of=of, steps=steps(of))
    return "\n\n".join([*tables, *(fill(text, WIDE) for text in (legend, *of.notes))])


def readme_table(of: Tables) -> str:
    """Rows of the matrix of each form: the first of the suite, and the fastest of the best."""
    tables = []
    for form in of.matrix:
        questions = {question.name for question in of.questions(form)}
        ran = {
            *of.answers.loc[has_runs(of.answers) & of.answers["question"].isin(questions), "row"]
        }
        named = [row.label for row in of.suite.rows[:README_FIRST] if row.label in ran]
        for question in of.questions(form):
            named += [*fastest(of, question.name)][:FASTEST]
        tables.append(of.table(form, "readme", [*dict.fromkeys(named)]).markdown())
    return "\n".join(tables)


def readme_answer(of: Tables) -> str:
    """The fastest of the best rows of each question, as a list."""
    counts = f"Entries of the matrix: {entries(of)}"
    return rendered("readme.md.j2", of=of, about=_questions(of), entries=counts).rstrip("\n")
