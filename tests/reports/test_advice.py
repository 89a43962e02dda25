"""The advisor: its rules over a table that can be checked by hand, and its table of a store."""

import json
import shutil
from functools import cache
from itertools import product
from typing import Any

import pandas as pd
import pytest

import harness
from harness.records import suites
from harness.records.answers import ClusterValues, CorrectAnswers
from harness.records.families import is_control
from reports import suite_results
from reports.advice import advice_text, advise, bytes_in, bytes_text, choices, table
from reports.advice.rules import OF_NEEDS, best, key_of
from reports.advice.table import _bounds, unfinished
from reports.layer_costs import FORMS, PYTORCH
from reports.statistics import score_groups
from reports.suite_results import SuiteResults, results
from tests.conftest import one_line
from tests.suite_frames import published_costs, suite_frames

Values = dict[str, Any]


def row(
    name: str, rank_group: int, times: dict[int, float], memory: float = 100.0, **fields: Any
) -> Values:
    """A row that answers `recall`; its timings differ by 1 %."""
    points = [[n, t, 0.99 * t, 1.01 * t, memory, t / 1000] for n, t in times.items()]
    return {
        "row": name, "attention": name, "parts": [name], "set": [], "family": "", "causal": 1,
        "bidirectional": 1, "uses": {"bidirectional": ["layer"]}, "linear": 1, "recurrent": 1,
        "points": {"train": points}, "inferred": 0, "crossovers": {}, "unfinished": {},
        "bounds": [], "states": {"recall": "ok"}, "solved": {"recall": 0},
        "texts": {"recall": "90.0"}, "groups": {"recall": rank_group}, "seeds": {"recall": 3},
        "ranges": {"recall": [-rank_group, -rank_group, ""]}, **fields,
    }  # fmt: skip


def table_with(*rows: Values) -> Values:
    lengths = sorted({int(point[0]) for row in rows for point in row["points"].get("train", [])})
    return {
        "suite": "laptop@3", "questions": {"recall": "recall", "state": "state"},
        "usable": ["recall"], "not_run": [], "notes": [], "units": {"train": "ratio"},
        "forms": {"state": "causal", **dict.fromkeys(("recall", "compose", "image"), FORMS[1])},
        "steps": {"recall": 600, "state": 500}, "question_notes": {"recall": "More steps help."},
        "asks": {"recall": "Give the value.", "image": "Name the image."}, "unbeaten": {},
        "lengths": {"train": lengths}, "rows": list(rows),
        "setting": {"level": "layer", "dim": 64, "heads": 2, "precision": "fp32",
                    "batch": {"train": "1"}},
    }  # fmt: skip


def query(length: int = 1024, **fields: Any) -> Values:
    return {"length": length, "pass": "train", "memory": None, "needs": ["recall"], **fields}


def names(result: Values) -> list[str]:
    return [member["row"] for member in result["members"]]


def test_the_pareto_set_trades_accuracy_time_and_memory():
    rows = (
        row("exact", 1, {1024: 1.0}), row("fast", 2, {1024: 0.1}), row("worse", 2, {1024: 0.5}),
        row("small", 3, {1024: 2.0}, memory=1.0),
    )  # fmt: skip
    found = advise(table_with(*rows), query())
    assert names(found) == ["fast", "exact", "small"]
    assert found["dominated"] == ["worse"]
    small = advise(table_with(*rows), query(memory=50.0))
    assert names(small) == ["small"]
    assert small["excluded"] == {"needs more memory": ["exact", "fast", "worse"]}


def test_ties_are_named():
    first = row("a", 1, {1024: 1.0})
    found = advise(table_with(first, row("b", 1, {1024: 0.999})), query())
    assert names(found) == ["b"]
    assert found["members"][0]["tied"] == ["a"]
    for group, time in ((2, 1.0), (1, 1.5)):  # its result or its time differs
        (member, *_) = advise(table_with(first, row("b", group, {1024: time})), query())["members"]
        assert (member["row"], member["tied"]) == ("a", [])


def test_between_two_lengths_costs_are_linear_in_logarithms_and_nowhere_else():
    values = table_with(row("a", 1, {256: 1.0, 4096: 0.25}))
    assert advise(values, query(1024))["members"][0]["time"] == pytest.approx(0.5)
    for length in (255, 4097):
        found = advise(values, query(length))
        assert found["refused"] and not found["members"]
        assert f"--lengths {length} " in found["commands"][0]
    assert advise(values, query(**{"pass": "decode"}))["refused"]


def test_rows_without_evidence_runs_or_costs_are_left_out_with_the_reason():
    rows = (
        row("ok", 1, {1024: 1.0}), row("rule", 1, {1024: 1.0}, states={"recall": "baseline"}),
        row("new", 1, {1024: 1.0}, states={"recall": "missing"}), row("slow", 1, {}),
        row("stopped", 1, {}, unfinished={"train": 512}), row("future", 1, {1024: 1.0}, causal=0),
        row("past", 1, {1024: 1.0}, bidirectional=0, states={"recall": "impossible"}),
        row("part", 1, {1024: 0.1}, states={"recall": "part"}),
    )  # fmt: skip
    found = advise(table_with(*rows), query())
    assert found["excluded"] == {
        "no form for it": ["past"], "not separably better than a baseline": ["rule"],
        "not run": ["new"], "not measured": ["slow"], "did not finish": ["stopped"],
        "runs missing": ["part"],
    }  # fmt: skip
    assert [command.split()[:4] for command in found["commands"]] == [
        ["harness", "cost", "--attention", "slow"], ["harness", "run", "--suite", "laptop@3"],
    ]  # fmt: skip
    forms = {"recall": "causal", "state": "causal"}
    causal = table_with(*rows) | {"lengths": {"train causal": [1024]}, "forms": forms}
    assert advise(causal, query())["excluded"]["no form for it"] == ["future"]
    # Of several questions, that which is the reason is named.
    both = [{**row, "states": {**row["states"], "image": "ok"}} for row in rows[1:3]]
    values = table_with(*both) | {"usable": ["recall", "image"]}
    assert advise(values, query(needs=["recall", "image"]))["excluded"] == {
        "not run": ["new (recall)"], "not separably better than a baseline": ["rule (recall)"]
    }  # fmt: skip


def test_a_control_is_never_usable():
    answers = made().answers()
    answers.loc[answers["row"] == "none", ["answered", "at_baseline", "best"]] = [True, False, True]
    rows = {row["row"]: row["states"] for row in table_of(made(), answers, cost=False)["rows"]}
    assert {*rows["none"].values()} <= {"control", "missing", "failed", "part", "impossible"}
    assert "control" in rows["none"].values() and "ok" in rows["softmax"].values()


def test_a_question_that_no_row_answers_is_not_used():
    states = {"recall": "ok", "compose": "baseline", "image": "missing"}
    values = table_with(row("a", 1, {1024: 1.0}, states=states)) | {"not_run": ["image"]}
    found = advise(values, three := query(needs=["recall", "compose", "image"]))
    assert names(found) == ["a"] and not found["excluded"]
    assert (found["unanswered"], found["not_run"]) == (["compose", "image"], ["image"])
    assert found["run"] == "harness run --suite laptop@3 --questions image"
    assert found["run"] in advice_text(values, three, found, why=True)
    values["questions"] |= {"compose": "composition"}
    values |= {"unbeaten": {"compose": {"baseline": "a rule (33.3)", "best": "40, of a"}}}
    refused = [advise(values, query(needs=needs))["refused"]
               for needs in (["image", "compose"], ["image"])]  # fmt: skip
    assert refused[0].endswith("than a rule (33.3) at composition; the best mean is 40, of a")
    assert refused[1] == "no variant has results on these questions"


def test_results_of_one_seed_inferred_costs_and_bounds_in_the_setting_asked_are_marked():
    mean = row("a+b", 1, {1024: 1.0}, inferred=1, bounds=["decode", "train causal"])
    single = row("c", 2, {1024: 0.5}, seeds={"recall": 1}, bounds=["train"])
    found = advise(of := table_with(mean, single), query())
    assert found["inferred"] == ["a+b"]
    assert {of["row"]: of["bound"] for of in found["members"]} == {"a+b": 0, "c": 1}
    lines = advice_text(of, query(), found, why=True).splitlines()
    marks = {line.split()[0]: "1 seed" in line for line in lines if line}
    assert (marks["a+b"], marks["c"]) == (False, True)


def test_one_row_is_recommended_the_fastest_of_the_best_and_where_it_can_be_used():
    best, fast = row("best", 1, {1024: 0.8}), row("fast", 2, {1024: 0.1})
    values = table_with(fast, best, row("slow", 1, {1024: 0.9}, memory=1.0))
    found = advise(values, query())
    assert names(found) == ["fast", "best", "slow"] and found["recommended"] == "best"
    assert found["members"][1]["uses"] == ["layer"]
    text = " ".join(advice_text(values, query(), found).split())
    figures = ("Use best", "0.80", "100 B", "1,024", "slow (0.90), fast (0.10)")
    assert all(of in text for of in figures) and "More steps help." not in text
    text = advice_text(values, query(), found, why=True)
    assert "PyTorch layer" in text and "More steps help." in text
    assert advise(table_with(), query())["recommended"] == ""


@pytest.mark.parametrize(("groups", "times", "expected"), [
    ((1, 2, 2), (1.0, 0.5, 0.6), "a"), ((1, 1, 2), (1.0, 0.5, 0.1), "b"),
    ((3, 2, 2), (0.1, 0.5, 0.6), "b"),
])  # fmt: skip
def test_the_fastest_row_of_the_best_groups_is_recommended(groups, times, expected):
    rows = [row(name, group, {1024: time}, memory=memory)
            for name, group, memory, time in zip("abc", groups, (100.0, 50.0, 40.0), times,
                                                 strict=True)]  # fmt: skip
    assert advise(table_with(*rows), query())["recommended"] == expected


def test_rows_that_solve_a_question_are_tied_and_differ_from_one_that_does_not():
    ends = {"a": [99, 99, "A"], "b": [98, 98, "B"], "c": [98, 99, "AB"]}
    rows = [row(name, 1, {1024: 1.0}, ranges={"recall": ends[name]},
                solved={"recall": int(name != "c")}) for name in ends]  # fmt: skip
    members = {of["row"]: of["tied"] for of in advise(table_with(*rows), query())["members"]}
    assert members == {"a": ["b"], "b": ["a"], "c": []}
    # One needed question on which two rows differ is enough.
    both = [{**of, **{name: {**of[name], "image": of[name]["recall"]} for name in OF_NEEDS},
             "states": {"recall": "ok", "image": "ok"},
             "ranges": {**of["ranges"], "image": [end, end, ""]},
             "solved": {"recall": 1, "image": 0}}
            for end, of in ((9, rows[0]), (7, rows[1]))]  # fmt: skip
    values = table_with(*both) | {"usable": ["recall", "image"]}
    found = advise(values, query(needs=["recall", "image"]))
    assert [of["tied"] for of in found["members"]] == [[], []]


def test_the_runners_up_are_the_best_results_and_then_the_fastest():
    costs = {"a": (1, 0.5, 90.0), "b": (2, 0.3, 95.0), "c": (1, 0.9, 50.0), "d": (2, 0.2, 99.0)}
    rows = [row(name, group, {1024: time}, memory=memory)
            for name, (group, time, memory) in costs.items()]  # fmt: skip
    values, asked = table_with(*rows), query()
    found = advise(values, asked)
    assert names(found) == ["d", "b", "a", "c"] and found["recommended"] == "a"
    assert "Runners-up: c (0.90), d (0.20)." in " ".join(advice_text(values, asked, found).split())
    values["unbeaten"] = {"recall": {"baseline": "a rule (99)", "best": ""}}
    lines = advice_text(values, asked, found).splitlines()
    assert [line.split()[0] for line in lines[4:8]] == ["a", "c", "d", "b"]
    assert lines[-3:-1] == [
        "recall: Give the value.", "No variant is separably better than a rule (99) at recall.",
    ]  # fmt: skip


def test_the_worst_result_counts_then_the_sum_and_then_the_time():
    groups = {"fast": ([1, 3], 0.1), "slow": ([2, 2], 0.5), "best": ([2, 1], 0.9)}
    members = [{"row": name, "groups": of, "time": time} for name, (of, time) in groups.items()]
    assert best(members)["row"] == "best"


def test_the_site_recommends_by_the_largest_memory_that_is_left():
    costs = (("a", 0.5, 300.0), ("b", 0.8, 200.0), ("c", 0.9, 100.0))
    rows = [row(name, 1, {1024: time}, memory=memory) for name, time, memory in costs]
    (found,) = (of for of in choices(table_with(*rows))["results"].values() if of["members"])
    assert {of["row"]: of["recommended"] for of in found["members"]} == {n: n for n in "abc"}
    assert all(of["sentence"].startswith(f"Use {of['row']} ") for of in found["members"])


CLAIMS = {
    **dict.fromkeys(("causal", "bidirectional", "linear", "recurrent"), True),
    "uses": {"causal": ["layer"], "bidirectional": ["layer"]},
}


@cache
def made() -> SuiteResults:
    suite, runs, baselines = suite_frames()
    return results(runs, suite, baselines)


def table_of(found: SuiteResults, answers=None, *, cost=True, causal=(), **claims) -> Values:
    """The table of results; variants claim everything but what `claims` deny."""
    suite, _, _ = suite_frames()
    answers = found.answers() if answers is None else answers
    variants = [{"name": row.attention, **CLAIMS, **claims.get(row.attention, {})}
                for row in suite.rows if "+" not in row.attention]  # fmt: skip
    tasks = [{"name": q.task, "causal": q.name in causal} for q in suite.questions]
    costs = published_costs()[: None if cost else 0]
    catalogue = {"variants": variants, "tasks": tasks}
    return table(answers, found.seeds, costs, suite, catalogue)


def test_where_less_is_better_errors_have_the_groups_of_accuracies(monkeypatch):
    # Bold is near the best mean, as a share of it: that of an error is another.
    monkeypatch.setattr(suite_results, "NEAR", 0)
    suite, runs, baselines = suite_frames()
    wrong = [
        CorrectAnswers.pack((answers.cluster_sums() == 0).tolist(), [1] * answers.count)
        for answers in runs["sample"]
    ]
    errors = runs.assign(better="lower", score=100 - runs["score"], sample=wrong)
    rules = baselines.assign(score=100 - baselines["score"])
    tables = (table_of(found)["rows"] for found in (made(), results(errors, suite, rules)))
    for row, other in zip(*tables, strict=True):
        assert (row["states"], row["groups"]) == (other["states"], other["groups"])


def test_losses_are_ranked_among_themselves_where_a_baseline_is_better_than_all():
    suite, runs, baselines = suite_frames()
    losses = [
        ClusterValues(sizes=(1,) * answers.count, sums=(*(1 + (answers.cluster_sums() == 0)),))
        for answers in runs["sample"]
    ]
    # A model without attention is one by its record, whatever its name.
    models = ("conv", "none", "linear")
    runs = runs.assign(
        better="lower", scale=1.0, unit="nats", sample=losses, baseline=runs["row"].isin(models)
    )
    rules = [baselines.assign(score=0.5), baselines.assign(name="constant", score=3.0)]
    found = results(runs, suite, pd.concat(rules))
    answers, values = found.answers(), table_of(found)
    compared = answers[answers["seeds"] > 1]
    assert compared["at_baseline"].all() and (compared["rank_group"] != "").all()
    assert values["usable"] == [question.name for question in suite.questions]
    unbeaten = values["unbeaten"]
    of_made = made().answers()
    beaten = {*of_made.loc[of_made["answered"] & ~of_made["attention"].map(is_control), "question"]}
    assert beaten and not beaten & {*table_of(made())["unbeaten"]}
    assert {*unbeaten} == {*values["usable"]}
    assert {of["baseline"] for of in unbeaten.values()} == {"most frequent (0.500)"}
    assert values["asks"] == {question.name: question.asks for question in suite.questions}
    for name, of in unbeaten.items():
        rows = compared[(compared["question"] == name) & ~compared["attention"].map(is_control)]
        first = rows.loc[rows["mean"].idxmin()]
        assert of["best"] == f"{first['text']} {first['interval']}, of {first['row']}"
    rows = {row["row"]: row["states"] for row in values["rows"]}
    with_attention = compared[~compared["row"].isin(models)]
    assert {rows[row][name] for row, name in with_attention[["row", "question"]].values} == {"ok"}
    assert "ok" not in {state for model in models for state in rows[model].values()}


def test_the_table_of_a_store_has_the_groups_and_states_of_the_matrix():
    values, answered = table_of(made()), made().answers()
    rows = {row["row"]: row for row in values["rows"]}
    assert len(rows) == len(suite_frames()[0].rows)
    groups = {}
    for name, of in answered[answered["answered"]].set_index("row").groupby("question"):
        later = {row: 1 + group for row, group in score_groups(of[~of["best"]]).items()}
        groups[name] = dict.fromkeys(of.index[of["best"]], 1) | later
        assert of["best"].any()
    assert max(max(of.values()) for of in groups.values()) > 1
    for answer in answered.to_dict("records"):
        row, name = rows[answer["row"]], answer["question"]
        is_ok = answer["answered"] and not (answer["part"] and answer["seeds"] < 2)
        assert (row["states"][name] == "ok") == is_ok
        if is_ok:
            assert row["groups"][name] == groups[name][answer["row"]]
        if answer["text"]:
            assert row["seeds"][name] == answer["seeds"]
    assert rows["softmax+primal"]["uses"] == CLAIMS["uses"]
    assert [label for label, row in rows.items() if row["inferred"]] == ["softmax+primal"]
    both, softmax, primal = (
        {point[0]: point[1] for point in rows[label]["points"]["decode causal"]}
        for label in ("softmax+primal", "softmax", "primal")
    )
    assert both == pytest.approx({n: (softmax[n] + primal[n]) / 2 for n in both})
    assert rows["softmax+primal"]["parts"] == ["softmax", "primal"]
    asked = query(4096, needs=["recall"])
    assert advice_text(values, asked, advise(values, asked))


def test_costs_of_pytorch_operations_are_bounds_but_for_decoding():
    keys = {of["row"]: of["bounds"] for of in table_of(made())["rows"]}
    assert not any(key.startswith("decode") for of in keys.values() for key in of)
    assert {"train", "train causal"} <= {*keys["linear"]} and not keys["retention"]
    # The mean over layers is a bound if one of them is.
    assert ("train" in keys["softmax"], "train" in keys["softmax+primal"]) == (False, True)


def test_a_question_without_a_form_of_a_row_is_impossible_and_one_without_baselines_not_run():
    forms = {"linear": {"bidirectional": False}, "cosine": {"causal": False}}
    suite, runs, baselines = suite_frames()
    without_runs = results(runs[:0], suite, baselines)
    found = table_of(without_runs, cost=False, causal=["parity"], **forms)
    assert found["not_run"] == [question.name for question in suite.questions]
    assert not found["usable"]
    rows = {row["row"]: row["states"] for row in found["rows"]}
    pairs = product(("linear", "cosine"), ("bidirectional-histogram", "parity"))
    states = [rows[name][question] for name, question in pairs]
    assert states == ["impossible", "missing", "missing", "impossible"]
    # Nothing is known of a row without baselines.
    others = results(runs, suite, baselines[baselines["data"] != "language"])
    found = table_of(others, cost=False)
    assert {row["states"]["language"] for row in found["rows"]} == {"missing", "part"}
    assert found["not_run"] == ["language"]


def test_a_length_that_one_backend_finishes_is_finished():
    costs = pd.DataFrame({
        "pass": "train", "causal": True, "length": [1024, 1024, 4096, 4096, 16384, 16384],
        "status": ["ok", "ok", "ok", "out_of_memory", "timeout", "out_of_memory"],
    })  # fmt: skip
    assert unfinished(costs) == {key_of("train", True): 16384}


def test_questions_of_two_forms_are_refused_with_the_remedy():
    for needs, operation in ((["recall", "bidirectional-histogram"], "train"),
                             ("bidirectional-histogram", "decode")):  # fmt: skip
        with one_line("bidirectional-histogram", "causal"):
            harness.advise(needs, 4096, operation)


def test_a_need_is_every_question_whose_name_it_begins_or_else_ends():
    both = [q.name for q in suites.find("laptop").questions if q.name.startswith("bidirectional-")]
    assert {"bidirectional-histogram", "bidirectional-recall"} <= {*both}
    of_end = ("histogram", ["bidirectional-histogram"])
    for need, questions in (("bidirectional", both), ("recall", ["recall"]), of_end):
        assert harness.advise(need, 4096)["query"]["needs"] == questions


def test_a_question_that_the_published_table_lacks_is_judged_from_records(tmp_path, monkeypatch):
    folder = shutil.copytree(suites.FOLDER, tmp_path / "suites")
    older = json.loads((folder / "laptop.json").read_text("utf-8"))
    del older["forms"]["bidirectional-recall"]
    (folder / "laptop.json").write_text(json.dumps(older))
    monkeypatch.setattr(suites, "FOLDER", folder)
    assert "bidirectional-recall" in harness.advise("bidirectional", 4096)["query"]["needs"]


def test_amounts_of_memory_are_read_and_shown():
    texts = {"2GiB": 2**31, "1.5 k": 1536, "7": 7, "3MB": 3 * 2**20, "1 TiB": 2**40}
    assert {text: bytes_in(text) for text in texts} == texts
    assert [bytes_text(value) for value in (0, 1536, 2**31)] == ["0.00 B", "1.50 KiB", "2.00 GiB"]
    with pytest.raises(ValueError, match="two"):
        bytes_in("two")


@pytest.mark.parametrize(("better", "sign"), [("higher", 1), ("lower", -1)])
def test_ranges_are_the_intervals_and_letters_of_the_matrix(better, sign):
    answers = (found := made()).answers().assign(better=better)
    rows = {of["row"]: of["ranges"] for of in table_of(found, answers)["rows"]}
    scored = answers[answers["mean"].notna()]
    assert (scored["rank_group"] != "").any()
    for of in scored.to_dict("records"):
        ends = sorted(sign * of[end] for end in ("low", "high"))
        *interval, letters = rows[of["row"]][of["question"]]
        assert interval == pytest.approx(ends, rel=1e-4) and letters == of["rank_group"]


def test_bounds_are_of_the_fastest_layers_and_of_the_row_itself():
    costs = published_costs()
    first = costs[(costs["pass"] == "train") & (costs["status"] == "ok")].iloc[:1]
    fast = first.assign(computed_by="library", seconds=1.0, ratio=0.5, outdated=False)
    slow = fast.assign(computed_by=PYTORCH, seconds=2.0, ratio=1.0)
    key = key_of("train", bool(first["causal"].iloc[0]))
    assert _bounds(pd.concat([slow, fast])) == [] and _bounds(slow) == [key]
    long = fast.assign(length=2 * first["length"].iloc[0])
    assert _bounds(pd.concat([slow, long])) == [key]
