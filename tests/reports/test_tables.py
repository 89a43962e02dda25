import csv
import io

import pytest
from pydantic import ValidationError

from harness.records.record import Record
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards, summary
from reports.tables.values import CHOSEN_ON_TEST, number


def read(records):
    """The lines of the CSV by the name of the variant or baseline."""
    lines = csv.DictReader(io.StringIO(as_csv(boards(records))))
    return {line["attention"]: line for line in lines}


def test_csv_holds_every_digit_and_the_quartiles(record):
    given = [record("primal", seed=n, accuracy=a) for n, a in enumerate((1 / 3, 0.4))]
    line = read(given)["primal"]
    assert float(line["test"]) == pytest.approx(100 * (1 / 3 + 0.4) / 2, rel=1e-15)
    assert (line["kind"], line["status"], line["runs"]) == ("measured", "ok ok", "2")
    assert (line["seeds"], line["options"]) == ("0 1", '{"primal": {}}')
    quartiles = [float(line[f"seconds_per_1k_steps_{q}"]) for q in ("q1", "median", "q3")]
    assert quartiles == pytest.approx([90.0, 100.0, 120.0])
    assert (line["peak_memory_mib"], line["time_ratio_median"]) == ("300.0", "0.5")


def test_csv_holds_the_setting_in_columns_of_its_fields(record):
    line = read([record(model={"positions": "rotary"}, overrides={"model.dim": 3})])["softmax"]
    expected = {
        "task_name": "listops", "task_key": "listops@1", "budget": "paper", "device": "cuda",
        "model_positions": "rotary", "train_betas": "[0.9, 0.999]", "task_options": "{}",
        "overrides": '{"model.dim": 3}', "machine": "NVIDIA H100", "test_examples": "2000",
    }  # fmt: skip
    assert expected.items() <= line.items()


def test_csv_of_a_failure_has_its_reason_and_empty_cells(record):
    failed = record("primal", status="diverged", reason="loss is nan", measured=False)
    line = read([record(), failed])["primal"]
    assert (line["status"], line["reason"]) == ("diverged", "diverged: loss is nan")
    assert {line[name] for name in ("test", "time_ratio_q1", "parameters")} == {""}


def test_baselines_are_lines_of_their_own_kind(record):
    lines = read([record()])
    assert {name: line["kind"] for name, line in lines.items()} == {
        "softmax": "measured", "majority": "baseline", "chance": "baseline"
    }  # fmt: skip
    assert float(lines["majority"]["test"]) == pytest.approx(17)


def test_published_numbers_have_columns_of_their_own_with_their_source(record):
    line = read([record("primal", accuracy=0.9, seconds=1.0, mib=2.0)])["primal"]
    names = ("accuracy_percent", "seconds_per_1k_steps", "peak_memory_gb")
    assert [line[f"paper_{name}"] for name in names] == ["37.3", "56.5", "0.69"]
    assert line["paper_source"].count("arXiv 2305.19798") == 2
    assert (line["test"], line["peak_memory_mib"]) == ("90.0", "2.0")


def test_the_best_on_test_is_a_marked_column_of_runs_that_have_it(record):
    plain = [record(accuracy=0.5), record(seed=1, accuracy=0.7)]
    assert CHOSEN_ON_TEST not in leaderboard(plain, [])
    best = [
        one.model_copy(update={"final": one.final.model_copy(update={"best_on_test": value})})
        for one, value in zip(plain, (60.0, 90.0), strict=True)
    ]
    page = leaderboard(best, [])
    assert f"best on test{CHOSEN_ON_TEST}" in page and "| 75.0 |" in page
    assert "selects and orders nothing" in page
    tree = plain[0].model_dump()
    with pytest.raises(ValidationError, match=r"best_on_test=40\.0 is worse than score=50\.0"):
        Record.model_validate({**tree, "final": tree["final"] | {"best_on_test": 40.0}})


def test_a_cost_is_the_median_over_seeds(record):
    given = [record(seed=n, seconds=s, mib=s) for n, s in enumerate((10.0, 20.0, 90.0))]
    line = read(given)["softmax"]
    assert float(line["seconds_per_1k_steps_q1"]) == pytest.approx(18)
    assert float(line["memory_ratio"]) == pytest.approx(20 / 400)


def test_a_run_without_softmax_counts_only_where_no_run_has_it(record):
    alone = record("primal", seed=1, softmax=None, mib=900.0)
    line = read([record("primal", seed=0), alone])["primal"]
    assert (line["time_ratio_median"], line["peak_memory_mib"]) == ("0.5", "300.0")
    line = read([alone])["primal"]
    assert (line["time_ratio_median"], line["peak_memory_mib"]) == ("", "900.0")


def test_the_terminal_shows_means_over_seeds_in_100_columns(record):
    given = [record("primal", seed=n, accuracy=a) for n, a in enumerate((0.50, 0.54))]
    given += [record("yoso", status="failed", reason="x" * 150, options={"yoso": {"a": "b" * 90}})]
    given += [record("softmax", softmax=None), record("yoso", options={"yoso": {"a": 1}})]
    lines = summary(given).splitlines()
    assert lines[0] == "listops@1, budget paper, cuda: NVIDIA H100"
    primal = next(line for line in lines if line.startswith("primal"))
    assert primal.split() == [
        "primal",
        "52.0",
        "[26.6,",
        "77.4]",
        "53.0",
        "2",
        "100",
        "0.500",
        "0.750",
    ]
    assert lines[-1] == "baselines: majority 17.0, chance 10.0"
    assert any(line.startswith("yoso (a=bbb") and "failed: xxx" in line for line in lines)
    assert max(map(len, lines)) <= 100
    assert summary([]) == "no records"


def test_the_largest_figures_fit_in_100_columns(record):
    extreme = {"seconds": 5e14, "softmax": (1.0, 1e-6), "mib": 8e12, "status": "failed"}
    lines = summary([record("x" * 90, **extreme)]).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[2].startswith("xxx") and "500,000,000…" in lines[2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1234567.8, "1,234,568"), (123.4, "123"), (99.96, "100"), (12.34, "12.3"), (0.01234, "0.0123"),
     (1.0, "1.00"), (0.0, "0.00"), (1e-7, "1e-07")],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value, expected):
    assert number(value) == expected
