"""Results of a suite: answers, matrix and pairs."""

import numpy as np
import pandas as pd
import pytest

from harness.catalogue import described
from reports import advice
from reports.statistics import between
from reports.suite_results import is_of_suite
from zoo.variants import variants

PRIMAL = "question == 'recall' and row == 'primal'"


def test_a_row_above_every_baseline_has_answered_and_any_other_is_not_ranked(suite_frames):
    found = suite_frames.answers()
    recall = found.loc["recall"]
    assert recall["rank_group"].to_dict() == {
        "softmax": "A", "primal": "B", "linear[chunk=8]": "", "none": "",
    }  # fmt: skip
    assert (recall["answered"] == (recall["rank_group"] != "")).all()
    assert (recall["at_baseline"] == ~recall["answered"]).all()
    assert {*found["better"]} == {"higher", ""} and {*recall["better"]} == {"higher"}
    assert {*recall["baseline"]} == {"rule"} and {*recall["baseline_value"]} == {30}
    assert recall.loc["linear[chunk=8]", "not_compared"] == "seeds at a baseline"
    # A row that is compared but below a baseline has no rank group.
    baselines = suite_frames.baselines.assign(score=[10.0, 80.0, 10.0, 30.0])
    recall = suite_frames.answers(baselines=baselines).loc["recall"]
    primal = recall.loc["primal", ["not_compared", "rank_group", "at_baseline"]]
    assert primal.tolist() == ["", "", True] and recall.loc["softmax", "rank_group"] == "A"
    compared = suite_frames.results(baselines=baselines).pairs()[["question", "first", "second"]]
    assert ["recall", "softmax", "primal"] in compared.values.tolist()
    assert [n for n in ("gru", "conv", "none") if variants.find(n).is_baseline] == ["conv", "none"]


def test_a_question_that_was_not_run_has_no_status_and_failed_runs_have_theirs(suite_frames):
    runs = suite_frames.runs.copy()
    copy = runs["question"] == "copy"
    runs.loc[copy & (runs["row"] == "primal") & (runs["seed"] < 3), "status"] = "out_of_memory"
    runs.loc[copy & (runs["row"] == "none"), "status"] = "diverged"
    found = suite_frames.answers(runs=runs).loc["copy"]
    assert found["status"].to_dict() == {
        "softmax": "ok", "primal": "out of memory (2 of 3)", "linear[chunk=8]": "",
        "none": "diverged (3 of 3)",
    }  # fmt: skip
    assert found["not_compared"]["primal"] == "one seed"
    assert found["text"][["linear[chunk=8]", "none"]].tolist() == ["", ""]


def test_a_row_without_other_seeds_shows_its_chosen_trial_once_every_rate_was_tried(suite_frames):
    runs = suite_frames.runs
    trial = runs.query(f"{PRIMAL} and role == 'trial'")
    tried = runs.drop(runs.query(PRIMAL).index.difference(trial.index))
    other = {"point": "7", "id": "worse", "sample": [runs["sample"].iloc[-1]]}
    worse = trial.assign(dev=trial["dev"] - 1, **other)
    going = worse.assign(status="interrupted")
    for others, shown in (([], False), ([going], False), ([worse], True)):
        so_far = pd.concat([*others, tried], ignore_index=True)
        row = suite_frames.answers(runs=so_far).loc["recall", "primal"]
        assert (row["seeds"], row["rank_group"], row["answered"]) == (int(shown), "", shown)
        if shown:
            assert (row["mean"], row["not_compared"]) == (trial["score"].item(), "one seed")


def test_a_model_without_attention_is_a_baseline_once_two_of_its_seeds_have_finished(suite_frames):
    runs, baselines = suite_frames.runs, suite_frames.baselines.assign(score=[1.0, 2.0, 1.0, 2.0])
    seeds = runs.query("question == 'recall' and row == 'none'").index
    for left_out, expected in (([], "none"), (seeds[:1], "none"), (seeds[:2], "rule")):
        found = suite_frames.answers(runs=runs.drop(left_out), baselines=baselines).loc["recall"]
        assert found.loc["primal", "baseline"] == expected
        assert found.loc["none", "at_baseline"] and not found.loc["none", "answered"]


def test_rows_without_newer_runs_are_shown_and_marked_as_outdated(suite_frames):
    runs = suite_frames.runs
    old = runs.eval(PRIMAL)
    runs = runs.assign(outdated=old, version=runs["version"].mask(old, "mine 1"))
    found = suite_frames.tables(runs=runs)
    assert found.answers.query(PRIMAL)["seeds"].tolist() == [3]
    assert found.notes[0].startswith(
        "3 of 21 runs are outdated: code or data have changed since. Variants: primal."
    )
    assert found.joined.index[found.joined["outdated"]].tolist() == ["primal"]
    assert [*found.pairs["question"], *found.pairs["outdated"]] == ["recall", "copy", True, False]
    assert between(found.pairs, [("primal", "softmax")])["outdated"].tolist() == [True, False]


@pytest.mark.parametrize(("old", "reason"), [
    ({"version": "mine 1"}, "1 of other code of the row"),
    ({"values": '{"train.lr": 7.0}'}, "1 at another rate"),
    ({"device": "cpu"}, "1 on another kind of device"), ({"data": "older"}, "1 of other data"),
    ({"declared": "0"}, "1 of other settings"), ({"role": ""}, "1 without trials"),
    ({"reason": "no difference"}, ""),
], ids=str)  # fmt: skip
def test_runs_of_other_code_rates_devices_or_data_are_left_out(suite_frames, old, reason):
    runs = suite_frames.runs
    first = runs.query(f"{PRIMAL} and seed == 1")
    before = first.assign(started="2020-01-01T00:00:00Z", score=0.0, **old)
    found = suite_frames.tables(runs=pd.concat([runs.drop(first.index), before]))
    assert found.answers.query(PRIMAL)["seeds"].tolist() == [2 if reason else 3]
    left_out = [f"Left out of the runs: {reason}."] if reason else []
    assert [note for note in found.notes if "Left out" in note] == left_out


def test_pairs_are_of_compared_rows_and_corrected_for_those_that_are_named_alone(suite_frames):
    found = suite_frames.results().pairs()
    assert found[["question", "first", "second"]].values.tolist() == [
        ["recall", "softmax", "primal"], ["copy", "primal", "softmax"],
    ]  # fmt: skip
    recall = found.iloc[0]
    assert recall["low"] < 28 < recall["high"] and recall["p"] == recall["p_holm"] < 1e-3
    planned = between(found, [("primal", "softmax")])
    assert planned["p_holm"].tolist() == planned["p"].tolist()
    ends = ["low", "difference", "high"]  # of pairs that are named in the other order
    assert [*planned.iloc[0][ends]] == [-end for end in found.iloc[0][ends[::-1]]]
    # Not corrected for a second table, nor for a pair that is named twice.
    several = between(pd.concat([found, found.assign(table="other")]), 2 * [("primal", "softmax")])
    assert len(several) == 2 * len(planned)
    assert several["p_holm"].tolist() == several["p"].tolist()
    both = between(found.assign(p=0.03), [("primal", "softmax"), ("softmax", "linear[chunk=8]")])
    recall = both[both["question"] == "recall"]
    assert len(recall) == 1 + (recall["second"] == "linear[chunk=8]").sum()
    assert recall["p_holm"].tolist() == [0.03 * len(recall)] * len(recall)


def test_runs_with_other_positions_than_their_row_are_of_other_settings(suite_frames):
    suite, runs, *_ = suite_frames
    first, *others = suite.questions
    rotary = first.model_copy(update={"rotary": ("softmax",)})
    suite = suite.model_copy(update={"questions": (rotary, *others)})
    usual = runs["question"].map({of.name: of.positions for of in suite.questions})
    is_rotary = runs.eval(f"attention == 'softmax' and question == '{first.name}'")
    runs = runs.assign(**{"model.positions": usual.mask(is_rotary, "rotary")})
    assert is_of_suite(runs, suite).all()
    other = is_of_suite(runs.assign(**{"model.positions": usual}), suite)
    assert other.tolist() == (~is_rotary).tolist()


def test_an_option_that_a_question_gives_a_variant_is_one_of_its_settings(suite_frames):
    suite, runs, *_ = suite_frames
    asked = suite.question("recall").model_copy(update={"variants": {"primal": {"rank": 8}}})
    suite = suite.model_copy(update={"questions": (asked, *suite.questions[1:])})
    first = runs.eval(f"{PRIMAL} and seed == 1")
    changed = runs.assign(**{"primal.rank": np.where(first, 4, 8)})
    assert is_of_suite(changed, suite).tolist() == (~first).tolist()
    # A row of its own has the option by its name.
    overrides = changed["overrides"].mask(first, '{"primal.rank": 4}')
    assert is_of_suite(changed.assign(overrides=overrides), suite).all()


@pytest.mark.parametrize("change", [{"machine": "elsewhere"}, {"ratio": np.nan}, {"batching": "7"}])
def test_a_faster_cost_in_another_setting_or_without_a_ratio_is_not_used(suite_frames, change):
    costs = suite_frames.costs
    other = costs.query("row == 'primal' and length == 512 and not causal")
    both = pd.concat([other.assign(**({"ratio": 0.01, "seconds": 0.01} | change)), costs])
    found = suite_frames.tables(costs=both).matrix["bidirectional"]
    assert found.loc["primal", ["time.512", "memory.512"]].tolist() == [0.9, 0.5]


def test_an_outdated_measurement_is_used_only_without_another_and_named(suite_frames):
    costs = suite_frames.costs.assign(outdated=False)
    old = costs.assign(outdated=True, seconds=0.5 * costs["seconds"], ratio=0.01)
    for found, expected in ((pd.concat([old, costs]), 0.9), (old, 0.01)):
        of = suite_frames.tables(costs=found)
        assert of.matrix["bidirectional"].loc["primal", "time.512"] == expected
        assert sum("costs" in note for note in of.notes) == (expected == 0.01)
        values = advice.table(of.answers, of.seeds, found, of.suite, described())
        points = {row["row"]: row["points"] for row in values["rows"]}["primal"]["train"]
        assert {point[0]: point[1] for point in points}[512] == expected
