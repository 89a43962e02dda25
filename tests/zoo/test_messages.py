"""Errors in one line, whatever their message."""

import pytest

from zoo.registry import first_line, in_one_line


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("too far\nby 3 steps"), "too far"), (ValueError(), ""), (KeyError("a"), "'a'")],
)
def test_an_error_is_its_type_and_the_first_line_of_its_message(error, line):
    assert first_line(error) == line
    assert in_one_line(error) == f"{type(error).__name__}: {line}"
