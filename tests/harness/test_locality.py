"""`harness study locality`: the runs of an audit, and the page made from them."""

from dataclasses import replace
from unittest import mock

import pandas as pd
import pytest

from harness.plan import Request
from harness.records.answers import CorrectAnswers
from harness.records.interval import Sample, interval_of
from harness.records.spec import RunSpec
from harness.studies import locality
from harness.studies.locality import SHUFFLED, WINDOW, Locality, scores, shuffled, windowed
from tests.harness.conftest import requested
from tests.harness.specs import axes_of, raising
from tests.reports.conftest import ACCURACY, make_record


def specs(request: Request, windows: list[int]) -> list[RunSpec]:
    return [plan.spec for plan in (*windowed(request, windows), *shuffled([request], windows))]


def test_an_audit_has_full_and_no_attention_and_every_window_and_block():
    runs = specs(replace(requested("softmax", "listops"), seed=3), [4, 16])
    assert [
        (run.attention, run.options.get("local", {}).get("window"), run.task.block) for run in runs
    ] == [
        ("softmax", None, 0), ("none", None, 0), ("local", 4, 0), ("local", 16, 0),
        ("softmax", None, 4), ("softmax", None, 16),
    ]  # fmt: skip
    assert {run.seed for run in runs} == {3}
    assert len({run.id for run in runs}) == len(runs)


def test_a_window_or_block_of_whole_sequences_is_left_out_with_a_warning():
    request = requested("softmax", "majority", majority={"max_len": 16})
    line = r"sequences of majority@1\[max_len=16,.*\] have at most 16 tokens, and from"
    with pytest.warns(UserWarning, match=rf"window 15 is left out: {line} 15 on it ch") as warned:
        *_, last = windowed(request, [14, 15])
    assert len(warned) == 1 and last.spec.options["local"]["window"] == 14
    with pytest.warns(UserWarning, match=rf"block 16 is left out: {line} 16 on it ch") as warned:
        (only,) = shuffled([request], [15, 16])
    assert len(warned) == 1 and only.spec.task.block == 15


@pytest.mark.parametrize("task", ["copying", "mqar"])
def test_a_task_with_target_positions_is_not_shuffled(task):
    tasks = requested("softmax", task, **{task: {"test": 4}}), requested("softmax", "majority")
    assert [plan.spec.task.name for plan in shuffled(tasks, [4, 16])] == ["majority"] * 2


def test_options_of_the_task_and_of_its_variants_can_be_set():
    settings = {"majority": {"max_len": "40"}, "softmax": {"backend": "sdpa"}}
    runs = specs(requested("softmax", "majority", **settings), [4])
    assert {run.task.options["max_len"] for run in runs} == {40}
    backends = {run.options["softmax"]["backend"] for run in runs if "softmax" in run.options}
    assert backends == {"sdpa"}


@pytest.mark.filterwarnings("always")
def test_runs_that_did_not_finish_are_named_and_are_on_the_page(
    call, store, unmeasured, monkeypatch
):
    monkeypatch.setattr("harness.runner.measure", raising(RuntimeError("boom")))
    resolve = mock.MagicMock(wraps=locality.requests)
    monkeypatch.setattr(locality, "requests", resolve)
    code, _, err = call("study", "locality", "majority", "--windows", "4", "--budget", "smoke")
    assert (code, resolve.call_count) == (1, 1)
    assert err.count("Traceback") == 4
    expected = "harness: warning: 4 of 4 runs failed (failed: RuntimeError: boom)"
    assert err.splitlines()[-1] == expected
    assert (store.folder / "locality.md").read_text("utf-8").count("failed: RuntimeError: boom") > 3
    assert len(list(store.folder.glob("*.json"))) == 4


def runs_of(record):
    """Full attention, none, two windows, and two sizes of shuffled blocks."""
    answers = {"correct": [True] * 30 + [False] * 70}

    def shuffled(tokens, **changes):
        key = f"listops@1, blocks of {tokens} shuffled"
        return record("softmax", key=key, block=tokens, **changes)

    return [
        record("softmax", accuracy=0.37),
        record("none", accuracy=0.17),
        record("local", accuracy=0.20, options={"local": {"window": 8}}),
        *(record("local", seed=s, options={"local": {"window": 32}}, **answers) for s in (0, 1)),
        record("local", status="failed", reason="no", options={"local": {"window": 64}}),
        shuffled(8, accuracy=0.21),
        shuffled(32, accuracy=0.36),
    ]


RULES = pd.DataFrame({
    "task": ["listops@1", "other@1"], "name": ["majority", "chance"], "score": [17.04, 90.0],
})  # fmt: skip


def frame_of(runs):
    return pd.DataFrame(scores(runs, RULES, print))


def test_a_study_has_a_row_for_each_number_of_tokens_and_a_column_for_each_curve():
    (section,) = Locality.sections(frame_of(runs_of(make_record)))
    table = section.table.fillna("").set_index("tokens")
    assert section.title == "listops@1, recipe paper, cuda: NVIDIA H100"
    assert table.columns.tolist() == [WINDOW, SHUFFLED]
    assert table.index.tolist() == [0, 8, 32, 64, "all"]
    assert table[WINDOW].tolist()[:2] + table[WINDOW].tolist()[3:] == [
        "17.0", "20.0", "failed: no", "37.0",
    ]  # fmt: skip
    sample = CorrectAnswers.pack([True] * 30 + [False] * 70, [1] * 100)
    _, low, high, _ = interval_of(Sample.of([sample] * 2), ACCURACY)
    assert table[WINDOW][32] == f"30.0 [{low:.1f}, {high:.1f}]"
    assert table[SHUFFLED].tolist() == ["", "21.0", "36.0", "", "37.0"]
    assert section.text == "Baselines: majority: 17.0."


def test_without_shuffled_blocks_one_curve_ends_at_full_attention():
    frame = frame_of([run for run in runs_of(make_record) if not run.spec.task.block])
    (section,) = Locality.sections(frame)
    assert section.table.columns.tolist() == ["tokens", WINDOW]
    assert section.table["tokens"].tolist() == [0, 8, 32, 64, "all"]


def test_the_figure_draws_the_scores_their_intervals_and_the_baselines():
    (panel,) = Locality.panels(frame_of(runs_of(make_record)))
    axes = axes_of(panel)
    lines = {tuple(line.get_ydata()) for line in axes.lines}
    assert {(17, 20, 30, 37), (21, 36, 37), (17.04, 17.04)} <= {
        tuple(float(f"{value:.5g}") for value in line) for line in lines
    }
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "8", "32", "all"]
    segments = [points for line in axes.collections for points in line.get_segments()]
    ((_, low), (_, high)) = next(points for points in segments if len(points))
    assert low < 30 < high
