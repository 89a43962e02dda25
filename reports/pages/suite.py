"""A suite: its page, tables and figure, on a terminal, for LaTeX and in a README."""

import io
from collections.abc import Collection, Hashable, Iterator
from importlib.util import find_spec
from textwrap import fill
from typing import Any, NamedTuple

import pandas as pd

from harness.records.families import family_of
from harness.records.suites import Suite
from reports import outdated, papers, suite_results
from reports.layer_costs import measured
from reports.markdown import escape, rendered, table
from reports.statistics import LEVEL, score_groups
from reports.text import (
    NOTHING,
    WIDE,
    frame_csv,
    number,
    plain,
    text_table,
    threads_of,
    whole_text,
)

OF_A_SEED = [
    "suite", "question", "row", "attention", "task", "seed", "status", "reason", "metric", "score",
    "dev", "loss", "train.lr", "train.steps", "best_step", "train_seconds", "machine", "started",
    "commit", "implementation", "outdated", "id",
]  # fmt: skip
"""The columns of the table of seeds."""

FASTEST, README_ROWS, README_FIRST = 3, 8, 3
"""The most rows that do not differ from the best that the table of questions names; the rows of the
table of a README, or more if its first and named rows are more; how many are the first."""

TEX = str.maketrans({
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    NOTHING: "--", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
    "\N{REPLACEMENT CHARACTER}": "?",
})  # fmt: skip


class Tables(NamedTuple):
    """The frames of a suite; see `reports.suite_results`.

    Attributes:
        seeds: the runs behind the answers, a line each.
        setting: what the costs were measured on, as text.
        added: the variants whose runs a user added to the published ones.
        notes: what is outdated, and what is left out; a sentence each.
    """

    suite: Suite
    answers: pd.DataFrame
    pairs: pd.DataFrame
    matrix: pd.DataFrame
    seeds: pd.DataFrame
    setting: str
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def answer_of(self) -> dict[Hashable, Any]:
        """The lines of the answers by row and question."""
        return self.answers.set_index(["row", "question"]).to_dict("index")


def tables(
    suite: Suite, runs: pd.DataFrame, baselines: pd.DataFrame, costs: pd.DataFrame, *,
    attentions: Collection[str] = (), questions: Collection[str] = (), added: Collection[str] = (),
) -> Tables:  # fmt: skip
    """The frames of a suite, from the frames of a store; see `reports.suite_results`.

    Variants without a run are left out, unless there is no run. `attentions` and `questions` leave
    out others, too; the comparisons and their correction are of all. `added` are the variants with
    runs of a user.
    """
    found, plan = suite_results.results(runs, suite, baselines), suite.cost
    answers = found.answers()
    ran = {*answers.loc[answers["status"] != "", "row"]} or {*answers["row"]}
    shown = answers["row"].isin(ran)
    if attentions:
        shown &= answers["row"].isin(attentions) | answers["attention"].isin(attentions)
    if questions:
        chosen = tuple(question for question in suite.questions if question.name in questions)
        suite = suite.model_copy(update={"questions": chosen or suite.questions})
        shown &= answers["question"].isin([question.name for question in suite.questions])
    answers = answers[shown]
    columns = [*OF_A_SEED, *(["best_on_test"] if suite.published else [])]
    setting = [plan.precision, f"width {plan.dim}", f"{plan.heads} heads"]
    of_layers = measured(costs, plan)
    for name, threads in of_layers[["machine", "threads"]].values[:1]:
        setting += [f"{name}, {threads_of(threads)}"]
    notes = (
        outdated.sentence(found.seeds),
        outdated.sentence(of_layers[of_layers["row"].isin(answers["row"])], "costs"),
        found.left_out,
    )
    return Tables(
        suite, answers, found.pairs(), suite_results.matrix(answers, costs, suite),
        found.seeds.reindex(columns=columns), "; ".join(setting), tuple(sorted(added)),
        tuple(filter(None, notes)),
    )  # fmt: skip


def files(of: Tables, *, latex: bool) -> dict[str, bytes]:
    """What the files of a suite hold, by name; one is of Parquet where pyarrow is installed."""
    from reports.figures import style
    from reports.figures.matrix import draw

    name, matrix = of.suite.name, of.matrix.reset_index()
    page = _rendered("suite.md.j2", of)
    if of.suite.published:
        page += papers.section(papers.results(of.answers, of.seeds, of.suite), of.suite).encode()
    content = {
        f"{name}.md": page,
        f"{name}-answers.csv": frame_csv(of.seeds),
        **style.table_with_images(name, matrix, draw, of.matrix, of.suite),
    }
    if find_spec("pyarrow"):
        stream = io.BytesIO()
        of.seeds.to_parquet(stream)
        content[f"{name}-answers.parquet"] = stream.getvalue()
    return content | ({f"{name}.tex": _rendered("suite.tex.j2", of)} if latex else {})


def published(of: Tables) -> pd.DataFrame:
    """The answers of the rows that were run, with the rate and the code of their runs."""
    columns = {"train.lr": "rate", "implementation": "implementation"}
    of_runs = of.seeds.groupby(["row", "question"])[[*columns]].first().rename(columns=columns)
    found = of.answers[of.answers["text"] != ""]
    return found.join(of_runs, on=["row", "question"])


def _rendered(template: str, of: Tables) -> bytes:
    return rendered(
        template, **of._asdict(), questions=_questions(of), lengths=sorted(of.suite.cost.lengths),
        middle=of.suite.cost.middle_length, answer_of=of.answer_of, options=_options(of.suite),
        models=_models(of.suite), tex=lambda text: plain(text).translate(TEX),
    ).encode()  # fmt: skip


def _options(suite: Suite) -> str:
    """The options of variants that the recipes of the questions set, as text."""
    every = (variant for question in suite.questions for variant in question.variants.items())
    texts = {name: ", ".join(map("{}={}".format, of, of.values())) for name, of in every}
    return "; ".join(map(" ".join, texts.items()))


def _models(suite: Suite) -> str:
    """The models of the questions as text, without those that have the model of a recipe."""
    titles: dict[str, list[str]] = {}
    for question in suite.questions:
        if {"depth", "dim", "heads"} <= question.model.keys():
            shape = "{depth} x width {dim}, heads {heads}".format(**question.model)
            titles.setdefault(shape, []).append(question.name)
    return "; ".join(f"{', '.join(names)}: {shape}" for shape, names in titles.items())


def _questions(of: Tables) -> list[dict[str, Any]]:
    """What is said of each question: its strongest baseline, and what it settles."""
    found = []
    for question in of.suite.questions:
        answers = of.answers[(of.answers["question"] == question.name) & (of.answers["text"] != "")]
        pairs = of.pairs[of.pairs["question"] == question.name]
        strongest = answers[answers["baseline"] != ""][
            ["baseline", "baseline_value"]
        ].value_counts()
        texts = [f"{name}: {number(value)}" for name, value in strongest.index[:1]]
        named = [f"{row} ({time})" for row, time in fastest(of, question.name).items()]
        found.append({
            "title": question.title, "asks": question.asks,
            "baseline": texts[0] if texts else NOTHING if answers.empty else "not fitted yet",
            "answered": f"{answers['answered'].sum()} of {len(answers)}" if texts else NOTHING,
            "pairs": len(pairs), "separable": int((pairs["p_holm"] <= LEVEL).sum()),
            "fastest": ", ".join(named[:FASTEST]) or NOTHING,
        })  # fmt: skip
    return found


def fastest(of: Tables, question: str) -> dict[str, str]:
    """The rows of the best group of those ranked, with their times, the fastest first."""
    rows = of.answers[of.answers["question"] == question].set_index("row")
    groups = score_groups(rows[rows["rank_group"] != ""])
    best = [row for row, group in groups.items() if group == 1]
    times = of.matrix[f"time.{of.suite.cost.middle_length}"].reindex(best)
    return {str(row): number(time) for row, time in times.dropna().sort_values().items()}


def terminal(of: Tables) -> str:
    """The matrix as text: mean and rank group of each answer, in brackets at a baseline."""
    suite, answer_of, middle = of.suite, of.answer_of, of.suite.cost.middle_length

    def text(row: Hashable, question: str) -> str:
        answer = answer_of[row, question]
        if not answer["text"]:
            return answer["status"] or NOTHING
        ranked = f"{answer['text']} {answer['rank_group']}".strip()
        return f"({answer['text']})" if answer["at_baseline"] else ranked

    titles = {question.name: question.title for question in suite.questions}
    head = ["attention", f"of {len(titles)}", *titles.values(), "time", "peak memory",
            "decode, ms", "state"]  # fmt: skip
    lines = [
        [
            str(row), str(line["answered"]), *(text(row, name) for name in titles),
            number(line[f"time.{middle}"]), number(line[f"memory.{middle}"]),
            number(1000 * line["decode_seconds"]), whole_text(line["state_bytes"]),
        ]
        for row, line in of.matrix.to_dict("index").items()
    ]  # fmt: skip
    legend = (
        f"{suite.title} ({suite.key}), and how many each row answers. Rows of a column that "
        "share a letter are ties. In brackets: not better than the strongest baseline, or no "
        f"attention. Time and peak memory: training a layer of {middle:,} tokens over "
        f"softmax. Decode: a token after {max(suite.cost.lengths):,}; state: its bytes."
    )
    if of.added:
        legend += f" Your runs: {', '.join(of.added)}; the others are published."
    texts = (fill(text, WIDE) for text in (legend, *of.notes))
    return "\n\n".join([text_table(head, lines, WIDE), *texts])


def readme_table(of: Tables) -> str:
    """Rows of the matrix with what they answer and cost; *1 seed* is explained if one has it."""
    rows, middle = suite_results.run_rows(of.matrix, of.suite), of.suite.cost.middle_length
    # The first rows of the suite, the rows of `readme_answer`, the best of each other family.
    named = [row.label for row in of.suite.rows[:README_FIRST]]
    named += [row for _, row, _ in _fastest(of)]
    chosen = [row for row in dict.fromkeys(named) if row in rows.index]
    families = rows["attention"].map(family_of)
    others = rows.index[~families.duplicated() & ~families.isin(families[chosen])]
    rows = rows.loc[[*chosen, *others][: max(README_ROWS, len(chosen))]]
    answers = of.answers[of.answers["answered"]]
    single = answers["seeds"].eq(1).map({True: " (*1 seed*)", False: ""})
    texts = answers["question"].map(escape) + single
    answered = texts.groupby(answers["row"]).agg(", ".join)
    numbers = rows[[f"time.{middle}", f"memory.{middle}", "state_bytes"]]
    lines = [
        [escape(str(row)), answered.get(row, NOTHING), *map(number, values)]
        for row, *values in numbers.itertuples()
    ]
    head = ["attention", "answers", f"time at {middle:,}", "peak memory", "state, bytes"]
    is_single = any("*1 seed*" in text for _, text, *_ in lines)
    return table(head, lines) + "\n*1 seed*: of one finished run." * is_single


def readme_answer(of: Tables) -> str:
    """The fastest of the best rows of each question that has any, as a list."""
    return "\n".join(
        f"- {title}: **{escape(f'{row} ({time})')}**" for title, row, time in _fastest(of)
    )


def _fastest(of: Tables) -> Iterator[tuple[str, str, str]]:
    """Title, row and time of the fastest of the best rows of each question that has any."""
    for question in of.suite.questions:
        for row, time in [*fastest(of, question.name).items()][:1]:
            yield question.title, row, time
