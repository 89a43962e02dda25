import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reports.markdown import escape, escape_prose, insert, table
from reports.text import csv_cell, frame_csv, plain

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SYNTAX = st.text(st.sampled_from("\\`*_[]()<>!#|~&;:$-+=.1 \nax\"'{}")) | st.text()
LITERAL = {"text", "text_special"}


def content(page, around):
    tokens = [token for token in RENDERER.parse(page) if token.type != "inline"]
    assert {token.type.rpartition("_")[0] for token in tokens} == around, page
    tokens = [token for token in RENDERER.parse(page) if token.type == "inline"][-1].children
    assert {token.type for token in tokens} <= LITERAL, page
    return "".join(token.content for token in tokens)


@pytest.mark.slow
@given(SYNTAX)
@example("![x](http://evil/x.png)")
@example("1. item")
@example("- [x] item")
@example("a_b_ __init__ max_len=64")
@example("</td><script>")
def test_an_escaped_text_is_rendered_as_it_is(text):
    line = plain(text)
    if line:
        assert content(f"{escape(text)}\n", {"paragraph"}) == line
        assert content(f"- {escape(text)}\n", {"bullet_list", "list_item", "paragraph"}) == line
    page = table(["a"], [[escape(f"x{text}")]])
    tokens = {"table", "thead", "tbody", "tr", "th", "td"}
    assert content(page, tokens) == plain(f"x{text}")


def test_ordinary_texts_and_spans_of_code_in_prose_are_not_changed():
    assert plain("x" * 50, 10) == "x" * 9 + "…"
    for text in ("listops@1[max_len=64,count=8], 2 threads", "46.1 [43.9, 48.3]"):
        assert escape(text) == text
    expected = "`none` costs &lt;1 \\* 2&gt;, `a` less"
    assert escape_prose("`none` costs <1 * 2>, `a` less") == expected


def test_line_breaks_and_pipes_never_end_a_cell():
    page = table(["a", "b"], [["x\ny | z", "`p|q` \\| \\\\|"]])
    assert page.splitlines()[2] == "| x y \\| z | `p\\|q` \\| \\\\\\| |"


PAGE = "before\n<!-- models -->\nold\n<!-- /models -->\nafter\n"


def test_a_page_changes_between_its_marks_only_and_once():
    once = insert(PAGE, "models", "| new |\n")
    assert once == "before\n<!-- models -->\n\n| new |\n\n<!-- /models -->\nafter\n"
    assert insert(once, "models", "| new |\n") == once
    assert insert(insert(once, "models", ""), "models", "| new |") == once
    # A mark in the content ends nothing.
    content = "x\n<!-- /models -->\ny"
    once = insert(PAGE, "models", content)
    assert insert(once, "models", content) == once
    assert once.count("<!-- /models -->") == 1


@pytest.mark.parametrize("page", [
    "", "<!-- models -->\n", "<!-- /models -->\n<!-- models -->\n", PAGE + PAGE,
    "`<!-- models -->` and `<!-- /models -->`\n",
])  # fmt: skip
def test_a_page_without_both_marks_once_is_rejected(page):
    with pytest.raises(ValueError, match="needs the lines <!-- models -->"):
        insert(page, "models", "x")


@given(st.text())
@example("=1+1")
@example("\t@SUM(A1)")
@example("\n-1")
def test_no_text_is_a_formula_in_csv(text):
    safe = str(csv_cell(text))
    assert not safe.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert safe.lstrip("'") == plain(text).lstrip("'")


def test_numbers_stay_numbers_in_csv():
    frame = pd.DataFrame({"a": [-1.5, None], "b": ["=1", None], "c": True})
    assert frame_csv(frame) == b"a,b,c\n-1.5,'=1,True\n,,True\n"
