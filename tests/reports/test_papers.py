import hashlib
from collections import Counter
from importlib import resources
from statistics import fmean

import pytest

from reports.papers import AVERAGE, numbers, published

# Two averages of Table 1 are not the means of the rows that the paper prints above them.
MISPRINTED = {("Table 1", "longformer"): 72.28, ("Table 1", "performer"): 71.68}


def cells(table):
    return [number for number in numbers() if number.table == table]


@pytest.mark.parametrize(("table", "average"), [
    (number.table, number) for number in numbers() if number.task == AVERAGE
], ids=str)  # fmt: skip
def test_the_printed_averages_follow_from_the_rows(table, average):
    rows = [n for n in cells(table) if n.attention == average.attention and n.task != AVERAGE]
    mean = fmean(float(row.value) for row in rows)
    printed = MISPRINTED.get((table, average.attention), float(average.value))
    assert mean == pytest.approx(printed, abs=0.06)


@pytest.mark.parametrize("place", MISPRINTED, ids="-".join)
def test_an_average_that_is_called_misprinted_really_is(place):
    table, attention = place
    (average,) = (n for n in cells(table) if (n.task, n.attention) == (AVERAGE, attention))
    assert abs(float(average.value) - MISPRINTED[place]) > 0.1


@pytest.mark.parametrize(
    ("table", "tasks", "attentions", "units"),
    [("Table 1", 11, 11, {"%"}), ("Table 2", 6, 9, {"%"}), ("Table 3", 5, 7, {"s/1K steps", "GB"})],
)
def test_every_table_is_complete_and_says_nothing_twice(table, tasks, attentions, units):
    found = Counter((n.task, n.attention, n.unit) for n in cells(table))
    assert len({task for task, _, _ in found}) == tasks
    assert len({attention for _, attention, _ in found}) == attentions
    assert {unit for _, _, unit in found} == units
    assert set(found.values()) == {1}
    assert len(found) == tasks * attentions * len(units)


def test_softmax_costs_most_and_primal_least_on_every_task_of_the_cost_table():
    for task, unit in {(n.task, n.unit) for n in cells("Table 3")}:
        column = {
            n.attention: float(n.value)
            for n in cells("Table 3")
            if (n.task, n.unit) == (task, unit)
        }
        assert max(column, key=column.__getitem__) == "softmax"
        assert min(column, key=column.__getitem__) == "primal"


@pytest.mark.parametrize(
    ("key", "attention", "expected"),
    [
        ("text@1", "softmax", {"%": "65.0", "s/1K steps": "694.8", "GB": "21.24"}),
        ("retrieval@1", "softmax+primal", {"%": "81.0", "s/1K steps": "546.5", "GB": "18.59"}),
        ("image@1", "yoso", {"%": "39.8"}),
        ("text@1[max_len=512]", "softmax", {}),
        ("text@2", "softmax", {}),
        ("text", "softmax", {}),
        ("text@1, blocks of 32 shuffled", "softmax", {}),
        ("text@1", "softmax-lib", {}),
        ("average@1", "softmax", {}),
    ],
)
def test_published_numbers_are_found_by_the_published_task_and_variant_alone(
    key, attention, expected
):
    found = published(key, attention)
    assert {unit: number.value for unit, number in found.items()} == expected


FIXED = {
    "lra_accuracy.csv": "02901b2a06473075",
    "lra_cost.csv": "b188eec87af26757",
    "uea_accuracy.csv": "83d4cfe44253a7c9",
}


def test_every_table_of_published_numbers_is_fixed():
    folder = resources.files("reports").joinpath("published")
    assert FIXED.keys() == {file.name for file in folder.iterdir() if file.name.endswith(".csv")}


@pytest.mark.parametrize("name", FIXED)
def test_a_published_number_is_changed_with_the_paper_at_hand_only(name):
    content = resources.files("reports").joinpath("published", name).read_bytes()
    found = hashlib.sha256(content).hexdigest()[:16]
    assert FIXED[name] == found, f"{name} was changed: hold it against the paper, line by line"
