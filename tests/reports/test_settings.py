"""A field of a specification is never left out of what a board says of itself."""

import pytest

from harness.records.spec import ModelSpec, TrainSpec
from reports.leaderboard import titles
from reports.rows import boards
from reports.settings import PATHS, recipe
from reports.tidy import table

FIELDS = [
    f"{part}.{name}"
    for part, spec in (("model", ModelSpec), ("train", TrainSpec))
    for name in spec.model_fields
]


def other(value):
    """A value of the same kind that is not `value`."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case tuple():
            return tuple(map(other, value))
    return f"not {value}"


@pytest.fixture(params=FIELDS)
def two(request, record):
    """Boards of two runs that differ by one field alone."""
    part, name = request.param.split(".")
    first = record()
    value = getattr(getattr(first.spec, part), name)
    return boards([first, record(**{part: {name: other(value)}})])


def test_boards_that_differ_by_any_field_differ_in_title_recipe_and_figures(two):
    assert len(set(titles(two))) == 2
    assert len({recipe(board.setting) for board in two}) == 2
    lines = {tuple(line) for line in table(two).fillna("").values.tolist()}
    assert len(lines) == sum(len(board.rows) + len(board.baselines) for board in two)


def test_every_field_that_a_board_shares_has_a_path():
    assert {"budget", "device", "task.name", "task.key", "task.options", "task.block"} < {*PATHS}
    assert {*FIELDS} < {*PATHS}
    assert not {"attention", "options", "seed"} & {path.partition(".")[0] for path in PATHS}


def test_settings_of_one_key_with_other_options_are_told_apart(record):
    def with_options(**options):
        made = record()
        task = made.spec.task.model_copy(update={"options": options})
        return made.model_copy(update={"spec": made.spec.model_copy(update={"task": task})})

    first, second = titles(boards([with_options(test=1), with_options(test=1, dev=2)]))
    assert {first.partition("; ")[2], second.partition("; ")[2]} == {
        "options test=1", "options dev=2, test=1",
    }  # fmt: skip
