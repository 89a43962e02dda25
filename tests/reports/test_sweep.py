"""Scores against one option; trials choose the recipe of a row, and have a page."""

import pandas as pd
import pytest

from harness.records import frame
from harness.records.record import Record
from reports import tuning
from reports.shown import questions
from reports.sweep import files, sweeps, values_of
from tests.reports.conftest import changed, csv_lines, make_record, snapshot
from tests.reports.test_shown import RATES, tuned

pytestmark = pytest.mark.usefixtures("unrendered")

NO_RULES = pd.DataFrame(columns=["data", "name", "score"])


def on_pairs(
    attention: str, pairs: int, accuracy: float = 0.5, state: int | None = None, **fields
) -> Record:
    """A run of a task with an option, 8 by default, whose data depend on it."""
    key = f"mqar@3[vocabulary=64{'' if pairs == 8 else f',pairs={pairs}'}]"
    tree = make_record(attention, task="mqar", key=key, accuracy=accuracy, **fields).model_dump()
    tree["spec"]["question"]["task"]["options"] = {"pairs": pairs, "vocabulary": 64}
    tree["spec"]["data"] = {"test": f"{pairs:064}"}
    if state is not None:
        tree["state_bytes"] = state
    return Record.model_validate(tree)


LADDER = [
    on_pairs("softmax", 4, 0.9), on_pairs("softmax", 8, 0.8), on_pairs("linear", 4, 0.7, 2048),
    *(on_pairs("linear", 16, 0.4 + seed / 10, 4096, seed=seed) for seed in range(2)),
]  # fmt: skip


def of(records, field, default=None):
    """The values, rows and numbers of seeds of the sweeps over a field."""
    found = sweeps(frame.of_records(records), NO_RULES, field, default)
    return found[["row", "value", "seeds"]].values.tolist() if len(found) else []


FOUND = [["linear", 4, 1], ["linear", 16, 2], ["softmax", 4, 1], ["softmax", 8, 1]]


@pytest.mark.parametrize("field", ["task.pairs", "mqar.pairs"])
def test_runs_that_differ_in_the_option_alone_are_one_sweep(field):
    assert of(LADDER[::-1], field) == FOUND
    found = sweeps(frame.of_records(LADDER), NO_RULES, field)
    (title,) = found["question"].unique()
    assert title == "mqar@3[vocabulary=64], recipe paper, cuda: NVIDIA H100"
    assert found["mean"].tolist() == pytest.approx([70, 45, 90, 80])


@pytest.mark.parametrize(
    "other", [{"budget": "laptop"}, {"machine": "another"}, {"train": {"lr": 1.0}}]
)
def test_another_setting_is_no_part_of_a_sweep(other):
    assert of([*LADDER, on_pairs("softmax", 32, **other)], "task.pairs") == FOUND


def test_fields_of_the_model_and_options_of_variants_are_swept():
    widths = [
        make_record(model={"dim": dim}, overrides={"model.dim": dim} if dim != 64 else {})
        for dim in (128, 64, 32)
    ]
    assert of(widths, "model.dim") == [["softmax", 32, 1], ["softmax", 64, 1], ["softmax", 128, 1]]
    ranks = [make_record("primal", options={"primal": {"rank": r, "eta": 0.1}}) for r in (9, 30)]
    plain = make_record("primal", options={"primal": {"eta": 0.1}})
    two = [["primal", 9, 1], ["primal", 30, 1]]
    assert of([*ranks, *widths, plain], "primal.rank") == two
    runs = frame.of_records([*ranks, *widths, plain])
    assert values_of(runs, "primal.rank", 20).tolist() == [9, 30, None, None, None, 20]


def test_the_files_hold_every_score_state_and_strongest_baseline():
    failed = on_pairs("linear", 8, status="diverged", reason="loss is nan")
    runs = frame.of_records([*LADDER, failed])
    rules = pd.DataFrame({"data": runs["data"].unique()[:2]})
    rules = rules.merge(pd.DataFrame({"name": ["a", "b"], "score": [12, 34.5]}), how="cross")
    found = files(runs, rules, "task.pairs")
    assert {*found} == {f"sweep_task_pairs.{kind}" for kind in ("md", "csv", "png", "svg")}
    snapshot("sweep_task_pairs.md", found["sweep_task_pairs.md"].decode())
    lines = csv_lines(found["sweep_task_pairs.csv"])
    assert [(line["row"], line["value"], line["mean"], line["failures"]) for line in lines[:3]] == [
        ("linear", "4", "70.0", ""), ("linear", "8", "", "diverged: loss is nan"),
        ("linear", "16", "45.0", ""),
    ]  # fmt: skip


def test_a_store_without_a_sweep_makes_no_page():
    with pytest.raises(ValueError, match=r"no two runs of the store differ in task\.pairs alone"):
        files(frame.of_records(LADDER[:1]), NO_RULES, "task.pairs")


def trial(lr: float = 1e-3, dev: float = 0.5, **fields) -> Record:
    record = tuned(lr=lr, **fields)
    return record if record.final is None else changed(record, "final", dev=100 * dev)


TRIALS = [
    trial(lr, dev, accuracy=1 - dev) for lr, dev in zip(RATES, (0.25, 0.75, 0.5), strict=True)
]
FAILED = [trial(lr, status="diverged", reason="loss is nan") for lr in RATES[1:]]
CHOICES = {
    "best on dev, whatever its test score": (TRIALS, 1),
    "nearest to the recipe of equal ones": (
        [trial(lr, 0.7) for lr in (9e-3, 1e-4, 3e-3, 2e-4)], 2
    ),
    "no failed one": ([*FAILED, trial(RATES[0], 0.01)], 2),
    "none where all failed": (FAILED, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_a_trial_is_chosen_and_shown_as_the_best(case):
    trials, place = CHOICES[case]
    for order in (trials, trials[::-1]):
        runs, chosen = frame.of_records(order), [] if place is None else [trials[place].spec.id]
        ordered = frame.best_trials_first(runs)
        assert ordered[ordered["status"] == "ok"]["id"].tolist()[:1] == chosen
        found = tuning.trials(questions(runs))
        assert found[found["best"]]["id"].tolist() == chosen


def test_the_page_shows_every_trial_and_the_best_point():
    final = tuned("softmax", 3e-4, "final", seed=1)
    other = trial(3e-3, attention="primal", status="diverged", reason="")
    found = tuning.files(questions(frame.of_records([final, *TRIALS, other])))
    snapshot("tuning.md", found["tuning.md"].decode())
    assert {*found} == {"tuning.md", "tuning.png", "tuning.svg"}
    for few in ([final], []):
        assert tuning.files(questions(frame.of_records(few))) == {}
