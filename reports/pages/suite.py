"""A suite: its page, tables and figure, on a terminal, for LaTeX and in a README."""

import io
import math
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from textwrap import fill
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from harness import recipes
from harness.records.families import layer_counts
from harness.records.suites import Suite, SuiteQuestion
from reports import layer_costs, matrix, papers, suite_results
from reports.markdown import rendered
from reports.pages.sentences import few_rows, readme_sentences, sentences, strongest
from reports.statistics import LEVEL, told_apart
from reports.suite_results import has_runs
from reports.table import Line, Table, tex
from reports.text import NOTHING, WIDE, frame_csv, outdated_text, plain, threads_of

OF_A_SEED = [
    "suite", "question", "row", "attention", "task", "seed", "status", "reason", "metric", "score",
    "dev", "loss", "train.lr", "train.steps", "best_step", "train_seconds", "machine", "started",
    "commit", "version", "outdated", "baseline", "id",
]  # fmt: skip

MOST_BASELINES = 10  # The most baselines of a legend of a terminal
LONG = 28  # The most characters of a heading of a terminal
MOST_COLUMNS = 11  # The most columns of a table of a terminal after the first
HALF = 0.5  # The share of the questions of its form that a row needs to be in a table

# Variants and tasks as `harness list --json` gives them.
Catalogue = Mapping[str, Sequence[Mapping[str, Any]]]


class Tables(NamedTuple):
    # The frames of a suite; see `reports.suite_results`.
    suite: Suite
    answers: pd.DataFrame
    pairs: pd.DataFrame
    matrix: Mapping[str, pd.DataFrame]  # By form
    forms: Mapping[str, str]  # Of each question, by name
    seeds: pd.DataFrame  # A line for each run behind the results
    setting: str  # The setting of the costs
    probes: pd.DataFrame  # Results on further splits
    probe_pairs: pd.DataFrame  # Differences between these
    missing: Sequence[tuple[str, str]]  # Rows and titles of questions without a result
    command: str  # Makes the runs; empty if no command does
    added: tuple[str, ...] = ()  # Variants of a user, or named: listed, however few their results
    notes: tuple[str, ...] = ()  # Sentences on outdated, missing and left-out runs
    marks: Mapping[str, str] = MappingProxyType({})  # What rows lack; see `reports.incomplete`
    experiments: Sequence[Line] = ()  # Questions with other settings; see `reports.unnamed`

    def questions(self, form: str) -> list[SuiteQuestion]:
        return [found for found in self.suite.questions if self.forms[found.name] == form]

    @property
    def longest_pairs(self) -> pd.DataFrame:
        probes = {question.name: question.longest_probe for question in self.suite.questions}
        return self.probe_pairs[
            self.probe_pairs["probe"] == self.probe_pairs["question"].map(probes)
        ]

    @property
    def joined(self) -> pd.DataFrame:
        joined = pd.concat(self.matrix, axis=1)
        joined.columns = joined.columns.map(".".join)
        old = self.seeds.loc[self.seeds["outdated"].eq(True), "row"]
        return joined.assign(outdated=joined.index.isin(old))

    def table(self, form: str, output: str, rows: Collection[str] = ()) -> Table:
        # By default the variants with results of at least `HALF` of the questions, and those of a
        # user. The mean is over the questions with results: others have no column.
        questions = self.questions(form)
        if self.suite.average:
            ran = {*self.answers.loc[self.answers["text"] != "", "question"]}
            questions = [found for found in questions if found.name in ran] or questions
        frame = self.matrix[form]
        columns = [column for column in matrix.columns(self.suite, form, questions)
                   if output in column.outputs and (
                       not column.only_if_any
                       or frame[column.name].replace("", 0).fillna(0).ne(0).any())]  # fmt: skip
        by_row = {line["row"]: line for line in self.lines[form]}
        return Table(columns, [by_row[row] for row in rows or self.rows(form) if row in by_row])

    def rows(self, form: str) -> list[str]:
        names, index = [q.name for q in self.questions(form)], self.matrix[form].index
        found = self.answers[self.answers["question"].isin(names) & (self.answers["text"] != "")]
        counts = found["row"].value_counts().reindex(index, fill_value=0)
        asked = min(len(names), found["question"].nunique())
        of_form = self.answers["question"].isin(names) & self.answers["row"].isin(self.added)
        yours = self.answers.loc[of_form & has_runs(self.answers), "row"]
        # The twins of a variant have one question of a suite with a mean.
        least = 1 if self.suite.average else max(1, HALF * asked)
        chosen = (counts >= least) | index.isin(yours)
        return [str(row) for row in index[chosen if chosen.any() else counts >= 0]]

    @property
    def is_timed(self) -> bool:
        times = (table.filter(regex=r"^time\.") for table in self.matrix.values())
        return any(bool(found.notna().any(axis=None)) for found in times)

    @property
    def lines(self) -> dict[str, list[dict[Hashable, Any]]]:
        by_row: dict[Hashable, dict[str, Any]] = {}
        for of in self.answers.to_dict("records"):
            by_row.setdefault(of["row"], {})[of["question"]] = of
        return {
            form: [{**line, "row": str(row), "answers": by_row[row],
                    "mark": " *" * (row in self.marks)}
                   for row, line in of_form.to_dict("index").items()]
            for form, of_form in self.matrix.items()
        }  # fmt: skip


def tables(
    suite: Suite, runs: pd.DataFrame, baselines: pd.DataFrame, costs: pd.DataFrame,
    catalogue: Catalogue, *, attentions: Collection[str] = (), questions: Collection[str] = (),
    added: Collection[str] = (), more: Collection[str] = (),
) -> Tables:  # fmt: skip
    # Variants without a run are left out if any has runs. `attentions` and `questions` filter after
    # all are compared. `added` are variants with runs of a user, `more` columns of `seeds`.
    found, plan = suite_results.results(runs, suite, baselines), suite.cost
    answers = found.answers()
    ran = {*answers.loc[has_runs(answers), "row"]} or {*answers["row"]}
    shown, listed = answers["row"].isin(ran), {*added}
    if attentions:
        # A name of a row is that row alone, as in `harness run`.
        others = {*attentions} - {*answers["row"]}
        named = answers["row"].isin(attentions) | answers["attention"].isin(others)
        shown, listed = shown & named, {*listed, *answers.loc[named, "row"]}
    if questions:
        chosen = tuple(question for question in suite.questions if question.name in questions)
        suite = suite.model_copy(update={"questions": chosen or suite.questions})
        shown &= answers["question"].isin([question.name for question in suite.questions])
    forms = layer_costs.forms_of(suite, catalogue["tasks"])
    missing = _missing(answers, suite, forms, catalogue)
    answers, probes = answers[shown], found.probes()
    asked = {question.name for question in suite.questions}
    pairs, probe_pairs = (of[of["question"].isin(asked)]
                          for of in (found.pairs(), found.probe_pairs()))  # fmt: skip
    of_a_seed = [*OF_A_SEED, *(["best_on_test"] if suite.published else []), *more]
    setting = [plan.precision, f"width {plan.dim}", f"{plan.heads} heads"]
    machines = layer_costs.of_suite(costs, suite)[["device", "machine", "threads"]]
    for device, name, threads in machines.values[:1]:
        setting = [device.upper(), *setting, name, threads_of(threads)]
    of_layers = pd.concat(layer_costs.measured(costs, suite, form) for form in layer_costs.FORMS)
    of_layers = of_layers[of_layers["row"].isin(answers["row"])]
    yours = f"Your runs: {', '.join(sorted(added))}; the others are published." if added else ""
    lacking = {*answers.loc[answers["not_compared"] == "no baseline", "question"]}
    titles = "; ".join(of.title for of in suite.questions if of.name in lacking)
    remedy = f"No baselines of {titles}; fit them with: harness report --baselines."
    notes = (outdated_text(found.seeds), outdated_text(of_layers, "costs"), found.left_out,
             remedy * bool(titles), *_absent_probes(answers, suite), yours)  # fmt: skip
    return Tables(
        suite, answers, pairs, matrix.matrix(answers, costs, suite, forms), forms,
        found.seeds.reindex(columns=of_a_seed), ", ".join(setting),
        probes[probes["row"].isin(answers["row"]) & probes["question"].isin(answers["question"])],
        probe_pairs, missing, f"harness run --suite {suite.name}", tuple(sorted(listed)),
        tuple(filter(None, notes)),
    )  # fmt: skip


def _absent_probes(answers: pd.DataFrame, suite: Suite) -> list[str]:
    ran, probed = ({*answers.loc[answers[text] != "", "question"]}
                   for text in ("text", "longest.text"))  # fmt: skip
    return [f"{question.title}: no run has the probe {question.longest_probe!r} of its suite; "
            "name one of the task." for question in suite.questions
            if question.longest_probe and question.name in ran - probed]  # fmt: skip


def _missing(
    answers: pd.DataFrame, suite: Suite, forms: Mapping[str, str], catalogue: Catalogue
) -> list[tuple[str, str]]:
    traits = {of["name"]: of for of in catalogue["variants"]}
    ran = {*answers.loc[has_runs(answers), ["row", "question"]].itertuples(index=False, name=None)}
    return [
        (row.label, question.title)
        for question in suite.questions
        for row in suite.rows
        if (row.label, question.name) not in ran
        and sum(layer_counts(row.attention).values()) <= question.model.get("depth", math.inf)
        and all(traits.get(name, {}).get(forms[question.name], True)
                for name in layer_counts(row.attention))
    ]  # fmt: skip


def files(of: Tables, *, latex: bool) -> dict[str, bytes]:
    from reports.figures import heat_map, plane, scaling, style

    name, draw = of.suite.name, plane.draw if of.suite.average else heat_map.draw
    points = scaling.lines(of)
    page = _rendered("suite.md.j2", of, has_scaling=len(points) > 0)
    if of.suite.published and not of.suite.average:
        page += papers.section(papers.results(of.answers, of.seeds, of.suite), of.suite).encode()
    content = {f"{name}.md": page, f"{name}-answers.csv": frame_csv(of.seeds)}
    content |= style.table_with_images(name, of.joined.reset_index(), draw, of)
    if len(points):
        content |= style.table_with_images(f"{name}-scaling", points, scaling.draw, points)
    if find_spec("pyarrow"):
        stream = io.BytesIO()
        of.seeds.to_parquet(stream)
        content[f"{name}-answers.parquet"] = stream.getvalue()
    return content | ({f"{name}.tex": _rendered("suite.tex.j2", of)} if latex else {})


def answers_of(*tables: Tables) -> list[dict[Hashable, Any]]:
    # A line for each row and question.
    titles = [{question.name: question.title for question in of.suite.questions} for of in tables]
    found = [of.answers.assign(suite=of.suite.key, title=of.answers["question"].map(names),
                               missing=[of.marks.get(row, "") for row in of.answers["row"]])
             for of, names in zip(tables, titles, strict=True)]  # fmt: skip
    return [line for answers in found for line in answers.to_dict("records")]


def published(of: Tables) -> pd.DataFrame:
    of_runs = of.seeds.groupby(["row", "question"])[["train.lr", "version"]].first()
    of_runs = of_runs.rename(columns={"train.lr": "rate"})
    found = of.answers[of.answers["text"] != ""]
    return found.join(of_runs, on=["row", "question"])


def _rendered(template: str, of: Tables, *, has_scaling: bool = False) -> bytes:
    legend: dict[str, dict[str, None]] = {}
    for column in (column for form in of.matrix for column in of.table(form, "page").columns):
        legend.setdefault(column.note, {})[column.heading] = None
    some = of.answers["reached"].gt(0) & of.answers["reached"].lt(of.answers["runs"])
    return rendered(
        template, of=of, **of._asdict(), about=about(of), tex=tex,
        middle=of.suite.cost.middle_length, sentences=sentences(of),
        legend={"; ".join(headings): note for note, headings in legend.items() if note},
        probe_tables=_probe_tables(of), has_scaling=has_scaling,
        is_partial=bool((of.answers["part"] != "").any()),
        has_reached=bool((some & of.answers["part"].eq("")).any()),
        correlations=papers.correlations(of.answers, of.suite) if of.suite.average else [],
    ).encode()  # fmt: skip


def _probe_tables(of: Tables) -> list[tuple[str, str]]:
    found = []
    for question in of.suite.questions:
        probes = of.probes[of.probes["question"] == question.name]
        if probes.empty or matrix.sizes(probes).isna().any():
            continue
        order = {row: place for place, row in enumerate(of.rows(of.forms[question.name]))}
        ordered = probes[probes["row"].isin(order)]
        ordered = ordered.sort_values("row", key=lambda rows: rows.map(order), kind="stable")
        found.append((f"{question.title}: each size", matrix.of_probes(ordered).markdown()))
    return found


def _options(variants: Mapping[str, Mapping[str, Any]], attentions: Iterable[str]) -> str:
    # `+V` is V as the last layer of A+V.
    shown: set[str] = set()
    for attention in attentions:
        first, *others = re.split(r"(?=\+)|\*", attention)
        shown |= {first, *others, *(name.removeprefix("+") for name in others)}
    texts = (
        f"{variant} {', '.join(f'{name}={value}' for name, value in options.items())}"
        for variant, options in variants.items()
        if variant in shown
    )
    return "; ".join(texts)


def about(of: Tables) -> list[Line]:
    found: list[Line] = []
    of_recipes, every = recipes.of_suite(of.suite), {row.attention for row in of.suite.rows}
    for question in of.suite.questions:
        answers = of.answers[(of.answers["question"] == question.name) & (of.answers["text"] != "")]
        pairs = of.pairs[of.pairs["question"] == question.name]
        whole = answers[answers["seeds"] > 1]
        apart = told_apart(whole, pairs, question.ceiling)
        tested = {*map(frozenset, pairs[["first", "second"]].itertuples(index=False, name=None))}
        recipe = of_recipes[question.name]
        model, train = recipe.model, recipe.train
        rates = ", ".join(map("{:g}".format, question.rates))
        rate = f"rates {rates}" if rates else f"rate {train['lr']:g}"
        batch = f" of {train['batch']} examples" if "batch" in train else ""
        probes = of.longest_pairs[of.longest_pairs["question"] == question.name]
        probe = f"{(probes['p_holm'] <= LEVEL).sum()} of {len(probes)} ({question.longest_probe})"
        found.append({
            "name": question.name, "title": question.title, "form": of.forms[question.name],
            "asks": question.asks, "note": question.note, "training":
                f"{train['steps']:,} steps{batch}, {train.get('optimiser', 'adamw')}, {rate}",
            "model": _model(model),
            "options": _options(recipe.variants, {*answers["attention"]} or every) or NOTHING,
            "baseline": strongest(answers) or NOTHING,
            "apart": f"{len(apart)} of {len(tested | apart)}" + f"; {probe}" * bool(len(probes)),
            "has_results": len(answers) > 0,
        })  # fmt: skip
    return found


def _model(model: Mapping[str, Any]) -> str:
    if not {"depth", "dim", "heads"} <= model.keys():
        return ""
    layers = "1 layer" if model["depth"] == 1 else f"{model['depth']} layers"
    taps = model.get("short_conv", 0)
    conv = f", convolution of {taps}" * (taps > 0)
    return f"{layers} of width {model['dim']}, {model['heads']} heads{conv}"


def terminal(of: Tables) -> str:
    head = f"{plain(of.suite.title)} ({of.suite.key})"
    titles = [question.title for question in of.suite.questions]
    # Long titles have numbers in the table.
    numbers = {title: f"[{n}]" for n, title in enumerate(titles, 1) if max(map(len, titles)) > LONG}
    tables = []
    for form in of.matrix:
        columns, lines = of.table(form, "terminal")
        columns = [replace(c, short=numbers.get(c.heading, c.short)) for c in columns]
        parts = [Table([columns[0], *columns[at : at + MOST_COLUMNS]], lines).terminal(WIDE)
                 for at in range(1, len(columns), MOST_COLUMNS) if lines]  # fmt: skip
        tables += [f"{fill(f'{head}, {form} questions', WIDE)}\n{part}" for part in parts]
    baselines = [f"{line['title']}: {line['baseline']}" for line in about(of)[:MOST_BASELINES]
                 if line["baseline"] != NOTHING and not numbers]  # fmt: skip
    legend = rendered("legend.txt.j2", of=of, baselines=baselines)
    lines = [fill(plain(f"{number} {title}"), WIDE) for title, number in numbers.items()]
    tables += ["\n".join(lines)] * bool(lines)
    for text in (legend, *of.notes):
        # A command that ends a text is a line of its own, however long.
        head, colon, command = text.partition(": harness ")
        ends = colon and not text.endswith(".")
        tables.append(f"{fill(head, WIDE)}:\n    harness {command}" if ends else fill(text, WIDE))
    return "\n\n".join(tables)


def readme_table(of: Tables) -> str:
    baselines = {of["name"]: of["baseline"].rpartition(": ")[2] for of in about(of)}
    texts = []
    for form in of.matrix:
        table = of.table(form, "readme", few_rows(of, form))
        line = [baselines.get(column.name, NOTHING) for column in table.columns[1:]]
        texts.append(table.markdown(["strongest baseline", *line], marks=False))
    return "\n".join([*texts, *(f"{text}\n" for text in readme_sentences(of))])
