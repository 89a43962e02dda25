"""Every statement of `docs/primal.md` names tests, and these exist."""

import ast
import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "primal.md").read_text("utf-8")
POINTER = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def statements() -> dict[int, str]:
    """The text of each numbered statement, up to the next one."""
    parts = re.split(r"^\*\*(\d+)\. ", PAGE, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def names_in(path: str) -> set[str]:
    file = ROOT / path
    tree = ast.parse(file.read_text("utf-8")) if file.exists() else ast.Module([], [])
    names = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    return {name for name in names if name.startswith("test_")}


def test_statements_are_numbered_in_order_and_each_names_a_test():
    numbers = [*statements()]
    assert len(numbers) > 20 and all(b == a + 1 for a, b in pairwise([0, *numbers]))
    assert [number for number, text in statements().items() if not POINTER.search(text)] == []


def test_every_test_that_the_page_names_exists():
    named = POINTER.findall(PAGE)
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []
    # Nothing that looks like a pointer is written in another form.
    assert PAGE.count("tests/") == PAGE.count("::test_") == len(named)


def test_formulas_are_closed():
    for paragraph in PAGE.split("\n\n"):
        assert paragraph.count("$") % 2 == 0, paragraph
