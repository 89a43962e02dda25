"""The files of a suite: Markdown, CSV, LaTeX, and the table of a terminal."""

import csv
import io

import pandas as pd
import pytest

from harness.catalogue import described
from reports import advice
from reports.layer_costs import FORMS
from reports.pages.suite import fastest, files, readme_answer, readme_table, tables, terminal
from reports.site import site
from reports.text import number
from tests.reports.conftest import snapshot

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture
def found(suite_frames):
    suite, runs, baselines, costs = suite_frames
    return tables(suite, runs, baselines, costs, described())


@pytest.fixture
def pages(found):
    return files(found, latex=True)


def table_in(page, after):
    """The texts of the first table of a Markdown page after a text."""
    lines = page.partition(after)[2].strip().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| "))
    stop = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return [[text.strip() for text in line.strip("| ").split(" | ")] for line in lines[start:stop]]


def test_the_page_the_latex_and_the_terminal_are_the_approved_ones(found, pages):
    for name in ("mine.md", "mine.tex"):
        snapshot(name, pages[name].decode())
    snapshot("mine.txt", terminal(found) + "\n")
    assert max(map(len, terminal(found).splitlines())) <= 120


def test_the_tables_hold_every_digit_and_a_line_for_each_seed(found, pages):
    lines = {line["row"]: line for line in csv.DictReader(io.StringIO(pages["mine.csv"].decode()))}
    assert float(lines["primal"]["causal.recall"]) == found.matrix["causal"].loc["primal", "recall"]
    assert lines["none"]["causal.time.256"] == "" == lines["linear[chunk=8]"]["bidirectional.copy"]
    seeds = [*csv.DictReader(io.StringIO(pages["mine-answers.csv"].decode()))]
    assert len(seeds) == 3 * 7 and {line["seed"] for line in seeds} == {"1", "2", "3"}


def test_the_parts_of_a_readme_are_the_approved_ones_and_mark_single_seeds(suite_frames, found):
    suite, runs, baselines, costs = suite_frames
    several = (runs["row"] == "primal") & (runs["question"] == "copy") & (runs["seed"] > 1)
    of = tables(suite, runs[~several], baselines, costs, described())
    snapshot("mine_readme.md", f"{readme_answer(of)}\n\n{readme_table(of)}\n")
    assert "1 seed" not in readme_table(found)


@pytest.mark.parametrize(
    ("better", "expected"), [("higher", {"primal": "0.900"}), ("lower", {"softmax": "1.00"})]
)
def test_the_best_rows_overlap_with_the_best_mean_whichever_way_is_better(found, better, expected):
    answers = found.answers.assign(better=better)
    apart = (answers["question"] == "copy") & (answers["row"] == "softmax")
    answers.loc[apart, ["low", "high"]] = 60.0, 65.0
    assert fastest(found._replace(answers=answers), "copy") == expected


def test_of_the_best_rows_the_fastest_is_the_first(found):
    assert [*fastest(found, "copy")] == ["primal", "softmax"]
    faster = found.matrix["bidirectional"].copy()
    faster.loc["softmax", "time.512"] = 0.1
    of = found._replace(matrix={**found.matrix, "bidirectional": faster})
    assert [*fastest(of, "copy")] == ["softmax", "primal"]


@pytest.mark.parametrize(("form", "other"), [FORMS, FORMS[::-1]])
def test_every_cost_is_of_the_form_of_its_question(suite_frames, form, other):
    suite, runs, baselines, costs = suite_frames
    of_form = (costs["causal"] == (form == "causal")) & (costs["row"] == "primal")
    names = ["seconds", "ratio", "ratio.q1", "ratio.q3", "memory_ratio", "parameters"]
    changed = costs.copy()
    changed.loc[of_form, names] *= 0.1
    before, after = (tables(suite, runs, baselines, c, described()) for c in (costs, changed))
    pd.testing.assert_frame_equal(before.matrix[other], after.matrix[other])
    values = advice.table(after.answers, after.seeds, changed, suite, described())
    for question in suite.questions:
        query = {"length": 512, "pass": "train", "memory": None, "needs": [question.name]}
        members = {of["row"]: of["time"] for of in advice.advise(values, query)["members"]}
        time = after.matrix[after.forms[question.name]].loc["primal", "time.512"]
        assert members.get("primal", time) == pytest.approx(time)
        assert fastest(after, question.name).get("primal", number(time)) == number(time)
    changes = before.matrix[form].compare(after.matrix[form])
    assert changes.index.tolist() == ["primal"]
    names = {"time", "memory", "parameters", *(["decode_seconds"] if form == "causal" else [])}
    assert {name.partition(".")[0] for name, _ in changes.columns} == names


def test_a_cost_that_is_missing_in_a_form_is_not_the_cost_of_the_other_form(suite_frames):
    suite, runs, baselines, costs = suite_frames
    others = costs[~costs["causal"] | (costs["row"] != "softmax")]
    of = tables(suite, runs, baselines, others, described())
    assert fastest(of, "recall") == {"softmax": "–"}
    lines = {line[0]: line for line in table_in(f"\n{readme_table(of)}", "\n")}
    assert lines["softmax"][2:] == ["–", "–", "–", "–"]


@pytest.mark.parametrize(("computed_by", "bound"), [("PyTorch", True), ("Triton", False)])
def test_a_ratio_above_one_of_pytorch_operations_is_marked_as_an_upper_bound(
    suite_frames, computed_by, bound
):
    suite, runs, baselines, costs = suite_frames
    costs = costs.assign(computed_by=computed_by)
    of = tables(suite, runs, baselines, costs, described())
    lines = {line[0]: line for line in table_in(files(of, latex=False)["mine.md"].decode(), "## C")}
    assert [text.startswith("≤ ") for text in lines["primal"][3:6]] == [bound, bound, False]
    assert not any("≤" in text for text in lines["softmax"])


def test_texts_of_records_are_escaped(suite_frames):
    suite, runs, baselines, costs = suite_frames
    name = "a|b_{&%$<!--\x1b"
    runs = runs.assign(row=runs["row"].replace("none", name))
    pages = files(tables(suite, runs, baselines, costs, described()), latex=True)
    assert pages["mine.tex"].isascii() and r"a|b\_\{\&\%\$<!--?" in pages["mine.tex"].decode()
    first, *others = suite.questions
    titled = first.model_copy(update={"title": "a \x1b title"})
    questions = {"questions": (titled, *others)}
    of = tables(suite.model_copy(update=questions), runs, baselines, costs, described())
    html = site(of, costs, described(), records=[], studies=[]).decode()
    assert "\x1b" not in html and "a \N{REPLACEMENT CHARACTER} title" in html
    page = pages["mine.md"].decode()
    assert "<!--" not in page and len({len(line) for line in table_in(page, "## Causal")}) == 1


def test_runs_are_in_a_parquet_file_where_pyarrow_is_installed(found, pages):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    assert pyarrow and len(pandas.read_parquet(io.BytesIO(pages["mine-answers.parquet"]))) == 21


def test_a_suite_without_costs_and_with_no_runs_has_a_page(suite_frames):
    suite, runs, baselines, costs = suite_frames
    pages = files(tables(suite, runs[:0], baselines[:0], costs[:0], described()), latex=False)
    lines = table_in(pages["mine.md"].decode(), "## Causal")
    assert len(lines) == 6 and {text for line in lines[2:] for text in line[2:-2]} == {"–"}
