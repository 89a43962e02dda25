"""The files of a suite: Markdown, CSV, LaTeX, and the table of a terminal."""

import io
import re

import numpy as np
import pandas as pd
import pytest

from harness.catalogue import described
from harness.recipes import declared
from reports import advice
from reports.figures import heat_map, scaling
from reports.layer_costs import FORMS
from reports.matrix import most_solved
from reports.pages import sentences as findings
from reports.pages.sentences import best_rows, few_rows, sentences
from reports.pages.suite import _options, about, files, readme_table, tables, terminal
from reports.site import site
from reports.statistics import told_apart
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
    lines = page.partition(after)[2].strip().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| "))
    stop = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return [[text.strip() for text in line.strip("| ").split(" | ")] for line in lines[start:stop]]


def first_column(page):
    return {line[0]: line[1] for line in table_in(page, "## Causal")[2:]}


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


def test_the_table_of_a_readme_is_the_approved_one_and_one_seed_has_no_interval(suite_frames):
    several = "row == 'primal' and question == 'copy' and seed > 1"
    of = suite_frames.tables(runs=suite_frames.runs.query(f"not ({several})"))
    snapshot("mine_readme.md", f"{readme_table(of)}\n")
    assert "| primal | 72.0 |" in readme_table(of)


def test_pairs_are_told_apart_by_their_difference_or_by_the_ceiling():
    answers = pd.DataFrame(
        [("a", True, 100.0), ("b", False, 98.9), ("c", False, 99.1), ("d", False, 50.0),
         ("e", True, 99.5), ("f", True, 97.0)],
        columns=["row", "solved", "high"],
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


def test_a_cost_that_is_missing_in_a_form_is_not_the_cost_of_the_other_form(suite_frames):
    others = suite_frames.costs.query("not causal or row != 'softmax'")
    of = suite_frames.tables(costs=others)
    assert best_rows(of, "recall") == ["softmax"]
    lines = {line[0]: line for line in table_in(f"\n{readme_table(of)}", "\n")}
    assert lines["softmax"][2:] == ["–"]


def test_a_terminal_has_no_table_of_a_form_without_results(found):
    empty = {**found.matrix, "causal": found.matrix["causal"][:0]}
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
    assert len(lines) == 6 and {text for line in lines[2:] for text in line[1:]} == {"–"}


STEPS = (1000, 2000, 3000, 3500, 4000, 4500, 5000)

CURVES = {
    "softmax": (100,) * 7, "primal": (0, 10, 20, 25, 30, 35, 40),
    "linear[chunk=8]": (30,) * 7, "none": (10,) * 7,
}  # fmt: skip


@pytest.fixture
def judged(suite_frames):
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
    return suite_frames.tables(suite=suite, runs=runs)


def test_each_entry_has_its_seeds_at_the_ceiling_and_an_arrow_while_it_rises(judged):
    entries = first_column(page_of(judged))
    assert entries["softmax"].startswith("**98.2** <sub>[") and "↑" not in entries["softmax"]
    assert entries["primal"].endswith("] ↑</sub>") and not entries["primal"].startswith("*")
    assert entries["none"].startswith("9.9 ") and "↑" not in entries["none"]
    some = judged.answers.assign(solved=False, reached=2, runs=3, rising=False)
    page = page_of(judged._replace(answers=some))
    assert first_column(page)["softmax"].endswith("] 2/3</sub>")


def test_the_rows_that_solve_a_question_are_its_best_and_the_readme_has_them(judged):
    # Nobody solves the other question: its best rows share the letter of the best mean.
    answers = judged.answers.set_index(["question", "row"])
    letters = answers.loc["copy", "rank_group"]
    assert answers.loc["copy", "best"].to_dict() == letters.str.contains("A").to_dict()
    assert answers.loc["recall", "best"].to_dict() == answers.loc["recall", "solved"].to_dict()
    assert best_rows(judged, "recall") == ["softmax"]
    both = judged.answers.assign(best=judged.answers["row"].isin(["primal", "linear[chunk=8]"]))
    of = judged._replace(answers=both)
    assert best_rows(of, "recall") == ["primal", "linear[chunk=8]"]
    named = [line[0] for line in table_in(f"\n{readme_table(of)}", "\n")[2:]]
    assert named == ["softmax", "primal", "linear[chunk=8]", "none", "strongest baseline"]


def test_an_entry_without_all_seeds_says_so(suite_frames, judged):
    runs = suite_frames.runs
    seeds = {"softmax": (1, 2, 4), "primal": (4,), "linear[chunk=8]": (1, 2, 3, 4), "none": ()}
    kept = [seed in seeds[row] or question == "copy" for seed, row, question in
            zip(runs["seed"], runs["row"], runs["question"], strict=True)]  # fmt: skip
    one_rate = runs.assign(grid=runs["grid"].str.replace("0.001, ", ""))
    runs = one_rate[kept].assign(declared=runs["question"].map(declared(judged.suite)))
    of = suite_frames.tables(suite=judged.suite, runs=runs)
    entries = first_column(page_of(of))
    assert entries["softmax"].endswith("] 2 of 3 seeds</sub>")
    # Seeds differ by more than test examples: of one there is no interval.
    assert entries["primal"].endswith(" <sub>trial, 1 seed</sub>")
    for text in (terminal(of), files(of, latex=True)["mine.tex"].decode()):
        causal = re.split("(?:causal|bidirectional) (?:questions|attention)", text)[1]
        scores = {line.split()[0]: line for line in causal.splitlines() if line.strip()}
        assert "2 of 3 seeds" in scores["softmax"] and "trial, 1 seed" in scores["primal"]
        assert "seed" not in scores["linear[chunk=8]"]


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


def test_the_sentences_name_the_leader_those_as_good_and_the_cheapest(judged):
    assert sentences(judged)[1] == "copy: primal leads with 72.0."
    of_two = judged.answers.eval("row in ['primal', 'softmax'] and question == 'copy'")
    equal = judged.answers.assign(best=judged.answers["best"] | of_two)
    recall, copy, causal, other = sentences(judged._replace(answers=equal))
    assert recall.startswith("recall: softmax leads with 98.2")
    assert copy.startswith("copy: primal has 72.0, the best mean. softmax is within 2 % of it,")
    assert "The cheapest of these is primal, at 0.90 of" in copy
    assert "recall (70.2). A layer takes 1.8 of" in causal
    assert "among the best at copy (72.0). A layer takes 0.90 of" in other
    alike = judged._replace(pairs=judged.pairs.assign(p_holm=1.0))
    assert ". 1 other is not told apart from primal" in sentences(alike)[1]
    unbeaten = judged.answers.assign(answered=False, at_baseline=True, best=False)
    *_, causal, other = sentences(judged._replace(answers=unbeaten))
    *_, same, _ = sentences(alike._replace(answers=unbeaten))
    assert "not told apart from the best at recall (70.2)" in same
    # It has the best mean of copy itself.
    assert "behind the best at recall (70.2)" in causal
    assert "no better than a baseline at copy (72.0)" in other
    # `none` stands for the convolution: it is named where it is better and no variant is above it.
    as_conv = unbeaten.replace({"row": {"none": "conv"}})
    assert "recall (70.2)" in sentences(judged._replace(answers=as_conv))[-2]
    as_conv.loc[as_conv["row"] == "conv", ["mean", "text"]] = [99.0, "99.0"]
    assert "recall (70.2; conv: 99.0)" in sentences(judged._replace(answers=as_conv))[-2]
    answered = as_conv.assign(answered=True)
    assert "; conv" not in sentences(judged._replace(answers=answered))[-2]
    # A difference that was not tested says nothing of the best.
    *_, causal, _ = sentences(judged._replace(answers=unbeaten, pairs=judged.pairs[:0]))
    assert "no better than a baseline at recall (70.2)" in causal
    is_control = judged.answers.eval("row == 'none' and question == 'copy'")
    better = {"mean": 99.0, "text": "99.0"}
    control = judged.answers.assign(**{
        name: judged.answers[name].where(~is_control, value) for name, value in better.items()
    })  # fmt: skip
    assert ". none, a control, has 99.0" in sentences(judged._replace(answers=control))[1]
    # A better mean of one seed is named as such.
    one = judged.answers.eval("row == 'primal' and question == 'copy'")
    few = equal.assign(seeds=equal["seeds"].where(~one, 1), best=equal["best"] & ~one)
    for answers, start in (
        (few, "copy: primal has 72.0, of one seed"),
        (judged.answers.assign(better="lower"), "copy: softmax has 70.2"),
    ):
        assert sentences(judged._replace(answers=answers))[1].startswith(start)
    assert sentences(judged._replace(answers=judged.answers.assign(text=""))) == []


def test_a_page_has_the_options_of_variants_of_each_question(judged):
    named = {"softmax": {"scale": 2, "gate": "channel"}, "+primal": {"rank": 3}, "soft": {"a": 1}}
    found = _options(named, ["softmax", "none+primal"])
    assert found == "softmax scale=2, gate=channel; +primal rank=3"
    assert _options(named, ["primal", "soft"]) == "soft a=1"
    assert [question["options"] for question in about(judged)] == ["–", "–"]


def test_a_page_counts_the_pairs_told_apart_where_there_is_a_mean_of_tasks(judged):
    names = [("a", "none", 0.05), ("a", "b", 0.06), ("none", "b", 0.06), ("a", "c", 0.01)]
    pairs = pd.DataFrame([
        {"question": question, "first": first, "second": second, "p_holm": p}
        for question, several in (("recall", names), ("copy", names[1:2]))
        for first, second, p in several
    ])  # fmt: skip
    of = judged._replace(pairs=pairs)
    averaged = of._replace(
        suite=of.suite.model_copy(update={"average": True}),
        matrix={
            form: lines.assign(**dict.fromkeys(["mean", "mean.low", "mean.high"], 1.0))
            for form, lines in of.matrix.items()
        },
    )
    assert not any("told apart:" in text for text in sentences(of))
    every, against = sentences(averaged)[-2:]
    assert every == "Pairs told apart: recall 2 of 4, copy 0 of 1."
    assert against == "Against no attention (none): recall 1 of 2."


def test_a_suite_with_a_mean_compares_primal_with_softmax_and_names_ties(judged):
    columns = ["question", "first", "second", "difference", "low", "high", "p_holm"]
    pairs = pd.DataFrame([
        ("recall", "softmax", "primal", 3.4, 2.0, 4.8, 0.01),
        ("copy", "primal", "softmax", 9.2, 5.8, 12.5, 1.0),
    ], columns=columns)  # fmt: skip
    means = {"softmax": (40.0, 39.0, 41.0), "primal": (42.0, 40.5, 43.5), "none": (9.0, 8.0, 10.0)}
    of_means = pd.DataFrame(means, index=["mean", "mean.low", "mean.high"]).T
    column = f"time.{judged.suite.cost.longest_length}"
    matrix = {form: lines.join(of_means).assign(**{column: 1.0})
              for form, lines in judged.matrix.items()}  # fmt: skip
    matrix["causal"].loc["primal", column] = 0.9
    matrix["bidirectional"]["mean"] = float("nan")
    averaged = judged._replace(
        suite=judged.suite.model_copy(update={"average": True}), matrix=matrix, pairs=pairs
    )
    found = "\n".join(sentences(averaged))
    assert "Primal-Attention less softmax (planned), causal: recall -3.4 [-4.8, -2.0].\n" in found
    assert (
        "Primal-Attention less softmax (planned), bidirectional: copy +9.2 [+5.8, +12.5]." in found
    )
    start = "Mean over the tasks: primal has 42.0, the best; its interval overlaps with softmax"
    assert f"{start}. At" in found
    matrix["causal"].loc["none", "mean.high"] = 40.5
    assert f"{start}, and with none, without attention. At" in "\n".join(sentences(averaged))
    matrix["causal"].loc["none", ["mean", "mean.low", "mean.high"]] = [50.0, 49.0, 51.0]
    assert f"{start}. none, without attention, has 50.0. At" in "\n".join(sentences(averaged))
    matrix["causal"].loc["none", ["mean", "mean.low", "mean.high"]] = [40.0, 39.0, 40.5]
    matrix["causal"].loc["softmax", "mean.high"] = 40.4
    alone = start.replace("softmax", "none, without attention")
    assert f"{alone}. At" in "\n".join(sentences(averaged))
    assert "are the cheapest, 0.90 to 1.0 of softmax's time" in found


def test_a_readme_has_the_experiments_beside_the_published_accuracies(judged):
    lines = [{"changes": "copy, steps 8", "row": row, "text": text, "outdated": False, "seeds": 1}
             for row, text in (("primal", "50"), ("softmax", "40"))]  # fmt: skip
    of = judged._replace(suite=judged.suite.model_copy(update={"average": True}), experiments=lines)
    form = of.forms["copy"]
    printed = of.matrix[form].assign(**{"copy.published": "–"})
    printed.loc["primal", "copy.published"] = "43.0 / 44.0"
    found = findings.readme_sentences(of._replace(matrix={**of.matrix, form: printed}))
    experiments = "Copy, steps 8: primal 50 (published: 43.0), softmax 40."
    assert found[-1] == f"Experiments of one seed. {experiments}"
    lines[0]["seeds"] = 2
    found = findings.readme_sentences(of._replace(matrix={**of.matrix, form: printed}))
    assert found[-1] == f"Experiments. {experiments}"


def test_a_better_mean_of_one_seed_is_no_reason_to_be_among_the_few_rows(judged, monkeypatch):
    monkeypatch.setattr(findings, "FEW", 1)
    monkeypatch.setattr(findings, "ALWAYS", ())
    form = judged.forms["copy"]
    (leader,) = findings.few_rows(judged, form)
    is_leader = judged.answers["row"] == leader
    one = judged.answers.assign(seeds=judged.answers["seeds"].where(~is_leader, 1), best=False)
    assert findings.few_rows(judged._replace(answers=one), form) != [leader]


def test_of_equal_results_the_fastest_is_among_the_few_rows(judged, monkeypatch):
    monkeypatch.setattr(findings, "FEW", 1)
    monkeypatch.setattr(findings, "ALWAYS", ())
    for mean, expected in ((72.0, "primal"), (60.0, "softmax")):
        means = judged.answers["mean"].where(judged.answers["mean"].isna(), 72.0)
        means = means.mask(judged.answers["row"].eq("primal"), mean)
        equal = judged.answers.assign(mean=means, best=False)
        assert few_rows(judged._replace(answers=equal), "bidirectional") == [expected]
    yours = judged._replace(answers=equal, added=("primal",))
    assert few_rows(yours, "bidirectional") == ["primal"]


def test_probes_have_a_table_with_the_largest_trained_size_that_is_solved(judged):
    page = page_of(judged)
    head, _, *lines = table_in(page, "## recall: each size")
    assert head == ["attention", "4 pairs in 32", "8 pairs in 64", "8 pairs in 128, not trained",
                    "pairs at 90 %"]  # fmt: skip
    solved = {line[0]: line[-1] for line in lines}
    assert solved == {"softmax": "8", "primal": "0", "linear[chunk=8]": "0", "none": "0"}


@pytest.mark.parametrize(("means", "trained", "expected"), [
    ((95, 91, 20), (True, True, True), 8), ((95, 20, 99), (True, True, False), 4),
    ((95, 20, 99), (True, True, True), 16), ((90, 89.9, 0), (True, True, True), 4),
    ((80, 20, 0), (True, True, True), 0), ((95, 95, 95), (False, False, False), np.nan),
])  # fmt: skip
def test_the_solved_size_is_the_largest_trained_one_of_at_least_90(means, trained, expected):
    probes = pd.DataFrame({
        "row": "a", "question": "recall", "mean": means, "trained": trained,
        "probe": ["4 pairs in 32", "8 pairs in 64", "16 pairs in 64"],
    })  # fmt: skip
    found = most_solved(probes)
    assert found["recall", "a"] == pytest.approx(expected, nan_ok=True)


PROBE = "recall (8 pairs in 128)"


@pytest.fixture
def long(suite_frames, judged):
    """Recall with a longest probe: softmax, best before, falls to linear there, the others stay."""
    suite, runs, *_ = suite_frames
    first, *others = judged.suite.questions
    first = first.model_copy(update={"longest_probe": "8 pairs in 128"})
    suite = suite.model_copy(update={"questions": (first, *others)})
    of_recall = runs[runs["question"] == "recall"].set_index(["row", "seed"])["sample"]
    other = {"softmax": "linear[chunk=8]"}
    probes = [
        {"8 pairs in 64": of_recall[row, seed],
         "8 pairs in 128": of_recall[other.get(row, row), seed]} if name == "recall" else {}
        for row, seed, name in zip(runs["row"], runs["seed"], runs["question"], strict=True)
    ]  # fmt: skip
    curves = [[*zip(STEPS, CURVES[row], strict=True)] for row in runs["row"]]
    runs = runs.assign(probes=probes, groups=[{}] * len(runs), evaluations=curves,
                       declared=runs["question"].map(declared(suite)))  # fmt: skip
    return suite_frames._replace(suite=suite, runs=runs)


def column_of(of):
    head, _, *lines = table_in(page_of(of), "## Causal attention")
    return {line[0]: line[head.index(PROBE)] for line in lines}


def test_the_longest_probe_has_a_column_of_its_own_results(long):
    of = long.tables()
    answers = of.answers.set_index(["question", "row"]).loc["recall"]
    low, primal = answers.loc["linear[chunk=8]"], answers.loc["primal"]
    assert answers.loc["softmax", "longest.text"] == low["longest.text"] == low["text"]
    assert primal["longest.interval"] == primal["interval"]
    assert answers.index[answers["longest.best"]].tolist() == ["primal"]
    found = column_of(of)
    assert found["primal"].startswith(f"**{primal['text']}** <sub>[")
    assert found["softmax"].startswith(f"{low['text']} <sub>[") and found["none"][0] != "*"
    assert PROBE in terminal(of)
    # Softmax and linear alone have the same answers.
    assert re.findall(r"; (.*) \(8 pairs in 128\) \|$", page_of(of), re.M) == ["5 of 6"]
    assert len(of.longest_pairs) == 6 and {*of.longest_pairs["probe"]} == {"8 pairs in 128"}


def test_the_longest_probe_of_one_seed_has_no_interval_and_no_rank(long):
    of = long.tables(runs=long.runs[long.runs["seed"] == 1])
    found = column_of(of)
    assert (
        found["primal"]
        == of.answers.set_index(["question", "row"]).at[("recall", "primal"), "longest.text"]
    )
    assert not of.answers["longest.best"].any() and of.longest_pairs.empty


def test_a_probe_that_no_run_has_is_named_and_has_no_column(long):
    first, *others = long.suite.questions
    wrong = first.model_copy(update={"longest_probe": "8 pair in 128"})
    of = long.tables(suite=long.suite.model_copy(update={"questions": (wrong, *others)}))
    assert of.notes[0].startswith("recall: no run has the probe '8 pair in 128'")
    assert "8 pair in 128" not in page_of(of).partition("## Questions")[0].partition("\n- ")[0]


@pytest.mark.parametrize(("best", "timed", "text"), [
    ({"primal": 71.0, "softmax": 70.0}, True, "primal has {}; the cheapest within 2 % is softmax."),
    ({"primal": 71.0, "softmax": 70.0}, False, "primal has {}."), ({}, True, "primal has {}."),
])  # fmt: skip
def test_the_findings_name_the_best_of_the_longest_probe(long, best, timed, text):
    of = long.tables(**({} if timed else {"costs": long.costs[:0]}))
    if best:
        changed = {"longest.best": of.answers["row"].isin(best),
                   "longest.mean": of.answers["row"].map(best)}  # fmt: skip
        of = of._replace(answers=of.answers.assign(**changed))
    primal = of.answers.set_index(["question", "row"]).at[("recall", "primal"), "longest.text"]
    found = [of.partition(". With 8 pairs in 128 ")[2] for of in sentences(of)]
    assert [of for of in found if of] == [text.format(primal)]


def test_the_advisor_and_the_figures_rank_by_the_longest_probe(long):
    of = long.tables()
    answers = of.answers.set_index(["question", "row"]).loc["recall"]
    values = advice.table(of.answers, of.seeds, long.costs, of.suite, described())
    rows = {row["row"]: row for row in values["rows"]}
    assert rows["primal"]["groups"]["recall"] == 1 < rows["softmax"]["groups"]["recall"]
    low = answers.loc["linear[chunk=8]", "text"]
    assert rows["softmax"]["texts"]["recall"].partition(" ")[0] == low
    assert values["heads"]["recall"] == PROBE and values["questions"]["recall"] == "recall"
    assert values["asks"]["recall"].endswith(" The results are of 8 pairs in 128.")
    # What solves the trained lengths does not solve these.
    assert answers.loc["softmax", "solved"] and rows["softmax"]["solved"]["recall"] == 0
    (axes,) = heat_map.draw(of).axes
    drawn = [" ".join(text.get_text().split()) for text in axes.texts]
    assert drawn.count(PROBE) == 1 and drawn.count(low) == 3
    assert drawn[-1].endswith(f"The lightest is the worst result of {PROBE}.")


def test_the_figure_of_scaling_needs_one_size_at_three_lengths(judged):
    assert scaling.lines(judged).empty
    probes = judged.probes.replace({"probe": {"4 pairs in 32": "8 pairs in 32"}})
    judged = judged._replace(probes=probes)
    found = scaling.lines(judged)
    points = found.set_index(["panel", "row", "x"])["y"].sort_index()
    recall = probes.set_index(["row", "probe"])["mean"]
    assert points["recall", "softmax"].to_dict() == {
        tokens: recall["softmax", f"8 pairs in {tokens}"] for tokens in (32, 64, 128)
    }
    times = judged.matrix["causal"].filter(regex=r"^time\.").loc["primal"]
    assert points["time", "primal"].to_list() == times.dropna().to_list()
    titles = dict(zip(found["panel"], found["title"], strict=True))
    assert titles["recall"] == "recall, 8 pairs"
    assert titles["state"].startswith("recall, 8 pairs in ")
    assert f"({judged.suite.name}-scaling.svg)" in page_of(judged)
    labels = [axes.get_ylabel() for axes in scaling.draw(found).axes]
    assert labels[1] == "recall, 8 pairs, accuracy, %" and len(labels) == 4
    without_costs = scaling.draw(found[found["panel"] == "recall"])
    assert [axes.get_ylabel() for axes in without_costs.axes] == [labels[1]]


def test_rows_without_a_result_are_listed_unless_they_lack_its_form(suite_frames):
    suite, runs, baselines, costs = suite_frames
    catalogue = described()
    variants = [{**of, "bidirectional": of["name"] != "linear"} for of in catalogue["variants"]]
    without = runs.query("row != 'primal' and not (row == 'none' and question == 'copy')")
    found = tables(suite, without, baselines, costs, {**catalogue, "variants": variants})
    assert [*found.missing] == [("primal", "recall"), ("primal", "copy"), ("none", "copy")]
    assert "Entries without results: 3." in page_of(found)
