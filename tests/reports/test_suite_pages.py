"""The files of a suite: Markdown, CSV, LaTeX, and the table of a terminal."""

import io
import re
from importlib.util import find_spec

import pandas as pd
import pytest

from harness.catalogue import described
from harness.recipes import declared
from reports import advice
from reports.layer_costs import FORMS
from reports.pages.sentences import best_rows, sentences
from reports.pages.suite import files, readme_table, tables, terminal
from reports.site import site
from tests.reports.conftest import csv_lines, snapshot

pytestmark = pytest.mark.usefixtures("unrendered")


def page_of(of):
    return files(of, latex=False)["mine.md"].decode()


def table_in(page, after):
    lines = page.partition(after)[2].strip().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| "))
    stop = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return [[text.strip() for text in line.strip("| ").split(" | ")] for line in lines[start:stop]]


def test_the_page_the_latex_the_terminal_and_the_tables_are_the_approved_ones(suite_frames):
    found = suite_frames.tables()
    pages = files(found, latex=True)
    for name in ("mine.md", "mine.tex"):
        snapshot(name, pages[name].decode())
    snapshot("mine.txt", terminal(found) + "\n")
    assert sentences(found)[1] == "copy: primal leads with 72.0."
    assert max(map(len, terminal(found).splitlines())) <= 120
    # Tables hold every digit, and a line for each seed.
    lines = {line["row"]: line for line in csv_lines(pages["mine.csv"])}
    assert float(lines["primal"]["causal.recall"]) == found.matrix["causal"].loc["primal", "recall"]
    assert lines["none"]["causal.time.256"] == "" == lines["linear[chunk=8]"]["bidirectional.copy"]
    seeds = csv_lines(pages["mine-answers.csv"])
    assert len(seeds) == 3 * 7 and {line["seed"] for line in seeds} == {"1", "2", "3"}
    if find_spec("pyarrow"):
        assert len(pd.read_parquet(io.BytesIO(pages["mine-answers.parquet"]))) == 21


def test_the_table_of_a_readme_is_the_approved_one_and_one_seed_has_no_interval(suite_frames):
    several = "row == 'primal' and question == 'copy' and seed > 1"
    of = suite_frames.tables(runs=suite_frames.runs.query(f"not ({several})"))
    snapshot("mine_readme.md", f"{readme_table(of)}\n")
    assert "| primal | 72.0 |" in readme_table(of)


@pytest.mark.parametrize(("form", "other"), [FORMS, FORMS[::-1]])
def test_every_cost_is_of_the_form_of_its_question(suite_frames, form, other):
    suite, *_, costs = suite_frames
    of_form = (costs["causal"] == (form == "causal")) & (costs["row"] == "primal")
    changed, names = costs.copy(), ["seconds", "ratio", "memory_ratio", "parameters"]
    changed.loc[of_form, [*names, "ratio.q1", "ratio.q3"]] *= 0.1
    before, after = (suite_frames.tables(costs=c) for c in (costs, changed))
    pd.testing.assert_frame_equal(before.matrix[other], after.matrix[other])
    values = advice.table(after.answers, after.seeds, changed, suite, described())
    for question in suite.questions:
        query = {"length": 512, "pass": "train", "memory": None, "needs": [question.name]}
        members = {of["row"]: of["time"] for of in advice.advise(values, query)["members"]}
        time = after.matrix[after.forms[question.name]].loc["primal", "time.512"]
        assert members.get("primal", time) == pytest.approx(time)
    changes = before.matrix[form].compare(after.matrix[form])
    assert changes.index.tolist() == ["primal"]
    names = {"time", "memory", "parameters", *["decode", "decode_seconds"] * (form == "causal")}
    assert {name.partition(".")[0] for name, _ in changes.columns} == names


def test_forms_costs_and_runs_may_be_missing(suite_frames):
    found = suite_frames.tables()
    empty = {**found.matrix, "causal": found.matrix["causal"][:0]}
    text = terminal(found._replace(matrix=empty))
    assert "bidirectional questions" in text and "causal questions" not in text
    # A cost is not that of the other form.
    of = suite_frames.tables(costs=suite_frames.costs.query("not causal or row != 'softmax'"))
    assert best_rows(of, "recall") == ["softmax"]
    lines = {line[0]: line for line in table_in(f"\n{readme_table(of)}", "\n")}
    assert lines["softmax"][2:] == ["–"]
    suite, *frames = suite_frames
    of = tables(suite, *(frame[:0] for frame in frames), described())
    lines = table_in(page_of(of), "## Causal")
    assert len(lines) == 6 and {text for line in lines[2:] for text in line[1:]} == {"–"}


def test_texts_of_records_are_escaped(suite_frames):
    suite, runs, *_ = suite_frames
    runs = runs.replace({"row": {"none": "a|b_{&%$<!--\x1b"}})
    pages = files(suite_frames.tables(runs=runs), latex=True)
    assert pages["mine.tex"].isascii() and r"a|b\_\{\&\%\$<!--?" in pages["mine.tex"].decode()
    first, *others = suite.questions
    titled = first.model_copy(update={"title": "a \x1b title"})
    suite = suite.model_copy(update={"questions": (titled, *others)})
    of = suite_frames.tables(suite=suite, runs=runs)
    html = site(of, suite_frames.costs, described(), records=[], studies=[]).decode()
    assert "\x1b" not in html and "a \N{REPLACEMENT CHARACTER} title" in html
    page = pages["mine.md"].decode()
    assert "<!--" not in page and len({len(line) for line in table_in(page, "## Causal")}) == 1


def test_an_entry_without_all_seeds_says_so(suite_frames):
    runs = suite_frames.runs
    seeds = {"softmax": (1, 2, 4), "primal": (4,), "linear[chunk=8]": (1, 2, 3, 4), "none": ()}
    kept = [seed in seeds[row] or question == "copy" for seed, row, question in
            zip(runs["seed"], runs["row"], runs["question"], strict=True)]  # fmt: skip
    one_rate = runs.assign(grid=runs["grid"].str.replace("0.001, ", ""))
    of = suite_frames.tables(runs=one_rate[kept])
    entries = {line[0]: line[1] for line in table_in(page_of(of), "## Causal")[2:]}
    assert entries["softmax"].endswith("] 2 of 3 seeds</sub>")
    # Seeds differ by more than test examples: of one there is no interval.
    assert entries["primal"].endswith(" <sub>trial, 1 seed</sub>")
    for text in (terminal(of), files(of, latex=True)["mine.tex"].decode()):
        causal = re.split("(?:causal|bidirectional) (?:questions|attention)", text)[1]
        assert causal.count("2 of 3 seeds") == causal.count("trial, 1 seed") == 1


def test_a_variant_without_half_of_the_questions_is_in_the_csv_file_alone(suite_frames):
    first, *others = suite_frames.suite.questions
    more = tuple(first.model_copy(update={"name": f"more-{n}"}) for n in range(3))
    suite = suite_frames.suite.model_copy(update={"questions": (first, *more, *others)})
    whole = suite_frames.runs.query("question == 'recall'")
    copies = [whole.assign(question=of.name, declared=declared(suite)[of.name]) for of in more]
    first_of = whole.assign(declared=declared(suite)["recall"])
    without = (of.query("row != 'primal'") for of in copies)
    runs = pd.concat([first_of, *without], ignore_index=True)
    of = suite_frames.tables(suite=suite, runs=runs)
    rows = [line[0] for line in table_in(page_of(of), "## Causal")[2:]]
    assert rows == ["softmax", "linear[chunk=8]", "none"]
    assert "primal" in {line["row"] for line in csv_lines(files(of, latex=False)["mine.csv"])}
    assert "primal" in of._replace(added=("primal",)).rows("causal")


def test_rows_without_a_result_are_listed_unless_they_lack_its_form(suite_frames):
    suite, runs, baselines, costs = suite_frames
    catalogue = described()
    variants = [{**of, "bidirectional": of["name"] != "linear"} for of in catalogue["variants"]]
    without = runs.query("row != 'primal' and not (row == 'none' and question == 'copy')")
    found = tables(suite, without, baselines, costs, {**catalogue, "variants": variants})
    assert [*found.missing] == [("primal", "recall"), ("primal", "copy"), ("none", "copy")]
    assert "Entries without results: 3." in page_of(found)
