"""A suite: its page, tables and figure, on a terminal, for LaTeX and in a README."""

import io
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from harness.records.families import family_of
from harness.records.suites import Suite
from reports import papers, suites
from reports.layer_costs import measured
from reports.markdown import escape, rendered, table
from reports.statistics import LEVEL, score_groups
from reports.text import NOTHING, WIDE, frame_csv, number, text_table, threads_of, whole_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OF_A_SEED = [
    "suite", "question", "row", "attention", "task", "seed", "status", "reason", "metric", "score",
    "dev", "loss", "train.lr", "train.steps", "best_step", "train_seconds", "machine", "started",
    "commit", "id",
]  # fmt: skip
"""The columns of the table of seeds."""

FASTEST, README_ROWS, README_FIRST = 3, 8, 3
"""The most rows that do not differ from the best that the table of questions names; the rows of the
table of a README, or more if its first and named rows are more; how many are the first."""

TEX = str.maketrans({
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    NOTHING: "--", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
})  # fmt: skip

FIGURE_WIDTH, LANE, LETTER = 8.6, 0.17, 0.009
"""Inches of the figure and of a lane, a line of points of one number of questions; the width of a
letter of a label, about, as a share of the axis of time."""

Lane = tuple[int, list[str]]
"""A number of questions, and rows that answer as many, in order of time."""


class Tables(NamedTuple):
    """The frames of a suite; see `reports.suites`.

    Attributes:
        seeds: the runs behind the answers, a line each.
        setting: what the costs were measured on, as text.
    """

    suite: Suite
    answers: pd.DataFrame
    pairs: pd.DataFrame
    matrix: pd.DataFrame
    seeds: pd.DataFrame
    setting: str

    @property
    def cells(self) -> dict[Hashable, Any]:
        """The lines of the answers by row and question."""
        return self.answers.set_index(["row", "question"]).to_dict("index")


def tables(
    suite: Suite, runs: pd.DataFrame, baselines: pd.DataFrame, costs: pd.DataFrame
) -> Tables:
    """The frames of a suite, from the frames of a store; see `reports.suites`."""
    answers, plan = suites.answers(runs, suite, baselines), suite.cost
    columns = [*OF_A_SEED, *(["best_on_test"] if suite.published else [])]
    parts = [plan.precision, f"width {plan.dim}", f"{plan.heads} heads"]
    for name, threads in measured(costs, plan)[["machine", "threads"]].values[:1]:
        parts += [f"{name}, {threads_of(threads)}"]
    return Tables(
        suite, answers, suites.pairs(runs, suite, baselines), suites.matrix(answers, costs, suite),
        suites.results(runs, suite).reindex(columns=columns), "; ".join(parts),
    )  # fmt: skip


def files(of: Tables, *, latex: bool) -> dict[str, bytes]:
    """What the files of a suite hold, by name; one is of Parquet where pyarrow is installed."""
    from reports.figures import style

    name, matrix = of.suite.name, of.matrix.reset_index()
    page = _rendered("suite.md.j2", of)
    if of.suite.published:
        page += papers.section(papers.results(of.answers, of.seeds, of.suite), of.suite).encode()
    made = {
        f"{name}.md": page,
        f"{name}-answers.csv": frame_csv(of.seeds),
        **style.table_with_images(name, matrix, draw, of.matrix, of.suite),
    }
    if find_spec("pyarrow"):
        stream = io.BytesIO()
        of.seeds.to_parquet(stream)
        made[f"{name}-answers.parquet"] = stream.getvalue()
    return made | ({f"{name}.tex": _rendered("suite.tex.j2", of)} if latex else {})


def published(of: Tables) -> pd.DataFrame:
    """The answers of the rows that were run, with the rate of their runs."""
    rates = of.seeds.groupby(["row", "question"])["train.lr"].first().rename("rate")
    found = of.answers[of.answers["text"] != ""]
    return found.join(rates, on=["row", "question"])


def _rendered(template: str, of: Tables) -> bytes:
    return rendered(
        template, **of._asdict(), questions=_questions(of), lengths=sorted(of.suite.cost.lengths),
        middle=suites.middle_length(of.suite), cells=of.cells, options=_options(of.suite),
        models=_models(of.suite), tex=lambda text: text.translate(TEX),
    ).encode()  # fmt: skip


def _options(suite: Suite) -> str:
    """The options of variants that the recipes of the questions set, as text."""
    chosen = {name: options for one in suite.questions for name, options in one.variants.items()}
    texts = {name: ", ".join(map("{}={}".format, of, of.values())) for name, of in chosen.items()}
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
        asked = of.answers[(of.answers["question"] == question.name) & (of.answers["text"] != "")]
        pairs = of.pairs[of.pairs["question"] == question.name]
        strongest = asked[asked["baseline"] != ""][["baseline", "baseline_value"]].value_counts()
        texts = [f"{name}: {number(value)}" for name, value in strongest.index[:1]]
        named = [f"{row} ({time})" for row, time in fastest(of, question.name).items()]
        found.append({
            "title": question.title, "asks": question.asks,
            "baseline": texts[0] if texts else NOTHING if asked.empty else "not fitted yet",
            "answered": f"{asked['answered'].sum()} of {len(asked)}" if texts else NOTHING,
            "pairs": len(pairs), "separable": int((pairs["p_holm"] <= LEVEL).sum()),
            "fastest": ", ".join(named[:FASTEST]) or NOTHING,
        })  # fmt: skip
    return found


def fastest(of: Tables, question: str) -> dict[str, str]:
    """The rows of the best group of those ranked, with their times, the fastest first."""
    rows = of.answers[of.answers["question"] == question].set_index("row")
    ranked = rows[rows["rank_group"] != ""]
    less_is_better = bool((ranked["mean"] < ranked["baseline_value"]).any())
    groups = score_groups(ranked, -1.0 if less_is_better else 1.0)
    best = [row for row, group in groups.items() if group == 1]
    times = of.matrix[f"time.{suites.middle_length(of.suite)}"].reindex(best)
    return {str(row): number(time) for row, time in times.dropna().sort_values().items()}


def terminal(of: Tables) -> str:
    """The matrix as text: mean and rank group of each answer, in brackets at a baseline."""
    suite, cells, middle = of.suite, of.cells, suites.middle_length(of.suite)

    def text(row: Hashable, question: str) -> str:
        cell = cells[row, question]
        if not cell["text"]:
            return cell["status"] or NOTHING
        shown = f"{cell['text']} {cell['rank_group']}".strip()
        return f"({cell['text']})" if cell["at_baseline"] else shown

    titles = [question.title for question in suite.questions]
    head = ["attention", f"of {len(titles)}", *titles, "time", "peak memory", "decode, ms", "state"]
    lines = [
        [
            str(row), str(line["answered"]), *(text(row, one.name) for one in suite.questions),
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
    return f"{text_table(head, lines, WIDE)}\n\n{fill(legend, WIDE)}"


def asked_rows(matrix: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    """The rows that were run on a question."""
    return matrix[matrix[[question.name for question in suite.questions]].notna().any(axis=1)]


def readme_table(of: Tables) -> str:
    """Rows of the matrix with what they answer and cost; *1 seed* is explained if one has it."""
    asked, middle = asked_rows(of.matrix, of.suite), suites.middle_length(of.suite)
    # The first rows of the suite, those of `readme_answer`, the best of each other family.
    named = [row.label for row in of.suite.rows[:README_FIRST]]
    named += [row for _, row, _ in _fastest(of)]
    chosen = [row for row in dict.fromkeys(named) if row in asked.index]
    families = asked["attention"].map(family_of)
    others = asked.index[~families.duplicated() & ~families.isin(families[chosen])]
    rows = asked.loc[[*chosen, *others][: max(README_ROWS, len(chosen))]]
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


def draw(matrix: pd.DataFrame, suite: Suite) -> "Figure":
    """A point for each row of the matrix that has a time, in bands of questions answered."""
    from reports.figures import style

    asked, length = asked_rows(matrix, suite), suites.middle_length(suite)
    column = f"time.{length}"
    rows = asked[asked[column].notna()]
    times = {str(row): float(time) for row, time in rows[column].items()}
    lanes = _lanes(times, {str(row): int(count) for row, count in rows["answered"].items()})
    drawn, (axes,) = style.panels([LANE * (len(lanes) + 8)], FIGURE_WIDTH)
    styles = style.point_styles(zip(rows["attention"], rows.index, strict=True))
    for lane, (_, labels) in enumerate(lanes):
        for label in labels:
            colour, marker = styles[label]
            text = style.GREY if colour == style.FAINT else colour
            axes.plot(times[label], lane, marker=marker or "o", markersize=6, color=colour)
            axes.annotate(style.label(label), (times[label], lane), (5, 0), va="center",
                          textcoords="offset points", fontsize=8, color=text)  # fmt: skip
    _scales(axes, [1.0, *times.values()], [answered for answered, _ in lanes])
    axes.set(xlabel=f"time of training, {length:,} tokens, relative to the fastest softmax (log)",
             ylabel=f"answered, of {len(suite.questions)} questions")  # fmt: skip
    style.not_shown(axes, [f"{label}: no cost" for label in asked.index if label not in times])
    return drawn


def _lanes(times: Mapping[str, float], answered: Mapping[str, int]) -> list[Lane]:
    """The rows in lanes without overlaps of labels, from below."""
    low = min(times.values(), default=1)
    scale = math.log(5 * max(times.values(), default=1) / low)
    lanes: list[Lane] = []
    ends: list[float] = []
    for label in sorted(times, key=lambda label: (answered[label], times[label])):
        start = math.log(times[label] / low) / scale
        same = [lane for lane, (count, _) in enumerate(lanes) if count == answered[label]]
        lane = next((lane for lane in same if ends[lane] < start), len(lanes))
        if lane == len(lanes):
            lanes.append((answered[label], []))
            ends.append(0.0)
        lanes[lane][1].append(label)
        ends[lane] = start + LETTER * (len(label) + 3)
    return lanes


def _scales(axes: "Axes", times: Sequence[float], lanes: Sequence[int]) -> None:
    """The axis of time, with room for labels, and a band for each number of questions."""
    from matplotlib.ticker import NullLocator

    from reports.figures import style

    low, high = min(times) / 1.3, max(times) * 4
    axes.set(xscale="log", xlim=(low, high), ylim=(-0.8, len(lanes) - 0.2))
    at = style.ticks(low, high)
    axes.set_xticks(at, [f"{tick:g}" for tick in at])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color=style.GREY, linewidth=1, linestyle=style.DASHES, zorder=1)
    bands = {n: [lane for lane, answered in enumerate(lanes) if answered == n] for n in lanes}
    axes.set_yticks([fmean(band) for band in bands.values()], [str(n) for n in bands])
    axes.grid(False, axis="y")
    for band in [*bands.values()][::2]:
        axes.axhspan(band[0] - 0.5, band[-1] + 0.5, color="#f4f4f4", zorder=0)
