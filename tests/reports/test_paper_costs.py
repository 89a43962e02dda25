"""Training steps beside published ones: ratios, published columns, failures and sentences."""

import pandas as pd
import pytest

from harness.records.frame import of_costs
from harness.records.suites import find
from reports import papers
from tests.reports.conftest import changed, make_cost, snapshot

SUITE = find("chen2023-cost")
NAIVE, SDPA = ({"softmax": {"backend": kind}} for kind in ("naive", "sdpa"))


def cost(attention="primal", seconds=0.0113, ratio: float | None = 0.5, reference="sdpa", **spec):
    record = make_cost(attention, 2000, seconds=seconds, ratio=ratio or 1.0, batch=32, **spec)
    if record.measured is None:
        return record
    changes = {"reference": reference, "peak_bytes": 10**9, "memory_ratio": 2.0}
    nothing = {"ratio": None, "memory_ratio": None, "reference": ""}
    without = {} if ratio else {**nothing, "no_ratio": "softmax is out of memory"}
    return changed(record, "measured", **changes | without)


def naive(**changes):
    return cost("softmax", **{"seconds": 0.2, "ratio": 4.0, "options": NAIVE, **changes})


def steps(*costs, task="listops@1", others=()):
    """The costs beside published ones; the first is of softmax by its formula."""
    wanted = [
        {
            "question": "listops", "row": "softmax[backend=naive]" if cost is costs[0] else
            cost.spec.attention, "attention": cost.spec.attention, "task": task,
            "shape": cost.spec.shape,
        }
        for cost in costs
    ]  # fmt: skip
    return papers.step_costs(pd.DataFrame(wanted), of_costs([*costs, *others]))


@pytest.mark.parametrize(
    ("reference", "expected"),
    # Two ratios to one softmax are divided, those to two are not.
    [("sdpa", 0.125), ("naive", 0.0113 / 0.2)],
)
def test_a_ratio_to_naive_softmax_is_that_of_two_ratios_to_one_softmax(reference, expected):
    _, primal = steps(naive(reference=reference), cost()).to_dict("records")
    assert primal["time_over_first"] == pytest.approx(expected)
    assert (primal["time"], primal["memory"]) == (pytest.approx(11.3), 1.0)
    assert (primal["ratio"], primal["memory_ratio"]) == (0.5, 2.0)


def test_the_page_the_table_and_the_terminal_are_the_approved_ones():
    out = cost("linear", status="out_of_memory", reason="64 GiB were asked for")
    others = [cost("softmax", options=SDPA), cost("yoso"), cost("nystrom", ratio=None), out]
    found = steps(naive(), cost(), *others)
    files = papers.step_files(found, SUITE)
    snapshot("chen2023-cost.md", files["chen2023-cost.md"].decode())
    snapshot("chen2023-cost.csv", files["chen2023-cost.csv"].decode())
    snapshot("chen2023-cost.txt", papers.step_text(found) + "\n")
    assert papers.step_lines(found)[1]["task"] == "listops@1"


def test_without_a_first_row_nothing_is_over_it():
    found = steps(naive(status="out_of_memory"), cost(ratio=None), task="text@2")
    assert found[["time_over_first", "memory_over_first"]].isna().all(axis=None)
    assert found["published_time"].tolist() == [694.8, 93.6]


def test_figures_of_tasks_that_were_not_published_have_no_published_value():
    found = steps(naive(), cost(), task="listops@1[max_len=64]")
    assert found["published_time"].isna().all()


def test_the_machine_with_most_steps_is_shown_and_nothing_of_other_shapes():
    other = [cost(machine="other", seconds=1.0), cost(machine="other", seconds=1.0, dim=128)]
    found = steps(naive(), cost(), others=other)
    assert {*found["machine"]} == {"CPU"} and len(found) == 2
    assert papers.step_costs(found[["shape"]], of_costs([cost(dim=32)])).empty
