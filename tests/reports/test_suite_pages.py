"""The files of a suite: Markdown, CSV, LaTeX, and the table of a terminal."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from harness.catalogue import described
from harness.recipes import declared
from reports import advice
from reports.figures.matrix import draw
from reports.layer_costs import FORMS
from reports.matrix import by_state, most_solved
from reports.pages.lessons import lessons
from reports.pages.suite import (
    _shows_no_recall,
    fastest,
    files,
    readme_answer,
    readme_table,
    tables,
    terminal,
    told_apart,
)
from reports.site import site
from tests.reports.conftest import csv_lines, snapshot

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture
def found(suite_frames):
    return suite_frames.tables()


@pytest.fixture
def pages(found):
    return files(found, latex=True)


def page_of(of):
    return files(of, latex=False)["mine.md"].decode()


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
    lines = {line["row"]: line for line in csv_lines(pages["mine.csv"])}
    assert float(lines["primal"]["causal.recall"]) == found.matrix["causal"].loc["primal", "recall"]
    assert lines["none"]["causal.time.256"] == "" == lines["linear[chunk=8]"]["bidirectional.copy"]
    seeds = csv_lines(pages["mine-answers.csv"])
    assert len(seeds) == 3 * 7 and {line["seed"] for line in seeds} == {"1", "2", "3"}


def test_the_parts_of_a_readme_are_the_approved_ones_and_mark_missing_seeds(suite_frames, found):
    several = "row == 'primal' and question == 'copy' and seed > 1"
    of = suite_frames.tables(runs=suite_frames.runs.query(f"not ({several})"))
    snapshot("mine_readme.md", f"{readme_answer(of)}\n\n{readme_table(of)}\n")
    assert "1 of 3 seeds" in readme_table(of) and "runs missing" not in readme_table(found)


@pytest.mark.parametrize(
    ("better", "expected"), [("higher", {"primal": 0.9}), ("lower", {"softmax": 1.0})]
)
def test_the_best_rows_overlap_with_the_best_mean_whichever_way_is_better(found, better, expected):
    answers = found.answers.assign(better=better)
    apart = (answers["question"] == "copy") & (answers["row"] == "softmax")
    answers.loc[apart, ["low", "high"]] = 60.0, 65.0
    best = fastest(found._replace(answers=answers), "copy")
    assert {row: line["time.512"] for row, line in best.items()} == expected


def test_pairs_are_told_apart_by_their_difference_or_by_the_ceiling():
    answers = pd.DataFrame(
        [("a", "able", 100.0), ("b", "undecided", 98.9), ("c", "undecided", 99.1),
         ("d", "unable", 50.0), ("e", "able", 99.5),
         ("f", "able", 97.0)],
        columns=["row", "verdict", "high"],
    )  # fmt: skip
    pairs = pd.DataFrame(
        [("b", "c", 0.05), ("c", "d", 0.06), ("c", "left out", 0.01), ("a", "e", 0.01)],
        columns=["first", "second", "p_holm"],
    )
    found = {"".join(sorted(pair)) for pair in told_apart(answers, pairs, 99.0)}
    assert found == {"ab", "ad", "be", "de", "bc"}
    assert told_apart(answers, pairs, None) == {frozenset("bc")}


@pytest.mark.parametrize(("form", "other"), [FORMS, FORMS[::-1]])
def test_every_cost_is_of_the_form_of_its_question(suite_frames, form, other):
    suite, *_, costs = suite_frames
    of_form = (costs["causal"] == (form == "causal")) & (costs["row"] == "primal")
    names = ["seconds", "ratio", "ratio.q1", "ratio.q3", "memory_ratio", "parameters"]
    changed = costs.copy()
    changed.loc[of_form, names] *= 0.1
    before, after = (suite_frames.tables(costs=c) for c in (costs, changed))
    pd.testing.assert_frame_equal(before.matrix[other], after.matrix[other])
    values = advice.table(after.answers, after.seeds, changed, suite, described())
    for question in suite.questions:
        query = {"length": 512, "pass": "train", "memory": None, "needs": [question.name]}
        members = {of["row"]: of["time"] for of in advice.advise(values, query)["members"]}
        time = after.matrix[after.forms[question.name]].loc["primal", "time.512"]
        assert members.get("primal", time) == pytest.approx(time)
        line = fastest(after, question.name).get("primal", {"time.512": time})
        assert line["time.512"] == pytest.approx(time)
    changes = before.matrix[form].compare(after.matrix[form])
    assert changes.index.tolist() == ["primal"]
    of_decoding = {"decode", "decode_seconds"} if form == "causal" else set()
    names = {"time", "memory", "parameters"} | of_decoding
    assert {name.partition(".")[0] for name, _ in changes.columns} == names


def test_a_cost_that_is_missing_in_a_form_is_not_the_cost_of_the_other_form(suite_frames):
    others = suite_frames.costs.query("not causal or row != 'softmax'")
    of = suite_frames.tables(costs=others)
    ((row, line),) = fastest(of, "recall").items()
    assert row == "softmax" and line["time.512"] != line["time.512"]
    lines = {line[0]: line for line in table_in(f"\n{readme_table(of)}", "\n")}
    assert lines["softmax"][2:] == ["–", "–", "–", "–"]


@pytest.mark.parametrize(("computed_by", "bound"), [("PyTorch", True), ("Triton", False)])
def test_a_ratio_of_pytorch_operations_is_marked_as_a_bound(suite_frames, computed_by, bound):
    of = suite_frames.tables(costs=suite_frames.costs.assign(computed_by=computed_by))
    lines = {line[0]: line for line in table_in(page_of(of), "## C")}
    assert [text.startswith("≤ ") for text in lines["primal"][3:6]] == [bound, bound, bound]


def test_a_terminal_has_no_table_of_a_form_without_results(found):
    empty = {
        form: matrix[:0] if form == "causal" else matrix for form, matrix in found.matrix.items()
    }
    text = terminal(found._replace(matrix=empty))
    assert "bidirectional questions" in text and "causal questions" not in text


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


def test_runs_are_in_a_parquet_file_where_pyarrow_is_installed(found, pages):
    pytest.importorskip("pyarrow")
    assert len(pd.read_parquet(io.BytesIO(pages["mine-answers.parquet"]))) == 21


def test_a_suite_without_costs_and_with_no_runs_has_a_page(suite_frames):
    suite, *frames = suite_frames
    of = tables(suite, *(frame[:0] for frame in frames), described())
    lines = table_in(page_of(of), "## Causal")
    assert len(lines) == 6 and {text for line in lines[2:] for text in line[2:-2]} == {"–"}


STEPS = (1000, 2000, 3000, 3500, 4000, 4500, 5000)

CURVES = {
    "softmax": (100,) * 7, "primal": (0, 10, 20, 25, 30, 35, 40),
    "linear[chunk=8]": (30,) * 7, "none": (10,) * 7,
}  # fmt: skip


@pytest.fixture
def judged_frames(suite_frames):
    """Recall has a ceiling and probes of two sizes; softmax reaches it after 1,000 steps."""
    suite, runs, *_ = suite_frames
    first, *others = suite.questions
    suite = suite.model_copy(update={
        "questions": (first.model_copy(update={"ceiling": 99.0}), *others)
    })  # fmt: skip
    names = "4 pairs in 32", "8 pairs in 64", "8 pairs in 128"
    runs = runs.assign(
        evaluations=[[*zip(STEPS, CURVES[row], strict=True)] for row in runs["row"]],
        groups=[dict.fromkeys(names[:2], 1.0)] * len(runs),
        probes=[dict.fromkeys(names, sample) if name == "recall" else {}
                for sample, name in zip(runs["sample"], runs["question"], strict=True)],
        state_bytes=1024.0, declared=runs["question"].map(declared(suite)),
    )  # fmt: skip
    return suite_frames._replace(suite=suite, runs=runs)


@pytest.fixture
def judged(judged_frames):
    return judged_frames.tables()


def test_the_readme_names_the_able_rows_and_says_where_there_is_none(judged):
    def line_of(of, title):
        (line,) = (line for line in readme_answer(of).splitlines() if line.startswith(f"- {title}"))
        return line.partition("variants: ")[2]

    assert line_of(judged, "recall") == "**softmax (≤ 1.00)**."
    verdicts = judged.answers["verdict"].replace("able", "undecided")
    open_ = judged.answers.assign(verdict=verdicts, reached=2, runs=3)
    none_able = judged._replace(answers=open_)
    assert line_of(none_able, "recall") == (
        "none is able; the best is softmax with 98.2, 2 of 3 seeds at the ceiling."
    )
    first, *rest = judged.suite.questions
    other = first.model_copy(update={"variants": {"softmax": {"backend": "naive"}}})
    suite = judged.suite.model_copy(update={"questions": (other, *rest)})
    assert line_of(judged._replace(suite=suite), "recall") == "**softmax (≤ 1.00 °)**."
    for name, mark in (("+softmax", " °"), ("primal", "")):
        other = first.model_copy(update={"variants": {name: {"rank": 8}}})
        suite = judged.suite.model_copy(update={"questions": (other, *rest)})
        assert line_of(judged._replace(suite=suite), "recall") == f"**softmax (≤ 1.00{mark})**."
    worse = judged._replace(answers=judged.answers.assign(answered=False))
    assert line_of(worse, "copy").startswith(
        "**primal (≤ 0.900)**; no variant is better than the strongest baseline, rule: 30.0 ["
    )
    part = judged.answers.assign(part="trial, 1 seed", verdict="runs missing")
    for answers in (judged.answers.assign(text="", verdict=""), part):
        nothing = readme_answer(judged._replace(answers=answers)).splitlines()
        assert any(line.startswith("- Runs are missing: recall") for line in nothing)
    table = readme_table(judged)
    head, _, *lines = table_in(f"\n{table}", "\n")
    assert head[1:4] == ["able", "unable", "undecided"]
    assert [line[1:4] for line in lines] == [
        ["recall", "–", "–"], ["–", "–", "recall"], ["–", "recall", "–"]
    ]  # fmt: skip
    # Without a ceiling the best are named; close times are a tie.
    assert line_of(judged, "copy").startswith("**primal (≤ 0.900)**. ")
    at = judged.answers["row"].isin(["primal", "softmax"])
    same = {"rank_group": judged.answers["rank_group"].mask(at, "A"),
            "high": judged.answers["high"].mask(at, 75.0)}  # fmt: skip
    equal = judged._replace(answers=judged.answers.assign(**same))
    assert line_of(equal, "copy").startswith("**primal (≤ 0.900), softmax (≤ 1.00)**. ")
    faster = judged.matrix["bidirectional"].copy()
    faster.loc["primal", "time.512"] = 0.8
    apart = equal._replace(matrix={**judged.matrix, "bidirectional": faster})
    assert line_of(apart, "copy").startswith("**primal (≤ 0.800)**, softmax (≤ 1.00). ")


def test_each_entry_has_its_verdict_and_how_far_it_got(judged):
    page = page_of(judged)
    head, _, *found = table_in(page, "## Causal")
    assert head[1] == "able, of finished"
    assert {line[0]: line[1] for line in found} == {
        "softmax": "1 of 1", "primal": "0 of 1", "linear[chunk=8]": "0 of 1", "none": "0 of 1",
    }  # fmt: skip
    lines = {line[0]: line[2] for line in found}
    assert lines["softmax"].endswith("able, 1,000 steps</sub>")
    assert lines["primal"].endswith("undecided, still improves by 20.0</sub>")
    assert lines["none"].endswith("unable in 5,000 steps</sub>")
    copy = [line[2] for line in table_in(page, "## Bidirectional")]
    assert not any(verdict in text for text in copy for verdict in ("able", "undecided"))


def test_a_page_of_some_variants_counts_the_unable_ones(judged):
    matrix = {form: every[every.index == "none"] for form, every in judged.matrix.items()}
    of = judged._replace(answers=judged.answers[judged.answers["row"] == "none"], matrix=matrix)
    lines = {line[0]: line[1:4] for line in table_in(page_of(of), "by result")}
    assert lines["recall"] == ["0", "1", "0"]


def test_an_entry_without_all_seeds_says_so_and_is_counted_as_a_part(suite_frames, judged):
    runs = suite_frames.runs
    seeds = {"softmax": (1, 2, 4), "primal": (4,), "linear[chunk=8]": (1, 2, 3, 4), "none": ()}
    kept = [seed in seeds[row] or question == "copy" for seed, row, question in
            zip(runs["seed"], runs["row"], runs["question"], strict=True)]  # fmt: skip
    one_rate = runs.assign(grid=runs["grid"].str.replace("0.001, ", ""))
    runs = one_rate[kept].assign(declared=runs["question"].map(declared(judged.suite)))
    of = suite_frames.tables(suite=judged.suite, runs=runs)
    page = page_of(of)
    entries = {line[0]: line[1:7] for line in table_in(page, "by result")}
    assert entries["question"] == ["able", "unable", "undecided", "finished", "part", "not run"]
    # No able row was fast enough for others to be unable.
    assert entries["recall"] == ["0", "–", "1", "1", "2", "1"]
    assert entries["copy"] == ["–", "–", "–", "3", "0", "1"]
    assert "- Entries of the matrix: 4 finished, 2 in part, 2 not run." in page
    lines = {line[0]: line[1:3] for line in table_in(page, "## Causal")}
    assert lines["softmax"][0] == lines["primal"][0] == "–"
    assert lines["softmax"][1].endswith("; runs missing: 2 of 3 seeds</sub>")
    # Seeds differ by more than test examples: of one there is no interval.
    assert lines["primal"][1].endswith("<br><sub>runs missing: trial, 1 seed</sub>")
    for text in (terminal(of), files(of, latex=True)["mine.tex"].decode()):
        causal = text.replace("bidirectional", "causal").split("causal questions")[1]
        scores = {line.split()[0]: line for line in causal.splitlines() if line.strip()}
        marked = {row for row in ("softmax", "primal", "linear[chunk=8]") if "*" in scores[row]}
        assert marked == {"softmax", "primal"}


def test_the_lessons_are_sentences_of_the_results(judged):
    assert lessons(judged) == [
        "Entries of the matrix: 7 finished, 0 in part, 1 not run.",
        "Undecided: 1 of 4 verdicts, 25 %; 1 still improve at the end.",
        "Steps to the ceiling, medians of seeds: recall 1,000 (softmax).",
        "The best scores where no ceiling is set: copy: primal with 72.0 [71.3, 72.6], the "
        "baseline rule with 30.0.",
        "Primal-Attention, primal: recall 70.2 (undecided); copy 72.0; 1.80 of the time of "
        "softmax, causal, 512 tokens; 0.900 of the time of softmax, bidirectional, 512 tokens.",
    ]  # fmt: skip
    page = page_of(judged)
    assert page.index(lessons(judged)[0]) < page.index("## Causal")


def test_lessons_are_those_that_the_results_have(judged, found):
    assert lessons(found) == []
    lower = judged.answers.assign(better="lower")
    assert "copy: none with" in lessons(judged._replace(answers=lower))[3]
    flat = judged.answers.assign(rise=-0.1)
    undecided = lessons(judged._replace(answers=flat))[1]
    assert undecided == "Undecided: 1 of 4 verdicts, 25 %; 0 still improve at the end."
    # Softmax, which is able, needs all of the budget.
    slow = flat.assign(error=0.01, distance=50.0, steps=flat["budget"])
    undecided = lessons(judged._replace(answers=slow))[1]
    assert undecided.endswith("at the end; 1 flat, where no variant can be unable.")
    able = judged.answers.assign(steps=[100.0, 1e4, 300.0, 200.0] * 2)
    able = able.assign(verdict=able["verdict"].replace("unable", "able"))
    steps = "recall 100 to 300 (softmax, linear[chunk=8], none)."
    assert lessons(judged._replace(answers=able))[2].endswith(steps)
    # A part of the runs is no result.
    part = judged.answers.assign(verdict="runs missing", part="trial, 1 seed")
    assert [text.partition(":")[0] for text in lessons(judged._replace(answers=part))] == [
        "Entries of the matrix", "Primal-Attention, primal"
    ]  # fmt: skip
    nothing = judged.answers.assign(verdict="", text="", status="")
    assert lessons(judged._replace(answers=nothing)) == [
        "Entries of the matrix: 0 finished, 0 in part, 1 not run."
    ]


@pytest.mark.parametrize(("least", "tells"), [(1.5, False), (0.9, True)])
def test_bits_on_repeated_n_grams_that_do_not_differ_from_those_without_context_say_so(
    judged, least, tells
):
    probes = judged.probes.assign(probe="repeated 6-grams", low=1.0, high=2.0)
    probes.loc[probes["row"] == "softmax", "high"] = least
    page = page_of(judged._replace(probes=probes))
    assert "*repeated 6-grams*: bits" in page
    assert ("these bits do not show recall" in page) is not tells


def test_probes_have_a_table_with_the_largest_trained_size_that_is_solved(judged):
    page = page_of(judged)
    head, _, *lines = table_in(page, "## recall: each size")
    assert head == ["attention", "4 pairs in 32", "8 pairs in 64", "8 pairs in 128, not trained",
                    "pairs at 90 %"]  # fmt: skip
    solved = {line[0]: line[-1] for line in lines}
    assert solved == {"softmax": "8", "primal": "0", "linear[chunk=8]": "0", "none": "0"}
    assert "by state" not in page


@pytest.mark.parametrize(
    ("means", "trained", "expected"),
    [
        ((95, 91, 20), (True, True, True), 8), ((95, 20, 99), (True, True, False), 4),
        ((95, 20, 99), (True, True, True), 16), ((90, 89.9, 0), (True, True, True), 4),
        ((80, 20, 0), (True, True, True), 0), ((95, 95, 95), (False, False, False), np.nan),
    ],
)  # fmt: skip
def test_the_solved_size_is_the_largest_trained_one_of_at_least_90(means, trained, expected):
    probes = pd.DataFrame({
        "row": "a", "question": "recall", "mean": means, "trained": trained,
        "probe": ["4 pairs in 32", "8 pairs in 64", "16 pairs in 64"],
    })  # fmt: skip
    found = most_solved(probes)
    assert found["recall", "a"] == pytest.approx(expected, nan_ok=True)


def test_by_state_has_runs_of_a_question_with_other_heads_and_no_other_change(judged_frames):
    runs = judged_frames.runs
    own = runs[(runs["question"] == "recall") & (runs["row"] == "softmax")].assign(suite="")
    others = [
        own.assign(question=f"mqar@1, recipe mine@1/recall with {change}", state_bytes=128.0)
        for change in ("model.heads=1", "model.heads=1, train.lr=0.1", "model.dim=8")
    ]
    # Of other data, and of older code.
    others.append(others[0].assign(data="other", state_bytes=512.0))
    others.append(others[0].assign(implementation="mine:0", outdated=True, state_bytes=512.0))
    found = judged_frames.tables(runs=pd.concat([runs, *others], ignore_index=True))
    page = files(found, latex=False)["mine.md"].decode()
    _, _, *lines = table_in(page, "## recall: by state")
    scores = [line[2].partition("<")[0] for line in lines[:2]]
    assert [line[:2] for line in lines[:2]] == [
        ["softmax, 1 head", "128"], ["softmax", "1,024"],
    ]  # fmt: skip
    assert scores == ["98.2", "98.2 A"]
    assert "1 head" not in page.partition("## recall: by state")[0]


def test_by_state_are_the_results_in_order_of_the_bytes_with_the_hardest_probe(judged):
    every = judged.answers.assign(state_bytes=[256.0, 1e6, 512.0, np.nan] * 2)
    answers = every[every["question"] == "recall"]
    _, lines = by_state(answers, judged.probes)
    assert [(line["row"], line["state_bytes"], line["solved"]) for line in lines] == [
        ("softmax", 256, 8), ("linear[chunk=8]", 512, 0), ("primal", 1e6, 0),
    ]  # fmt: skip
    none = answers.assign(text=answers["text"].where(answers["row"] != "primal", ""))
    assert [line["row"] for line in by_state(none, judged.probes)[1]] == [
        "softmax", "linear[chunk=8]",
    ]  # fmt: skip
    same = answers.assign(state_bytes=512.0)
    assert by_state(same, judged.probes)[1] == []
    page = page_of(judged._replace(answers=every))
    head, _, *lines = table_in(page, "## recall: by state")
    assert head[1:] == [
        "state of the model, bytes", "score", "pairs at 90 %", "8 pairs in 64",
    ]  # fmt: skip
    each = {line[0]: line[2] for line in table_in(page, "## recall: each size")[2:]}
    assert [(line[1], line[-1]) for line in lines] == [
        ("256", each["softmax"]), ("512", each["linear[chunk=8]"]), ("1,000,000", each["primal"]),
    ]  # fmt: skip


def test_a_label_of_the_figure_has_the_able_and_the_finished_questions(judged):
    labels = {text.get_text() for axes in draw(judged).axes for text in axes.texts}
    assert {"softmax 1/1", "primal 0/1"} <= labels


def test_rows_without_a_result_are_counted_by_question_unless_they_lack_its_form(suite_frames):
    suite, runs, baselines, costs = suite_frames
    catalogue = described()
    variants = [{**of, "bidirectional": of["name"] != "linear"} for of in catalogue["variants"]]
    without = runs.query("row != 'primal' and not (row == 'none' and question == 'copy')")
    found = tables(suite, without, baselines, costs, {**catalogue, "variants": variants})
    assert [*found.missing] == [("primal", "recall"), ("primal", "copy"), ("none", "copy")]
    page = page_of(found)
    entries = {line[0]: line[1:4] for line in table_in(page, "by result")}
    assert entries["question"] == ["finished", "part", "not run"]
    assert (entries["recall"], entries["copy"]) == (["3", "0", "1"], ["1", "0", "2"])


@pytest.mark.parametrize(
    ("rows", "probe", "expected"),
    [
        ({"a": (2.5, 2.7), "conv": (2.4, 2.6), "none": (3.0, 3.1)}, "repeated 6-grams", True),
        ({"a": (2.0, 2.5), "conv": (2.4, 2.6)}, "repeated 6-grams", True),
        ({"a": (1.0, 2.0), "b": (2.5, 2.7), "conv": (2.4, 2.6)}, "repeated 6-grams", False),
        ({"a": (2.5, 2.7), "conv": (2.4, 2.6)}, "8 pairs", False),
        ({"a": (2.5, 2.7)}, "repeated 6-grams", False),
    ],
)
def test_repeated_n_grams_show_no_recall_if_no_interval_is_below_all_models(rows, probe, expected):
    probes = pd.DataFrame(
        [
            {"question": "language", "probe": probe, "row": name, "low": low, "high": high}
            for name, (low, high) in rows.items()
        ]
    )
    seeds = pd.DataFrame({"row": [*rows], "baseline": [name in ("conv", "none") for name in rows]})
    assert _shows_no_recall(SimpleNamespace(probes=probes, seeds=seeds)) is expected
