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
from tests.reports.conftest import snapshot
from tests.suite_frames import published_costs
from tests.suite_frames import suite_frames as laptop_frames

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


def test_the_tables_of_a_readme_have_the_first_and_the_fastest_rows_and_mark_single_seeds():
    suite, runs, baselines = laptop_frames()
    page = readme_table(of := tables(suite, runs, baselines, published_costs(), described()))
    found = {}
    for form, text in zip(of.matrix, page.split("\n\n"), strict=False):
        lines = [[part.strip() for part in line.strip("| ").split(" | ")]
                 for line in text.splitlines() if line.startswith("|")]  # fmt: skip
        assert lines[0][:2] == [f"{form} attention", f"learned, of {len(of.questions(form))}"]
        found |= {(form, line[0]): line[1] for line in lines[2:]}
        learned = {part.partition(" ")[0] for line in lines[2:] for part in line[1].split(", ")}
        assert learned - {"–"} <= {question.name for question in of.questions(form)}
        names = [line[0] for line in lines[2:]]
        assert names[:3] == ["softmax", "primal", "primal-moments"]
        fast = [row for question in of.questions(form) for row in fastest(of, question.name)]
        assert {*names[3:]} < {*fast}
    marks = {key: [part.endswith(" (1 seed)") for part in learned.split(", ")]
             for key, learned in found.items() if learned != "–"}  # fmt: skip
    single = {key for key in marks if key[1] == "primal-moments"}
    # Of this row there is one seed.
    assert single and all(all(marks.pop(key)) for key in single)
    assert not any(map(any, marks.values())) and "1 seed: " in page
    others = runs[runs["row"] != "primal-moments"]
    of = tables(suite, others, baselines, published_costs(), described())
    assert "1 seed" not in readme_table(of)


def test_a_readme_names_the_fastest_of_the_best_rows(found):
    sentence, _, *lines = readme_answer(found).splitlines()
    assert "relative to softmax (CPU, fp32, width 64" in sentence
    assert lines == [
        "- recall, causal, 5,000 steps: **softmax (1.00)**.",
        "- copy, bidirectional, 5,000 steps: **primal (0.900)**. More steps help.",
    ]


@pytest.mark.parametrize(
    ("better", "expected"), [("higher", {"primal": "0.900"}), ("lower", {"softmax": "1.00"})]
)
def test_the_best_rows_overlap_with_the_best_mean_whichever_way_is_better(found, better, expected):
    answers = found.answers.assign(better=better)
    apart = (answers["question"] == "copy") & (answers["row"] == "softmax")
    answers.loc[apart, ["low", "high"]] = 60.0, 65.0
    assert fastest(found._replace(answers=answers), "copy") == expected


def shown_of(of, costs):
    """The text of each form in every output, by form and name of the output."""
    found = files(of, latex=True)
    page, tex, csv_ = (found[f"mine.{suffix}"].decode() for suffix in ("md", "tex", "csv"))
    html = site(of, costs, described(), records=[], studies=[]).decode()
    values = advice.table(of.answers, of.seeds, costs, of.suite, described())
    shown = {}
    for place, form in enumerate(of.matrix):
        (question,) = of.questions(form)
        query = {"length": 512, "pass": "train", "memory": None, "needs": [question.name]}
        columns = pd.read_csv(io.StringIO(csv_)).filter(regex=f"^{form}[.]")
        shown[form] = {
            "page": page.split("\n## ")[1 + place].partition("\n\n- ")[0],
            "questions": [line for line in page.splitlines() if f" | {form} | " in line],
            "LaTeX": tex.split(r"\begin{table}")[1 + place],
            "CSV": columns.to_csv(),
            "terminal": terminal(of).split("\n\n")[place],
            "README": readme_table(of).split("\n\n")[place].strip(),
            "headline": readme_answer(of).splitlines()[2 + place],
            "site": html.split(f"<h3>{form.capitalize()}")[1].partition("</table>")[0],
            "advice": advice.advise(values, query)["members"],
            "advice, text": advice.advice_text(values, query, advice.advise(values, query)),
        }
    return shown


@pytest.mark.parametrize(("form", "other"), [FORMS, FORMS[::-1]])
def test_every_printed_cost_is_of_the_form_of_its_question(suite_frames, form, other):
    suite, runs, baselines, costs = suite_frames
    # Not of softmax, whose ratio is 1.
    of_form = (costs["causal"] == (form == "causal")) & (costs["row"] == "primal")
    names = ["seconds", "ratio", "ratio.q1", "ratio.q3", "memory_ratio", "parameters"]
    changed = costs.copy()
    changed.loc[of_form, names] *= 0.7
    before, after = (
        shown_of(tables(suite, runs, baselines, c, described()), c) for c in (costs, changed)
    )
    # The fastest of the best causal rows is softmax.
    unchanged = {"headline", "questions", "advice", "advice, text"} if form == "causal" else set()
    for output in before[form]:
        assert before[other][output] == after[other][output], output
        assert (before[form][output] != after[form][output]) or output in unchanged, output


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
