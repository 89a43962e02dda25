"""The files of a suite: Markdown, CSV, LaTeX, and the table of a terminal."""

import csv
import io

import pytest

from harness.cli.catalogue import described
from harness.records.families import family_of
from reports.pages.suite import fastest, files, readme_answer, readme_table, tables, terminal
from reports.site import site
from tests.reports.conftest import snapshot
from tests.suite_frames import published_costs
from tests.suite_frames import suite_frames as laptop_frames

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture
def found(suite_frames):
    suite, runs, baselines, costs = suite_frames
    return tables(suite, runs, baselines, costs)


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
    assert float(lines["primal"]["recall"]) == found.matrix.loc["primal", "recall"]
    assert lines["none"]["time.256"] == "" == lines["linear[chunk=8]"]["copy"]
    seeds = [*csv.DictReader(io.StringIO(pages["mine-answers.csv"].decode()))]
    assert len(seeds) == 3 * 7 and {line["seed"] for line in seeds} == {"1", "2", "3"}


def test_the_table_of_a_readme_begins_with_the_first_rows_and_marks_single_seeds():
    suite, runs, baselines = laptop_frames()
    page = readme_table(of := tables(suite, runs, baselines, published_costs()))
    top, _, legend = page.partition("\n\n")
    lines = [[text.strip() for text in line.strip("| ").split(" | ")] for line in top.splitlines()]
    names = [line[0] for line in lines[2:]]
    assert names[:3] == ["softmax", "primal", "primal-moments"] and len(names) == 8
    named = [line.partition("**")[2].rpartition(" (")[0] for line in readme_answer(of).splitlines()]
    chosen = len({*names[:3], *named})
    assert {*named} <= {*names[:chosen]}
    first, others = (
        [family_of(name) for name in part] for part in (names[:chosen], names[chosen:])
    )
    assert len({*others}) == len(others) and not {*others} & {*first}
    marks = {line[0]: [part.endswith(" (*1 seed*)") for part in line[1].split(", ")]
             for line in lines[2:] if line[1] != "–"}  # fmt: skip
    # Of this row there is one seed.
    assert all(marks.pop("primal-moments")) and not any(map(any, marks.values()))
    assert "1 seed" in legend
    others = runs[runs["row"] != "primal-moments"]
    assert "1 seed" not in readme_table(tables(suite, others, baselines, published_costs()))


def test_a_readme_names_the_fastest_of_the_best_rows(found):
    assert readme_answer(found) == "- recall: **softmax (1.00)**\n- copy: **primal (0.900)**"


@pytest.mark.parametrize(
    ("better", "expected"), [("higher", {"primal": "0.900"}), ("lower", {"softmax": "1.00"})]
)
def test_the_best_rows_overlap_with_the_best_mean_whichever_way_is_better(found, better, expected):
    answers = found.answers.assign(better=better)
    apart = (answers["question"] == "copy") & (answers["row"] == "softmax")
    answers.loc[apart, ["low", "high"]] = 60.0, 65.0
    assert fastest(found._replace(answers=answers), "copy") == expected


def test_texts_of_records_are_escaped(suite_frames):
    suite, runs, baselines, costs = suite_frames
    name = "a|b_{&%$<!--\x1b"
    runs = runs.assign(row=runs["row"].replace("none", name))
    pages = files(tables(suite, runs, baselines, costs), latex=True)
    assert pages["mine.tex"].isascii() and r"a|b\_\{\&\%\$<!--?" in pages["mine.tex"].decode()
    first, *others = suite.questions
    titled = first.model_copy(update={"title": "a \x1b title"})
    questions = {"questions": (titled, *others)}
    of = tables(suite.model_copy(update=questions), runs, baselines, costs)
    html = site(of, costs, described(), records=[], studies=[]).decode()
    assert "\x1b" not in html and "a \N{REPLACEMENT CHARACTER} title" in html
    page = pages["mine.md"].decode()
    assert "<!--" not in page and len({len(line) for line in table_in(page, "## Matrix")}) == 1


def test_runs_are_in_a_parquet_file_where_pyarrow_is_installed(found, pages):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    assert pyarrow and len(pandas.read_parquet(io.BytesIO(pages["mine-answers.parquet"]))) == 21


def test_a_suite_without_costs_and_with_no_runs_has_a_page(suite_frames):
    suite, runs, baselines, costs = suite_frames
    pages = files(tables(suite, runs[:0], baselines[:0], costs[:0]), latex=False)
    lines = table_in(pages["mine.md"].decode(), "## Matrix")
    assert len(lines) == 6 and {text for line in lines[2:] for text in line[2:-2]} == {"–"}
