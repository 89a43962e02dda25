"""The advisor: its rules over a table that can be checked by hand, and its table of a store."""

import json
import shutil
from typing import Any

import pandas as pd
import pytest

import harness
from harness.records import suites
from reports.advice import advice_text, advise, bytes_in, bytes_text, choices, decoding
from reports.advice.rules import OF_NEEDS, best, key_of
from reports.advice.table import unfinished
from reports.layer_costs import FORMS
from tests.conftest import one_line

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
        "heads": {"recall": "recall", "state": "state"},
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


def test_the_pareto_set_trades_accuracy_time_and_memory_and_ties_are_named():
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
    assert advise(table_with(), query())["recommended"] == ""
    # The result or the time of the second row differs, or neither.
    first = row("a", 1, {1024: 1.0})
    cases = ((2, 1.0, ("a", [])), (1, 1.5, ("a", [])), (1, 0.999, ("b", ["a"])))
    for group, time, expected in cases:
        (member, *_) = advise(table_with(first, row("b", group, {1024: time})), query())["members"]
        assert (member["row"], member["tied"]) == expected
    faster = row("b", 1, {1024: 0.5}, memory=101.0)
    members = advise(table_with(first, faster), query())["members"]
    assert [member["tied"] for member in members] == [[], []]


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


def test_a_question_that_no_row_answers_is_not_used():
    states = {"recall": "ok", "compose": "baseline", "image": "missing"}
    values = table_with(row("a", 1, {1024: 1.0}, states=states)) | {"not_run": ["image"]}
    found = advise(values, three := query(needs=["recall", "compose", "image"]))
    assert names(found) == ["a"] and not found["excluded"]
    assert (found["unanswered"], found["not_run"]) == (["compose", "image"], ["image"])
    assert found["run"] == "harness run --suite laptop@3 --questions image"
    assert found["run"] in advice_text(values, three, found, why=True)
    for titles in (values["questions"], values["heads"]):
        titles["compose"] = "composition"
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
    assert found["members"][2]["uses"] == ["layer"]
    text = " ".join(advice_text(values, asked, found).split())
    figures = ("Use a", "0.50", "90.0 B", "1,024", "Runners-up: c (0.90), d (0.20).")
    assert all(of in text for of in figures) and "More steps help." not in text
    text = advice_text(values, asked, found, why=True)
    assert "PyTorch layer" in text and "More steps help." in text
    # An answer about another pass of a causal layer has the cost of decoding, if it was measured.
    assert "; decoding" not in text
    values["forms"] = {"recall": "causal"}
    values["units"] |= {"train causal": "ratio", "decode causal": "ratio"}
    for of in rows:
        of["points"] |= {"train causal": of["points"]["train"]}
    rows[0]["points"]["decode causal"] = [[1024, 1.5, 1.4, 1.6, 9.0, 0.1]]
    values["lengths"] = {key: [1024] for key in values["units"]}
    found = advise(values, asked)
    text = " ".join(advice_text(values, asked, found).split())
    assert "(training, causal, 1,024 tokens); decoding: 1.5 of softmax's time. Runners-up" in text
    assert decoding(values, asked, "") == decoding(values, asked, "b") == ""
    of_decode = query(**{"pass": "decode"})
    assert "; decoding" not in advice_text(values, of_decode, advise(values, of_decode))
    values["unbeaten"] = {"recall": {"baseline": "a rule (99)", "best": ""}}
    lines = advice_text(values, asked, found).splitlines()
    assert [line.split()[0] for line in lines[4:8]] == ["a", "c", "d", "b"]
    assert lines[-3:-1] == [
        "recall: Give the value.", "No variant is separably better than a rule (99) at recall.",
    ]  # fmt: skip


def test_the_worst_result_counts_then_the_sum_and_then_the_time():
    groups = {"fast": ([1, 1, 1, 3], 0.1), "more": ([2, 2, 2, 2], 0.5), "best": ([1, 2, 2, 2], 0.9),
              "slower": ([2, 1, 2, 2], 1.0)}  # fmt: skip
    members = [{"row": name, "groups": of, "time": time} for name, (of, time) in groups.items()]
    assert best(members)["row"] == "best"


def test_the_site_recommends_by_the_largest_memory_that_is_left():
    costs = (("a", 0.5, 300.0), ("b", 0.8, 200.0), ("c", 0.9, 100.0))
    rows = [row(name, 1, {1024: time}, memory=memory) for name, time, memory in costs]
    (found,) = (of for of in choices(table_with(*rows))["results"].values() if of["members"])
    assert {of["row"]: of["recommended"] for of in found["members"]} == {n: n for n in "abc"}
    assert all(of["sentence"].startswith(f"Use {of['row']} ") for of in found["members"])


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
